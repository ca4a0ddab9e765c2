//! The config of the program around the server: shown without its secrets, and read again.

use std::sync::Arc;

use axum::{extract::State, http::Method};
use serde::Serialize;
use serde_json::Value;

use crate::{
    app::App,
    json::Json,
    problem::{Answer, Code, Problem},
    route::Route,
    scope::{Access, Scope},
    steward::{ConfigProblem, Reloaded, Steward, StewardError},
};

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        Route::new(Method::GET, "/api/v1/config", admin, "system", show)
            .says("The config as it holds now; secrets are masked")
            .answers::<Value>(200, "The config")
            .problems(&[Code::NOT_FOUND]),
        Route::new(Method::POST, "/api/v1/reload", admin, "system", reload)
            .audited("config.reload")
            .says("Read the config again and apply what changed; a bad one changes nothing")
            .answers::<Reloaded>(200, "What changed")
            .problems(&[Code::NOT_FOUND, Code::CONFIG_INVALID, Code::NOT_DONE]),
    ]
}

/// The program around the server. A library that is only routed to may have none.
pub(super) fn steward(app: &App) -> Answer<&Arc<dyn Steward>> {
    let alone = "no program stands around this server that has a config and a store of its own";
    app.steward().ok_or_else(|| Problem::new(Code::NOT_FOUND, alone))
}

/// What a steward's refusal is over HTTP.
pub(super) fn refused(error: StewardError) -> Problem {
    let words = error.to_string();
    match error {
        StewardError::Config(problems) => Problem::new(Code::CONFIG_INVALID, words)
            .hint("nothing was changed; correct the file and reload again, or see `toolhub config check`")
            .with("errors", problems.into_iter().map(Told::from).collect::<Vec<_>>()),
        StewardError::Unsupported(_) => Problem::new(Code::NOT_FOUND, words),
        StewardError::Failed(_) => Problem::new(Code::NOT_DONE, words),
    }
}

/// One problem of a config, as a member of `errors`.
#[derive(Debug, Serialize)]
struct Told {
    pointer: String,
    detail: String,
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl From<ConfigProblem> for Told {
    fn from(ConfigProblem { place, key, detail, hint }: ConfigProblem) -> Self {
        // A key is a way through tables, and so is a pointer.
        let ways = key.split('.').filter(|part| !part.is_empty());
        let pointer = ways.map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect();
        Self { pointer, detail, place, hint }
    }
}

async fn show(State(app): State<App>) -> Answer<Json<Value>> {
    Ok(Json(steward(&app)?.config()))
}

async fn reload(State(app): State<App>) -> Answer<Json<Reloaded>> {
    steward(&app)?.reload().await.map(Json).map_err(refused)
}
