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
    backend::{Key, Partition, Place, Table},
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
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    let asks = |path| {
        Route::new(Method::GET, path, Access::Open, "health", readyz)
            .answers_as(200, "text/plain", "It is; with `verbose` what was looked at")
            .answers_as(503, "text/plain", "It is not, or not any more")
    };
    vec![
        Route::new(Method::GET, "/livez", Access::Open, "health", livez).says("Whether the process lives").answers_as(
            200,
            "text/plain",
            "It does",
        ),
        asks("/readyz").says("Whether requests should be sent here"),
        asks("/healthz").says("The same, under another usual name"),
        Route::new(Method::GET, "/metrics", Access::Needs(Scope::ToolsRead), "health", numbers)
            .says("Numbers for Prometheus")
            .answers_as(200, "text/plain", "Metrics, as text")
            .problems(&[Code::NOT_FOUND]),
    ]
}

/// How much to say.
#[derive(Debug, Deserialize, JsonSchema)]
struct Verbose {
    /// Say what was looked at. With keys, only to whoever has one.
    verbose: Option<String>,
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(
    State(app): State<App>,
    MaybePrincipal(guest): MaybePrincipal,
    Query(Verbose { verbose }): Query<Verbose>,
) -> Response {
    let checks = [("door", !app.stopping().is_cancelled()), ("store", store_answers(&app).await)];
    let ready = checks.iter().all(|(_, good)| *good);
    let mut text = String::new();
    if verbose.is_some() && guest.is_some() {
        for (name, good) in checks {
            text += &format!("[{}]{name} {}\n", if good { '+' } else { '-' }, if good { "ok" } else { "failed" });
        }
        // A model that does not answer stands in nobody's way but its agents'.
        for (model, wrong) in app.agents().meters().read().last {
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

async fn store_answers(app: &App) -> bool {
    let partition = Partition { tenant: Tenant::default(), place: Place::Nodes };
    let keys = [Key { partition, table: Table::Nodes, id: "ready".into() }];
    let asked = app.store().load(&keys, app.now());
    tokio::time::timeout(PATIENCE, asked).await.is_ok_and(|answer| answer.is_ok())
}

async fn numbers(State(app): State<App>) -> Result<Response, Problem> {
    if !app.settings().metrics {
        return Err(Problem::new(Code::NOT_FOUND, "metrics are turned off in the settings"));
    }
    let media = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let sources = Sources {
        hub: app.hub(),
        agents: app.agents(),
        meters: app.meters(),
        build: &app.settings().build,
        begun: app.begun(),
        stopping: app.stopping(),
    };
    Ok((media, metrics::page(&sources).await).into_response())
}
