//! Whether the server lives, whether it is ready, and how it does in numbers.

use std::time::Duration;

use axum::{
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{
    backend::{Partition, PartitionKind, RowKey, Table},
    ids::Tenant,
};

use crate::{
    app::App,
    extract::{MaybePrincipal, Query},
    metrics::{self, Sources},
    problem::{Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

/// How long the store may take to say that it is there.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    let asks = |path| {
        Route::new(Method::GET, path, Access::Open, "health", readyz)
            .response(200, "text/plain", "It is; with `verbose` what was looked at")
            .response(503, "text/plain", "It is not, or not any more")
    };
    vec![
        Route::new(Method::GET, "/livez", Access::Open, "health", livez).summary("Whether the process lives").response(
            200,
            "text/plain",
            "It does",
        ),
        asks("/readyz").summary("Whether requests should be sent here"),
        asks("/healthz").summary("The same, under another usual name"),
        Route::new(Method::GET, "/metrics", Access::Needs(Scope::ToolsRead), "health", metrics_page)
            .summary("Numbers for Prometheus")
            .response(200, "text/plain", "Metrics, as text")
            .problems(&[Code::NOT_FOUND]),
    ]
}

/// How much to say.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadyQuery {
    /// Say what was looked at. With keys, only to whoever has one.
    verbose: Option<String>,
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(
    State(app): State<App>,
    MaybePrincipal(guest): MaybePrincipal,
    Query(ReadyQuery { verbose }): Query<ReadyQuery>,
) -> Response {
    let checks = [("door", !app.stopping().is_cancelled()), ("store", is_store_ready(&app).await)];
    let ready = checks.iter().all(|(_, good)| *good);
    let mut text = String::new();
    if verbose.is_some() && guest.is_some() {
        for (name, good) in checks {
            text += &format!("[{}]{name} {}\n", if good { '+' } else { '-' }, if good { "ok" } else { "failed" });
        }
        // A model that does not answer stands in nobody's way but its agents'.
        for (model, wrong) in app.agents().meters().snapshot().last_errors {
            text += &match wrong.as_str() {
                "" => format!("[+]model {model} ok\n"),
                wrong => format!("[!]model {model} degraded: {wrong} when it was asked last\n"),
            };
        }
    }
    text += if ready { "ok\n" } else { "not ready\n" };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

async fn is_store_ready(app: &App) -> bool {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes };
    let keys = [RowKey { partition, table: Table::Nodes, id: "ready".into() }];
    let asked = app.store().load(&keys, app.now());
    tokio::time::timeout(STORE_TIMEOUT, asked).await.is_ok_and(|answer| answer.is_ok())
}

async fn metrics_page(State(app): State<App>) -> Result<Response, Problem> {
    if !app.settings().metrics {
        return Err(Problem::new(Code::NOT_FOUND, "metrics are turned off in the settings"));
    }
    let media = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let sources = Sources {
        hub: app.hub(),
        agents: app.agents(),
        meters: app.meters(),
        build: &app.settings().build,
        started: app.started(),
        stopping: app.stopping(),
    };
    Ok((media, metrics::render(&sources).await).into_response())
}
