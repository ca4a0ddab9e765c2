//! The config of the program around the server: shown without its secrets, and read again.

use std::sync::Arc;

use axum::{extract::State, http::Method};
use serde::Serialize;
use serde_json::Value;

use crate::{
    app::App,
    host_control::{ConfigProblem, HostControl, HostControlError, Reloaded},
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        Route::new(Method::GET, "/api/v1/config", admin, "system", show)
            .summary("The config as it holds now; secrets are masked")
            .json_response::<Value>(200, "The config")
            .problems(&[Code::NOT_FOUND]),
        Route::new(Method::POST, "/api/v1/reload", admin, "system", reload)
            .audited("config.reload")
            .summary("Read the config again and apply what changed; a bad one changes nothing")
            .json_response::<Reloaded>(200, "What changed")
            .problems(&[Code::NOT_FOUND, Code::CONFIG_INVALID, Code::NOT_DONE]),
    ]
}

/// The program around the server. A library that is only routed to may have none.
pub(super) fn host_control(app: &App) -> ApiResult<&Arc<dyn HostControl>> {
    let alone = "no program stands around this server that has a config and a store of its own";
    app.host_control().ok_or_else(|| Problem::new(Code::NOT_FOUND, alone))
}

/// What a steward's refusal is over HTTP.
pub(super) fn host_problem(error: HostControlError) -> Problem {
    let words = error.to_string();
    match error {
        HostControlError::Config(problems) => Problem::new(Code::CONFIG_INVALID, words)
            .hint("nothing was changed; correct the file and reload again, or see `toolhub config check`")
            .with("errors", problems.into_iter().map(ConfigErrorItem::from).collect::<Vec<_>>()),
        HostControlError::Unsupported(_) => Problem::new(Code::NOT_FOUND, words),
        HostControlError::Failed(_) => Problem::new(Code::NOT_DONE, words),
    }
}

/// One problem of a config, as a member of `errors`.
#[derive(Debug, Serialize)]
struct ConfigErrorItem {
    pointer: String,
    detail: String,
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl From<ConfigProblem> for ConfigErrorItem {
    fn from(ConfigProblem { location: place, key, detail, hint }: ConfigProblem) -> Self {
        // A key is a way through tables, and so is a pointer.
        let ways = key.split('.').filter(|part| !part.is_empty());
        let pointer = ways.map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect();
        Self { pointer, detail, place, hint }
    }
}

async fn show(State(app): State<App>) -> ApiResult<Json<Value>> {
    Ok(Json(host_control(&app)?.config()))
}

async fn reload(State(app): State<App>) -> ApiResult<Json<Reloaded>> {
    host_control(&app)?.reload().await.map(Json).map_err(host_problem)
}
