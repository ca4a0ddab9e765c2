//! The config of the host program: shown with secrets masked, and reloaded.

use std::sync::Arc;

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    app::App,
    extract::Query,
    host_control::{ConfigProblem, ConfigValue, HostControl, HostControlError, ReloadReport, run_to_end},
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        Route::new(Method::GET, "/api/v1/config", admin, "system", show)
            .summary("The effective config; secrets are masked")
            .json_response::<ConfigView>(200, "The config; with `origins=true` every value with its key and origin")
            .problems(&[Code::NOT_FOUND]),
        Route::new(Method::POST, "/api/v1/reload", admin, "system", reload)
            .audited("config.reload")
            .summary("Reload the config and apply what changed; an invalid one changes nothing")
            .json_response::<ReloadReport>(200, "What changed")
            .problems(&[Code::NOT_FOUND, Code::CONFIG_INVALID, Code::NOT_DONE]),
    ]
}

/// The host program. A server that is embedded as a library may have none.
pub(super) fn host_control(app: &App) -> ApiResult<&Arc<dyn HostControl>> {
    let detail = "this server has no host program with a config and backups";
    app.host_control().ok_or_else(|| Problem::new(Code::NOT_FOUND, detail))
}

/// The problem for an error of the host program.
pub(super) fn host_problem(error: HostControlError) -> Problem {
    let detail = error.to_string();
    match error {
        HostControlError::Config(problems) => Problem::new(Code::CONFIG_INVALID, detail)
            .hint("nothing was changed; correct the file and reload again, or see `toolhub config check`")
            .with("errors", problems.into_iter().map(ConfigErrorItem::from).collect::<Vec<_>>()),
        HostControlError::Unsupported(_) => Problem::new(Code::NOT_FOUND, detail),
        HostControlError::Failed(_) => Problem::new(Code::NOT_DONE, detail),
    }
}

/// One problem of a config, as a member of `errors`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct ConfigErrorItem {
    /// The key that is to blame, as a JSON pointer; empty if none is.
    pointer: String,
    /// What is wrong.
    detail: String,
    /// Where.
    #[serde(rename = "place")]
    location: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hint: Option<String>,
}

impl From<ConfigProblem> for ConfigErrorItem {
    fn from(ConfigProblem { location, key, detail, hint }: ConfigProblem) -> Self {
        // The parts of a dotted key are the parts of the pointer.
        let parts = key.split('.').filter(|part| !part.is_empty());
        let pointer = parts.map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect();
        Self { pointer, detail, location, hint }
    }
}

/// In which form to show the config.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConfigQuery {
    /// `true` lists every value with its key and where it comes from.
    origins: Option<bool>,
}

/// The config.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum ConfigView {
    /// Every value with its origin.
    Origins(ConfigValues),
    /// The values, nested as in the file.
    Values(Map<String, Value>),
}

/// Every value of the config.
#[derive(Debug, Serialize, JsonSchema)]
struct ConfigValues {
    /// The values, in the order of the config.
    items: Vec<ConfigValue>,
}

async fn show(State(app): State<App>, Query(query): Query<ConfigQuery>) -> ApiResult<Json<ConfigView>> {
    let host = host_control(&app)?;
    if query.origins != Some(true) {
        let values = if let Value::Object(values) = host.config() { values } else { Map::new() };
        return Ok(Json(ConfigView::Values(values)));
    }
    let unknown =
        || Problem::new(Code::NOT_FOUND, "this program does not know where the values of its config come from");
    let items = host.config_values().ok_or_else(unknown)?;
    Ok(Json(ConfigView::Origins(ConfigValues { items })))
}

async fn reload(State(app): State<App>) -> ApiResult<Json<ReloadReport>> {
    run_to_end(host_control(&app)?, |host| host.reload()).await.map(Json).map_err(host_problem)
}
