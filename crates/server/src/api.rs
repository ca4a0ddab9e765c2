//! The routes, by subject. This file is the list of them.

mod agents;
mod approvals;
mod artifacts;
mod audit;
mod backups;
mod batches;
mod calls;
mod config;
mod docs;
mod events;
mod explain;
mod exports;
mod grants;
mod health;
mod keys;
mod messages;
mod problems;
mod reports;
mod results;
mod runs;
mod snapshots;
mod state;
mod stats;
mod system;
mod threads;
mod tools;
mod toolsets;

use axum::{
    extract::{Request, State},
    response::Response,
};

use crate::{
    app::App,
    auth,
    problem::{Code, Problem},
    route::Route,
};

/// Every route of the server.
pub(crate) fn routes() -> Vec<Route> {
    [
        tools::routes(),
        toolsets::routes(),
        exports::routes(),
        calls::routes(),
        results::routes(),
        batches::routes(),
        messages::routes(),
        runs::routes(),
        approvals::routes(),
        grants::routes(),
        agents::routes(),
        events::routes(),
        explain::routes(),
        stats::routes(),
        reports::routes(),
        threads::routes(),
        snapshots::routes(),
        state::routes(),
        artifacts::routes(),
        config::routes(),
        backups::routes(),
        problems::routes(),
        docs::routes(),
        system::routes(),
        health::routes(),
        keys::routes(),
        audit::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// No route has this address.
pub(crate) async fn nothing_here(State(app): State<App>, request: Request) -> Response {
    let problem = Problem::new(Code::NOT_FOUND, format!("there is nothing at `{}`", request.uri().path()))
        .hint("GET /openapi.json lists every address");
    auth::outside(&app, &request, problem)
}

/// The address is known, the method is not.
pub(crate) async fn not_that_method(State(app): State<App>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    auth::outside(&app, &request, Problem::new(Code::METHOD_NOT_ALLOWED, format!("`{path}` does not take {method}")))
}
