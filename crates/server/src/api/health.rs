//! Liveness, readiness, and the metrics page.

use std::{collections::BTreeSet, time::Duration};

use axum::{
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{
    NodeState, SourceConnection,
    backend::{Partition, PartitionKind, RowKey, ServersReport, Table},
    clock::SystemClock,
    ids::Tenant,
    status::Language,
};

use crate::{
    app::App,
    extract::{MaybePrincipal, Query},
    metrics::{self, Sources},
    problem::{Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

/// Timeout of the store in a readiness check.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    let ready_route = |path| {
        Route::new(Method::GET, path, Access::Open, "health", readyz)
            .response(200, "text/plain", "Ready; with `verbose`, one line per check")
            .response(503, "text/plain", "Not ready, or shutting down")
            .health_check()
    };
    vec![
        Route::new(Method::GET, "/livez", Access::Open, "health", livez)
            .summary("Liveness of the process")
            .response(200, "text/plain", "The process is alive")
            .health_check(),
        ready_route("/readyz").summary("Whether requests should be sent to this server"),
        ready_route("/healthz").summary("Alias of `/readyz`"),
        Route::new(Method::GET, "/metrics", Access::Needs(Scope::ToolsRead), "health", metrics_page)
            .summary("Metrics for Prometheus")
            .response(200, "text/plain", "Metrics, as text")
            .problems(&[Code::NOT_FOUND]),
    ]
}

/// The level of detail.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadyQuery {
    /// List the checks. With keys, only for authenticated clients.
    verbose: Option<String>,
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(
    State(app): State<App>,
    MaybePrincipal(principal): MaybePrincipal,
    Query(ReadyQuery { verbose }): Query<ReadyQuery>,
) -> Response {
    let (store_errors, store_refusals) = write_errors(&app);
    let is_readable = is_store_readable(&app).await;
    // All nodes of a shared store lose it together; a balancer that took them all out of service would not help.
    let is_away = !is_readable && !app.store().is_exclusive();
    let is_store_ready = store_errors.is_empty() && (is_readable || is_away);
    let checks = [("listener", !app.stopping().is_cancelled()), ("store", is_store_ready)];
    let ready = checks.iter().all(|(_, passed)| *passed);
    let mut text = String::new();
    if verbose.is_some() && principal.is_some() {
        for (name, passed) in checks {
            text += &format!("[{}]{name} {}\n", if passed { '+' } else { '-' }, if passed { "ok" } else { "failed" });
        }
        if is_away {
            text +=
                "[!]store degraded: it does not answer; only plain read-only calls, statuses and rate limits go on\n";
        }
        for refusal in store_refusals {
            text += &format!("[!]store degraded: refuses writes: {refusal}\n");
        }
        for error in store_errors {
            text += &format!("[-]store cannot write: {error}\n");
        }
        // Backups of Redis are its own.
        let remedy = if app.store().name() == "redis" { "" } else { "; restore the last backup: toolhub restore FILE" };
        text += &describe_servers(&app);
        text += &describe_nodes(&app).await;
        if has_no_common_secret(&app) {
            text += "[!]store degraded: nodes cannot read each other's secrets and forms; set `store.redis.seal_secret` on each\n";
        }
        for damage in app.store_damage() {
            text += &format!("[!]store degraded: {damage}{remedy}\n");
        }
        for warning in app.store_warnings() {
            text += &format!("[!]store warning: {warning}\n");
        }
        // Calls go on in the time from before the jump. A hub on the clock of its store does not notice it.
        if app.store().clock().is_none()
            && let Some(jump) = SystemClock.jump()
        {
            let seconds = jump.millis / 1000;
            text += &format!(
                "[!]clock jumped by {seconds} s; the time from before goes on until {} or `toolhub clock accept`\n",
                jump.accepted_at
            );
        }
        // The tools of a server that is not connected are withheld; all others work.
        for source in app.hub().sources() {
            let status = source.info().status;
            let (name, connection) = (&status.name, status.text(Language::English));
            text += &match status.connection {
                SourceConnection::Connected => format!("[+]mcp server {name} ok\n"),
                SourceConnection::Disabled => format!("[+]mcp server {name} disabled\n"),
                SourceConnection::Connecting | SourceConnection::Disconnected => {
                    format!("[!]mcp server {name} degraded: {connection}\n")
                }
            };
        }
        // A failing model affects only its own agents, so it does not make the server unready.
        for (model, error) in app.agents().meters().snapshot().last_errors {
            text += &match error.as_str() {
                "" => format!("[+]model {model} ok\n"),
                error => format!("[!]model {model} degraded: {error} at the last request\n"),
            };
        }
    }
    text += if ready { "ok\n" } else { "not ready\n" };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

/// Why stores cannot write, and why those on servers refused the last write. The latter concerns all nodes, so none is unready.
fn write_errors(app: &App) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut refusals) = (app.hub().store_errors(), app.hub().store_refusals());
    if let Some(error) = app.store().write_error() {
        let known = if app.store().servers().is_some() { &mut refusals } else { &mut errors };
        // The server's store is usually the hub's.
        if !known.contains(&error) {
            known.push(error);
        }
    }
    (errors, refusals)
}

