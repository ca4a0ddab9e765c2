//! Tools: listed, looked up, and their status set by an operator.

mod change;
mod view;

use axum::{extract::State, http::Method, response::IntoResponse};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, Kind, StatusScope, ToolFilter, ToolStatusInfo, clock::Timestamp, status::ToolStatus};

use super::reported_error;
use crate::{
    app::App,
    extract::{AcceptLanguage, Body, MaybeBody, Params, Query},
    json::Json,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};
use view::ToolView;

/// How many of the threads that withhold a tool are listed.
const LISTED_THREADS: usize = 5;

pub(super) fn routes() -> Vec<Route> {
    let (read, write) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsWrite));
    let known = &[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable];
    let mut routes = vec![
        Route::new(Method::GET, "/api/v1/tools", read, "tools", list)
            .summary("Tools, by name")
            .json_response::<List<ToolView>>(200, "A page of tools")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/tools/{name}", read, "tools", get)
            .summary("One tool")
            .json_response::<ToolView>(200, "Definition, status and statistics")
            .refusals(known),
        Route::new(Method::PUT, "/api/v1/tools/{name}/status", write, "tools", set_status)
            .audited("tool.status")
            .summary("Override the status of a tool, for all threads or for one")
            .json_response::<ToolStatusInfo>(200, "The effective status")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(known),
        Route::new(Method::POST, "/api/v1/tools/{name}/reset", write, "tools", reset)
            .audited("tool.reset")
            .summary("Reset the status of a tool, for all threads")
            .json_response::<ToolStatusInfo>(200, "The effective status")
            .refusals(known),
        Route::new(Method::POST, "/api/v1/tools/{name}/disable", write, "tools", disable)
            .audited("tool.disable")
            .summary("Disable a tool for all threads, until it is enabled again")
            .json_response::<ToolStatusInfo>(200, "The effective status")
            .refusals(known),
        Route::new(Method::POST, "/api/v1/tools/{name}/enable", write, "tools", enable)
            .audited("tool.enable")
            .summary("Enable a tool that was disabled")
            .json_response::<ToolStatusInfo>(
                200,
                "The effective status; the tool may still be unavailable for another reason",
            )
            .refusals(known),
    ];
    routes.extend(change::routes());
    routes
}

/// A tool's name in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ToolPath {
    /// The tool.
    pub(super) name: String,
}

list_query! {
    /// Which tools to list.
    struct ToolsQuery {
        /// Only tools of this kind.
        kind: Option<Kind>,
        /// Only tools with this status.
        status: Option<ToolStatus>,
        /// Only tools of this toolset.
        toolset: Option<String>,
        /// Only tools with this tag.
        tag: Option<String>,
        /// Only tools with this text in their name, title or description, ignoring case.
        q: Option<String>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    AcceptLanguage(language): AcceptLanguage,
    Query(query): Query<ToolsQuery>,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "tools")?;
    let filter = ToolFilter { kind: query.kind, tag: query.tag, status: query.status };
    let toolset = super::toolsets::find_toolset(&app, query.toolset.as_deref())?;
    let mut tools = app.hub().list(&filter);
    tools.retain(|tool| toolset.contains(&tool.definition.name));
    if let Some(text) = query.q.map(|text| text.to_lowercase()) {
        tools.retain(|tool| view::matches_text(&tool.definition, &text));
    }
    tools.retain(|tool| after.as_deref().is_none_or(|after| tool.definition.name.as_str() > after));
    let statuses = app.hub().tool_statuses_with(StatusScope::Shared, &language.into()).await?;
    let withheld = app.hub().withheld_threads(&principal.tenant);
    let (mut items, mut next) = (Vec::new(), None);
    for tool in tools {
        let Ok(index) = statuses.binary_search_by(|info| info.tool_name.cmp(&tool.definition.name)) else { continue };
        if items.len() == query.limit.get() {
            next = items.last().map(|last: &ToolView| last.name().to_owned());
            break;
        }
        let view = ToolView::of(&app, &tool, &statuses[index]).with_withheld_threads(&withheld);
        items.push(view.without_status_details());
    }
    let position = |items: &[ToolView]| items.last().map(|last| last.name().to_owned()).unwrap_or_default();
    Ok(uri.bounded_list_response("tools", items, next, position))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    AcceptLanguage(language): AcceptLanguage,
    Params(ToolPath { name }): Params<ToolPath>,
) -> ApiResult<Json<ToolView>> {
    let status = app.hub().tool_status_with(&name, StatusScope::Shared, language).await?;
    let not_found = || crate::problem::Problem::new(Code::TOOL_NOT_FOUND, format!("no tool is named `{name}`"));
    let tool = app.hub().get(&name).ok_or_else(not_found)?;
    let withheld = app.hub().withheld_threads(&principal.tenant);
    let threads = app.hub().threads_withholding(&tool.definition.name, &principal.tenant, LISTED_THREADS);
    let view = ToolView::of(&app, &tool, &status).with_withheld_threads(&withheld);
    Ok(Json(view.with_withheld_in(threads).with_policy(&tool)))
}

/// A status override.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusBody {
    /// `maintenance` and `unavailable` hold until they are cleared; `failed` opens the circuit breaker; `available`
    /// clears all of these.
    status: ToolStatus,
    /// The reason.
    reason: Option<String>,
    /// When the override expires; in the future.
    until: Option<Timestamp>,
    /// Only for this thread. Default: for all threads.
    thread_id: Option<String>,
}

async fn set_status(
    State(app): State<App>,
    principal: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(body): Body<StatusBody>,
) -> ApiResult<Json<ToolStatusInfo>> {
    let StatusBody { status, reason, until, thread_id } = body;
    let now = app.hub().now();
    if let Some(until) = until.filter(|until| *until <= now) {
        return Err(reported_error::invalid(
            "/until",
            &format!("`until` is {until}, which is not in the future: it is {now}"),
        ));
    }
    let thread = match &thread_id {
        Some(id) => Some(super::threads::find(&app, &principal.tenant, id).await?.id),
        None => None,
    };
    let scope = thread.as_ref().map_or(StatusScope::Shared, |thread| StatusScope::Thread(&principal.tenant, thread));
    Ok(Json(app.hub().set_tool_status(&name, status, reason, until, scope).await?))
}

async fn reset(State(app): State<App>, Params(ToolPath { name }): Params<ToolPath>) -> ApiResult<Json<ToolStatusInfo>> {
    Ok(Json(app.hub().reset_tool_status(&name, StatusScope::Shared).await?))
}

/// Why a tool is disabled.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolDisable")]
struct DisableBody {
    /// The reason, for people.
    reason: Option<String>,
}

async fn disable(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
    MaybeBody(body): MaybeBody<DisableBody>,
) -> ApiResult<Json<ToolStatusInfo>> {
    Ok(Json(app.hub().disable_tool(&name, body.and_then(|body| body.reason)).await?))
}

async fn enable(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
) -> ApiResult<Json<ToolStatusInfo>> {
    Ok(Json(app.hub().enable_tool(&name).await?))
}
