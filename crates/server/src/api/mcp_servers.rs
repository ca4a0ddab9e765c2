//! MCP servers: listed, looked up, restarted, and changed definitions of their tools approved. `change` adds and removes them.
//!
//! In: names of tool sources of the hub. Out: what they report about themselves; the routes know nothing of MCP.

mod change;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use toolhub_core::{
    DefinitionApproval, DefinitionApprovalError, DefinitionChange, ErrorKind, SourceConnection, SourceInfo,
    SourceStatus, SourceToolState, ToolSource, suggest,
};

use super::threads::truncate;
use crate::{
    app::App,
    extract::{MaybeBody, Params, Query},
    json::Json,
    page::{self, List, ListQuery, RequestUri},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let (read, write) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsWrite));
    let unknown = &[Code::MCP_SERVER_NOT_FOUND];
    let mut routes = vec![
        Route::new(Method::GET, "/api/v1/mcp-servers", read, "mcp servers", list)
            .summary("MCP servers, by name")
            .json_response::<List<ServerSummary>>(200, "A page of servers"),
        Route::new(Method::GET, "/api/v1/mcp-servers/{name}", read, "mcp servers", get)
            .summary("One MCP server")
            .json_response::<SourceInfo>(200, "Its connection and its tools")
            .problems(unknown),
        Route::new(Method::POST, "/api/v1/mcp-servers/{name}/restart", write, "mcp servers", restart)
            .audited("mcp_server.restart")
            .summary("Close the connections of an MCP server, and connect again at once")
            .json_response::<ServerSummary>(202, "The server as it was when the request was accepted")
            .problems(&[Code::MCP_SERVER_NOT_FOUND, Code::CONFLICT]),
        // What a server writes for one tenant must not be read by another, so the log is for administrators.
        Route::new(Method::GET, "/api/v1/mcp-servers/{name}/logs", Access::Needs(Scope::Admin), "mcp servers", logs)
            .summary("The last log lines of an MCP server, of the connections of all tenants")
            .json_response::<LogLines>(200, "The lines, oldest first")
            .problems(unknown),
        Route::new(Method::GET, "/api/v1/mcp-servers/{name}/changes", read, "mcp servers", changes)
            .summary("Definitions of tools that wait for approval, with their differences")
            .json_response::<PendingChanges>(200, "The definitions, by name")
            .problems(unknown),
        Route::new(
            Method::POST,
            "/api/v1/mcp-servers/{name}/approve",
            Access::Needs(Scope::Admin),
            "mcp servers",
            approve,
        )
        .audited("mcp_server.approve")
        .summary("Approve definitions of tools that wait for approval")
        .json_response::<Approved>(200, "The approved tools can be called")
        .problems(&[Code::MCP_SERVER_NOT_FOUND, Code::CONFLICT])
        .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ];
    routes.extend(change::routes());
    routes
}

/// A server's name in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ServerPath {
    /// The server.
    name: String,
}

/// An MCP server in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "McpServerSummary")]
struct ServerSummary {
    #[serde(flatten)]
    status: SourceStatus,
    /// How many tools it offers.
    tool_counts: ToolCounts,
}

/// The tools of an MCP server, counted by state.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "McpToolCounts")]
struct ToolCounts {
    /// Tools that are registered.
    registered: usize,
    /// Tools whose definition waits for the approval of a person.
    pending_approval: usize,
    /// Tools that cannot be registered.
    quarantined: usize,
}

impl From<&SourceInfo> for ServerSummary {
    fn from(info: &SourceInfo) -> Self {
        let count = |state| info.tools.iter().filter(|tool| tool.state == state).count();
        let tool_counts = ToolCounts {
            registered: count(SourceToolState::Registered),
            pending_approval: count(SourceToolState::PendingApproval),
            quarantined: count(SourceToolState::Quarantined),
        };
        Self { status: info.status.clone(), tool_counts }
    }
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>, uri: RequestUri) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "mcp-servers")?;
    let sources = app.hub().sources();
    let following = sources.iter().filter(|source| after.as_deref().is_none_or(|after| source.name() > after));
    let mut items: Vec<ServerSummary> =
        following.take(query.limit.plus_one()).map(|source| ServerSummary::from(&source.info())).collect();
    let next = query.limit.truncate(&mut items).map(|last| last.status.name.clone());
    Ok(uri.list_response("mcp-servers", items, next))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(ServerPath { name }): Params<ServerPath>,
) -> ApiResult<Json<SourceInfo>> {
    let mut info = find(&app, &name)?.info();
    if principal.has_scope(Scope::Admin) {
        info.details.append(&mut info.admin_details);
    }
    Ok(Json(info))
}

