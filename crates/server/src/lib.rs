//! Ways in to a hub: HTTP, events, metrics.
//!
//! In: a hub, the store it stands on, and what the owner says. Out: answers to requests. The router can be used without
//! a socket; `listener` is what accepts connections.
#![forbid(unsafe_code)]

mod access_log;
mod api;
mod app;
mod audit;
mod auth;
mod body_error;
mod duration_param;
mod extract;
mod handler;
mod host_control;
mod idempotency;
mod json;
mod keys;
mod links;
mod listener;
mod metrics;
mod openapi;
mod operation;
mod origin_check;
mod page;
mod problem;
mod request_info;
mod route;
mod scope;
mod settings;
mod sse;

use std::sync::Arc;

use axum::Router;
use toolhub_agent::AgentService;
use toolhub_core::{ToolHub, backend::Backend};

pub use host_control::{Backup, ConfigProblem, HostControl, HostControlError, NamedToolset, Reloaded, ToolChangeError};
pub use keys::{KeyError, KeyRing, NewKey};
pub use listener::{BoundServer, ServeError};
pub use scope::{Scope, UnknownScope};
pub use settings::{Auth, Build, KeySetting, Limits, Settings};

use app::App;

/// A server in the making.
#[must_use = "a server serves only after `bind`"]
pub struct Server {
    app: App,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// A server for a hub. `store` is the one the hub stands on: keys and the audit are kept there.
    pub fn new(hub: ToolHub, store: Arc<dyn Backend>, settings: Settings) -> Self {
        Self { app: App::new(hub, store, None, settings) }
    }

    /// The program around it, that is asked for its config, reloads and backups.
    pub fn with_host_control(
        hub: ToolHub,
        store: Arc<dyn Backend>,
        settings: Settings,
        steward: Arc<dyn HostControl>,
    ) -> Self {
        Self { app: App::new(hub, store, Some(steward), settings) }
    }

    /// The agents that messages are for. A server that is given none has none, and says so.
    pub fn agents(self, agents: AgentService) -> Self {
        self.app.set_agents(agents);
        self
    }

    /// All routes, for whoever has a way of their own to bring requests: no socket, no limits of connections and time.
    pub fn router(&self) -> Router {
        let (app, routes) = (self.app.clone(), api::router(&self.app));
        let serve = tower::service_fn(move |request| {
            let answer = listener::answer(&app, &routes, request, None);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        Router::new().fallback_service(serve)
    }

    /// The keys of the config, to be replaced when it is read again.
    #[must_use]
    pub fn key_ring(&self) -> KeyRing {
        KeyRing::new(self.app.keys().clone())
    }

    /// The description of the API.
    #[must_use]
    pub fn openapi() -> serde_json::Value {
        api::document().clone()
    }

    /// Takes its address.
    ///
    /// # Errors
    /// When the address is taken or may not be used, or would let strangers in.
    pub async fn bind(self) -> Result<BoundServer, ServeError> {
        let router = api::router(&self.app);
        listener::bind(self.app, router).await
    }
}
