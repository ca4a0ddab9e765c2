//! The list of all routes, by subject, and the router and OpenAPI document made of it.

mod agents;
mod alerts;
mod approval_page;
mod approvals;
mod artifacts;
mod audit;
mod backups;
mod batches;
mod calls;
mod config;
mod defined_agents;
mod docs;
mod events;
mod explain;
mod exports;
mod grants;
mod graph;
mod health;
mod keys;
mod login;
mod mcp;
mod mcp_servers;
mod messages;
mod new_definition;
mod nodes;
mod problems;
mod refusals;
mod reported_error;
mod reports;
mod results;
mod runs;
mod series;
mod snapshots;
mod state;
mod stats;
mod system;
mod threads;
mod tools;
mod toolsets;
mod ui;

use std::sync::OnceLock;

use axum::{
    Router,
    extract::{Request, State},
    response::Response,
};
pub(crate) use nodes::answer_other_nodes;
use serde_json::Value;

use crate::{
    app::App,
    auth, openapi,
    problem::{Code, Problem},
    route::{self, Route},
};

/// Every route of the server.
fn routes() -> Vec<Route> {
    [
        tools::routes(),
        toolsets::routes(),
        mcp_servers::routes(),
        mcp::routes(),
        exports::routes(),
        calls::routes(),
        results::routes(),
        refusals::routes(),
        batches::routes(),
        messages::routes(),
        runs::routes(),
        approvals::routes(),
        approval_page::routes(),
        grants::routes(),
        agents::routes(),
        defined_agents::routes(),
        events::routes(),
        explain::routes(),
        stats::routes(),
        graph::routes(),
        series::routes(),
        reports::routes(),
        threads::routes(),
        snapshots::routes(),
        state::routes(),
        artifacts::routes(),
        config::routes(),
        backups::routes(),
        problems::routes(),
        docs::routes(),
        ui::routes(),
        login::routes(),
        system::routes(),
        health::routes(),
        keys::routes(),
        nodes::routes(),
        alerts::routes(),
        audit::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The router of all routes, with problem responses for unknown paths and methods.
pub(crate) fn router(app: &App) -> Router {
    let routes = route::router(routes(), app);
    routes.fallback(not_found).method_not_allowed_fallback(method_not_allowed).with_state(app.clone())
}

/// The OpenAPI document of all routes. It never changes, so it is built once.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| openapi::document(&routes(), env!("CARGO_PKG_VERSION")))
}

/// Fallback for a path that no route has.
async fn not_found(State(app): State<App>, request: Request) -> Response {
    let problem = Problem::new(Code::NOT_FOUND, format!("no route matches `{}`", request.uri().path()))
        .hint("GET /openapi.json lists every path");
    auth::respond_unrouted(&app, &request, problem)
}

/// Fallback for a known path with another method.
async fn method_not_allowed(State(app): State<App>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    auth::respond_unrouted(
        &app,
        &request,
        Problem::new(Code::METHOD_NOT_ALLOWED, format!("`{path}` does not take {method}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::{Access, Scope};
    use axum::http::Method;

    #[test]
    fn every_route_that_changes_what_others_rely_on_is_audited() {
        let changes =
            |scope| matches!(scope, Scope::Admin | Scope::ToolsWrite | Scope::StateWrite | Scope::ApprovalsWrite);
        for route in routes() {
            let Access::Needs(scope) = route.access else { continue };
            if route.method != Method::GET && changes(scope) {
                assert!(route.audited.is_some(), "{} {} is not audited", route.method, route.path);
            }
        }
    }
}