async fn restart(
    State(app): State<App>,
    Params(ServerPath { name }): Params<ServerPath>,
) -> ApiResult<impl IntoResponse> {
    let source = find(&app, &name)?;
    let info = source.info();
    if info.status.connection == SourceConnection::Disabled {
        return Err(Problem::new(Code::CONFLICT, format!("the MCP server `{name}` is disabled"))
            .hint("set `enabled = true` in its section of the config, and POST /api/v1/reload"));
    }
    source.restart();
    Ok((StatusCode::ACCEPTED, Json(ServerSummary::from(&info))))
}

/// Which log lines to return.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogsQuery {
    /// The largest number of lines; by default all that are kept, at most 1000.
    limit: Option<u16>,
}

/// The last log lines of an MCP server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "McpServerLog")]
struct LogLines {
    /// The lines, oldest first.
    items: Vec<String>,
}

async fn logs(
    State(app): State<App>,
    Params(ServerPath { name }): Params<ServerPath>,
    Query(LogsQuery { limit }): Query<LogsQuery>,
) -> ApiResult<Json<LogLines>> {
    let mut items = find(&app, &name)?.log_lines();
    if let Some(limit) = limit {
        items.drain(..items.len().saturating_sub(limit.into()));
    }
    Ok(Json(LogLines { items }))
}

/// Definitions that wait for approval.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "McpPendingChanges")]
struct PendingChanges {
    /// The definitions, by name.
    items: Vec<DefinitionChange>,
}

async fn changes(
    State(app): State<App>,
    Params(ServerPath { name }): Params<ServerPath>,
) -> ApiResult<Json<PendingChanges>> {
    let mut items = find(&app, &name)?.pending_changes();
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(PendingChanges { items }))
}

/// Which definitions to approve.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "McpApproval")]
struct ApproveBody {
    /// The tools, by their names at the server. Without this and `digests`, all that wait.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Vec<String>", skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
    /// Tools with the digests of their definitions, as `changes` shows them: a definition that has changed again is not approved.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "BTreeMap<String, String>", skip_serializing_if = "Option::is_none")]
    digests: Option<BTreeMap<String, String>>,
}

/// A member that is there is not null.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// What was approved.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "McpApproved")]
struct Approved {
    /// The approved tools, by their names at the server.
    approved: Vec<String>,
}

async fn approve(
    State(app): State<App>,
    Params(ServerPath { name }): Params<ServerPath>,
    MaybeBody(body): MaybeBody<ApproveBody>,
) -> ApiResult<Json<Approved>> {
    let ApproveBody { tools, digests } = body.unwrap_or_default();
    let names_tools = tools.is_some() || digests.is_some();
    let (tools, mut digests) = (tools.unwrap_or_default(), digests.unwrap_or_default());
    if names_tools && tools.is_empty() && digests.is_empty() {
        return Err(Problem::new(Code::INVALID_REQUEST, "`tools` and `digests` name no tool")
            .hint("name tools, or leave both out to approve all that wait"));
    }
    let approval = |name: String, digest| DefinitionApproval { name, digest };
    let mut approvals: Vec<_> = tools
        .into_iter()
        .map(|name| {
            let digest = digests.remove(&name);
            approval(name, digest)
        })
        .collect();
    approvals.extend(digests.into_iter().map(|(name, digest)| approval(name, Some(digest))));
    let approved = find(&app, &name)?.approve(&approvals).await.map_err(|error| match error {
        DefinitionApprovalError::Call(error) => Problem::from(error),
        DefinitionApprovalError::Changed(_) => {
            Problem::new(Code::CONFLICT, error.to_string()).hint("GET /api/v1/mcp-servers/{name}/changes shows it")
        }
    })?;
    Ok(Json(Approved { approved }))
}

/// The server of this name.
fn find(app: &App, name: &str) -> ApiResult<Arc<dyn ToolSource>> {
    app.hub().source(name).ok_or_else(|| {
        let sources = app.hub().sources();
        let closest = suggest::closest(name, sources.iter().map(|source| source.name()), 3);
        let problem = Problem::new(Code::MCP_SERVER_NOT_FOUND, format!("no MCP server is named `{}`", truncate(name)));
        if closest.is_empty() { problem } else { problem.with("suggestions", closest) }
    })
}
