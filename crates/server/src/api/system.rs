//! The OpenAPI document, and information about the server.

use std::sync::OnceLock;

use axum::{
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, header},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use toolhub_core::clock::{ClockJump, SystemClock, Timestamp};

use crate::{
    app::App,
    features,
    json::Json,
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/openapi.json", Access::Open, "system", document)
            .summary("This OpenAPI document")
            .json_response::<Value>(200, "OpenAPI 3.1"),
        Route::new(Method::GET, "/api/v1/info", Access::Needs(Scope::ToolsRead), "system", info)
            .summary("Information about this server and the key")
            .json_response::<Info>(200, "Version, numbers, and the permissions of the key"),
        Route::new(Method::POST, "/api/v1/clock/accept", Access::Needs(Scope::Admin), "system", accept_clock)
            .audited("clock.accept")
            .summary("Follow the machine's clock although it has jumped; what is then too old expires")
            .response(204, "", "The clock is followed"),
    ]
}

/// Information about this server and the key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Info {
    /// Its version.
    version: &'static str,
    /// The config file, null if there is none; only for keys with the scope `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_file: Option<Option<String>>,
    /// Number of registered tools.
    tools: usize,
    /// Number of calls running on their own tasks.
    running: usize,
    /// Number of calls waiting in queues.
    queued: usize,
    /// Number of blocking functions that still run although their calls have ended.
    stuck: usize,
    /// A jump of the machine's clock that is not followed yet: the time from before goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_jump: Option<ClockJumpInfo>,
    /// Settings of the config that were changed by a reload and take effect only after a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    restart_pending: Vec<String>,
    /// Damaged records of the stores, if there are any. Intact ones are served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    store_damage: Vec<String>,
    /// The tenant whose threads and states this key can access.
    tenant: String,
    /// The name of the key.
    caller: String,
    /// The permissions of the key.
    scopes: Vec<Scope>,
    /// What this server has, beyond what every server has, such as `ui` for the dashboard.
    features: Vec<&'static str>,
}

/// A jump of the machine's clock.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ClockJumpInfo {
    /// How far the machine's clock is ahead, in milliseconds; negative if it is behind.
    millis: i64,
    /// When it will be followed, unless it jumps again.
    accepted_at: Timestamp,
}

/// The same for every client as long as the process lives, so it is serialized once.
async fn document() -> impl IntoResponse {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let serialize = || super::document().to_string().into();
    ([(header::CONTENT_TYPE, "application/json")], TEXT.get_or_init(serialize).clone())
}

async fn info(State(app): State<App>, principal: Principal) -> Json<Info> {
    let hub = app.hub();
    Json(Info {
        version: env!("CARGO_PKG_VERSION"),
        config_file: principal.has_scope(Scope::Admin).then(|| {
            let file = app.host_control().and_then(|host_control| host_control.config_file());
            file.map(|file| file.display().to_string())
        }),
        tools: hub.tools().len(),
        running: hub.running_calls(),
        queued: hub.queued_calls(),
        stuck: hub.stuck_calls(),
        clock_jump: SystemClock
            .jump()
            .map(|ClockJump { millis, accepted_at, .. }| ClockJumpInfo { millis, accepted_at }),
        restart_pending: app.host_control().map(|control| control.restart_pending()).unwrap_or_default(),
        store_damage: app.store_damage(),
        tenant: principal.tenant.to_string(),
        caller: principal.caller.to_string(),
        scopes: Scope::ALL.into_iter().filter(|scope| principal.has_scope(*scope)).collect(),
        features: features::of(&app),
    })
}

async fn accept_clock() -> StatusCode {
    SystemClock.accept_jump();
    StatusCode::NO_CONTENT
}
