//! The routes, by subject. This file is the list of them.

mod artifacts;
mod backups;
mod config;
mod docs;
mod explain;
mod problems;
mod reports;
mod snapshots;
mod state;
mod stats;
mod system;
mod threads;
mod tools;

use axum::http::{Method, Uri};

use crate::{
    problem::{Code, Problem},
    route::Route,
};

/// Every route of the server.
pub(crate) fn routes() -> Vec<Route> {
    [
        tools::routes(),
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
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// No route has this address.
pub(crate) async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(Code::NOT_FOUND, format!("there is nothing at `{}`", uri.path()))
        .hint("GET /openapi.json lists every address")
}

/// The address is known, the method is not.
pub(crate) async fn not_that_method(method: Method, uri: Uri) -> Problem {
    Problem::new(Code::METHOD_NOT_ALLOWED, format!("`{}` does not take {method}", uri.path()))
}