/// The servers of the store, if it has any, as of its last look at them.
fn describe_servers(app: &App) -> String {
    let Some(report) = app.hub().store_servers() else { return String::new() };
    let mut text = String::new();
    for server in &report.servers {
        text += &format!("[{}]store server {server}\n", if server.is_primary { '+' } else { '!' });
    }
    let ServersReport { clock_difference, notification_lag, notification_gaps, .. } = report;
    text += &format!("[+]store notifications: {notification_lag} not received yet, {notification_gaps} times lost\n");
    text += &format!("[+]store clock: {clock_difference:+.3} s from that of this machine\n");
    text
}

/// The nodes of a store that may have several.
async fn describe_nodes(app: &App) -> String {
    if app.hub().has_exclusive_store() {
        return String::new();
    }
    let Ok(Ok(nodes)) = tokio::time::timeout(STORE_TIMEOUT, app.hub().nodes()).await else {
        return "[!]nodes unknown: the store does not answer\n".into();
    };
    let (alive, dead): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.state == NodeState::Alive);
    let configs: BTreeSet<_> = alive.iter().filter_map(|node| node.config_digest.as_ref()).collect();
    let mut text = format!("[+]nodes {} alive\n", alive.len());
    text += &match alive.iter().find(|node| node.is_maintainer) {
        Some(node) => format!("[+]maintenance by node {}\n", node.name),
        None => "[!]maintenance degraded: no node holds its lease; one takes it in a moment\n".into(),
    };
    let readable = alive.iter().find(|node| node.is_self).map_or(u32::MAX, |node| node.layouts.read);
    for node in alive.iter().filter(|node| node.layouts.written > readable) {
        text += &format!(
            "[!]node {} degraded: it writes records that this version cannot read; update this one\n",
            node.name
        );
    }
    for node in dead {
        text += &format!("[!]node {} dead\n", node.name);
    }
    if configs.len() > 1 {
        text += "[!]nodes degraded: they have different configs; see `toolhub nodes`\n";
    }
    text
}

/// Whether other nodes may use the store, and nothing lets them open what this one has sealed.
fn has_no_common_secret(app: &App) -> bool {
    !app.store().is_exclusive() && app.store().seal_key().is_none()
}

async fn is_store_readable(app: &App) -> bool {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes };
    let keys = [RowKey { partition, table: Table::Nodes, id: "ready".into() }];
    let load = app.store().load(&keys, app.now());
    tokio::time::timeout(STORE_TIMEOUT, load).await.is_ok_and(|result| result.is_ok())
}

async fn metrics_page(State(app): State<App>) -> Result<Response, Problem> {
    if !app.settings().metrics {
        return Err(Problem::new(Code::NOT_FOUND, "metrics are disabled in the settings"));
    }
    let media = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let sources = Sources {
        mcp: app.mcp(),
        hub: app.hub(),
        is_store_up: is_store_readable(&app).await && app.store().write_error().is_none(),
        agents: app.agents(),
        meters: app.meters(),
        build: &app.settings().build,
        started: app.started(),
        stopping: app.stopping(),
    };
    Ok((media, metrics::render(&sources).await).into_response())
}
