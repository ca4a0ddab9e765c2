//! The HTTP server of a hub: API, event streams, metrics.
//!
//! In: a hub, its store, and the settings. Out: responses to requests. The router can be used without a socket;
//! `listener` accepts connections.
#![forbid(unsafe_code)]

mod access_log;
mod admission;
mod api;
mod app;
mod audit;
mod auth;
mod body_error;
mod connections;
mod cursor;
mod duration_param;
mod extract;
mod features;
mod handler;
mod host_control;
mod idempotency;
mod json;
mod keys;
mod links;
mod list_detail;
mod listener;
mod login_attempts;
mod login_cookie;
mod mcp;
mod metrics;
mod openapi;
mod operation;
mod origin_check;
mod page;
mod problem;
mod request_info;
mod route;
mod scope;
mod series;
mod settings;
mod sse;
mod ui;

use std::sync::Arc;

use axum::Router;
use toolhub_agent::AgentService;
use toolhub_core::{ToolHub, backend::Backend};

pub use host_control::{
    Backup, ConfigProblem, ConfigSource, ConfigValue, HostControl, HostControlError, NamedToolset, ReloadReport,
    ToolChangeError,
};
pub use keys::{KeyError, KeyRing, NewKey};
pub use listener::{BoundServer, ServeError};
pub use scope::{Scope, UnknownScope};
pub use settings::{Auth, BuildInfo, KeySetting, Limits, McpApproval, McpMode, McpSettings, Settings};

use app::App;

/// A configured server that is not bound yet.
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
    /// A server for a hub. `store` must be the hub's own: keys and the audit log are stored there.
    pub fn new(hub: ToolHub, store: Arc<dyn Backend>, settings: Settings) -> Self {
        Self { app: App::new(hub, store, None, settings) }
    }

    /// Like [`new`](Self::new), with the host program that provides its config, reloads it and makes backups.
    pub fn with_host_control(
        hub: ToolHub,
        store: Arc<dyn Backend>,
        settings: Settings,
        host_control: Arc<dyn HostControl>,
    ) -> Self {
        api::answer_other_nodes(&hub, &host_control);
        Self { app: App::new(hub, store, Some(host_control), settings) }
    }

    /// Adds the agents that messages are sent to. Without them, routes that need an agent answer with a problem.
    pub fn agents(self, agents: AgentService) -> Self {
        self.app.set_agents(agents);
        self
    }

    /// The router of all routes, for embedding in another server: without a socket, connection limits and timeouts.
    pub fn router(&self) -> Router {
        self.app.start_series();
        let (app, routes) = (self.app.clone(), api::router(&self.app));
        let serve = tower::service_fn(move |request| {
            let response = listener::answer(&app, &routes, request, None);
            async move { Ok::<_, std::convert::Infallible>(response.await) }
        });
        Router::new().fallback_service(serve)
    }

    /// A handle that replaces the keys of the config after a reload.
    #[must_use]
    pub fn key_ring(&self) -> KeyRing {
        KeyRing::new(self.app.keys().clone())
    }

    /// The OpenAPI document of the API.
    #[must_use]
    pub fn openapi() -> serde_json::Value {
        api::document().clone()
    }

    /// Binds the address of the settings.
    ///
    /// # Errors
    /// When the address is in use or not permitted, when it is not loopback and keys or allowed hosts are missing, or
    /// when the keys cannot be read.
    pub async fn bind(self) -> Result<BoundServer, ServeError> {
        let router = api::router(&self.app);
        listener::bind(self.app, router).await
    }
}
