//! The server itself: what it is, and what it can do.

use axum::{Json, extract::State, http::Method};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    app::App,
    openapi,
    route::{Access, Route},
    scope::Scope,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/openapi.json", Access::Open, "system", document)
            .says("This description")
            .answers::<Value>(200, "OpenAPI 3.1"),
        Route::new(Method::GET, "/api/v1/info", Access::Needs(Scope::ToolsRead), "system", info)
            .says("What this server is")
            .answers::<Info>(200, "Its version and what it has"),
    ]
}

/// What this server is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Info {
    /// Its version.
    version: &'static str,
    /// How many tools it knows.
    tools: usize,
}

async fn document() -> Json<Value> {
    Json(openapi::document(&super::routes(), env!("CARGO_PKG_VERSION")))
}

async fn info(State(app): State<App>) -> Json<Info> {
    Json(Info { version: env!("CARGO_PKG_VERSION"), tools: app.hub().tools().len() })
}
