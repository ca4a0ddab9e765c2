//! The server itself: what it is, and what it can do.

use std::sync::OnceLock;

use axum::{
    body::Bytes,
    extract::State,
    http::{Method, header},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    app::App,
    json::Json,
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/openapi.json", Access::Open, "system", document)
            .summary("This description")
            .json_response::<Value>(200, "OpenAPI 3.1"),
        Route::new(Method::GET, "/api/v1/info", Access::Needs(Scope::ToolsRead), "system", info)
            .summary("What this server is, and who is asking")
            .json_response::<Info>(200, "Its version, what it has, and what the key may do"),
    ]
}

/// What this server is, and who is asking.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Info {
    /// Its version.
    version: &'static str,
    /// The config file it runs on, null where there is none; told to those who may do everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_file: Option<Option<String>>,
    /// How many tools it knows.
    tools: usize,
    /// How many calls run on tasks of their own.
    running: usize,
    /// How many calls wait for their turn.
    queued: usize,
    /// How many blocking functions run on although nobody waits for them.
    stuck: usize,
    /// Whose threads and states this key sees.
    tenant: String,
    /// The name of the key.
    caller: String,
    /// What the key may do.
    scopes: Vec<Scope>,
}

/// The same for everybody and for as long as the process lives, so it is made once.
async fn document() -> impl IntoResponse {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let made = || super::document().to_string().into();
    ([(header::CONTENT_TYPE, "application/json")], TEXT.get_or_init(made).clone())
}

async fn info(State(app): State<App>, who: Principal) -> Json<Info> {
    let hub = app.hub();
    Json(Info {
        version: env!("CARGO_PKG_VERSION"),
        config_file: who.has_scope(Scope::Admin).then(|| {
            let file = app.host_control().and_then(|steward| steward.config_file());
            file.map(|file| file.display().to_string())
        }),
        tools: hub.tools().len(),
        running: hub.running_calls(),
        queued: hub.queued_calls(),
        stuck: hub.stuck_calls(),
        tenant: who.tenant.to_string(),
        caller: who.caller.to_string(),
        scopes: Scope::ALL.into_iter().filter(|scope| who.has_scope(*scope)).collect(),
    })
}
