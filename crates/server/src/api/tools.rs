//! Tools: which there are, how each stands, and what an admin says about them.

mod change;
mod view;

use axum::{extract::State, http::Method, response::IntoResponse};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, Kind, StatusScope, ToolFilter, ToolStatusInfo, clock::Timestamp, status::ToolStatus};

use crate::{
    app::App,
    extract::{Body, MaybeBody, Params, Query},
    json::Json,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};
use view::ToolView;

pub(super) fn routes() -> Vec<Route> {
    let (read, admin) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::Admin));
    let known = &[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable];
    let mut routes = vec![
        Route::new(Method::GET, "/api/v1/tools", read, "tools", list)
            .summary("Tools, by name")
            .json_response::<List<ToolView>>(200, "A page of them")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/tools/{name}", read, "tools", get)
            .summary("One tool")
            .json_response::<ToolView>(200, "What it is and how it stands")
            .refusals(known),
        Route::new(Method::PUT, "/api/v1/tools/{name}/status", admin, "tools", set_status)
            .audited("tool.status")
            .summary("Say by hand how a tool stands, for everybody")
            .json_response::<ToolStatusInfo>(200, "What holds now")
            .refusals(known),
        Route::new(Method::POST, "/api/v1/tools/{name}/reset", admin, "tools", reset)
            .audited("tool.reset")
            .summary("Forget what is held against a tool, for everybody")
            .json_response::<ToolStatusInfo>(200, "What holds now")
            .refusals(known),
        Route::new(Method::POST, "/api/v1/tools/{name}/disable", admin, "tools", disable)
            .audited("tool.disable")
            .summary("Disable a tool for everybody, until it is enabled again")
            .json_response::<ToolStatusInfo>(200, "What holds now")
            .refusals(known),
        Route::new(Method::POST, "/api/v1/tools/{name}/enable", admin, "tools", enable)
            .audited("tool.enable")
            .summary("Enable a tool that was disabled")
            .json_response::<ToolStatusInfo>(200, "What holds now; something else may still be in its way")
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
    /// Which tools are wanted.
    struct ToolsQuery {
        /// Only tools of this kind.
        kind: Option<Kind>,
        /// Only tools that stand so.
        status: Option<ToolStatus>,
        /// Only tools of this toolset.
        toolset: Option<String>,
        /// Only tools with this tag.
        tag: Option<String>,
        /// Only tools with this text in their name, title or description, in whatever case.
        q: Option<String>,
    }
}

async fn list(
    State(app): State<App>,
    Query(query): Query<ToolsQuery>,
    here: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "tools")?;
    let filter = ToolFilter { kind: query.kind, tag: query.tag };
    let toolset = super::toolsets::find_toolset(&app, query.toolset.as_deref())?;
    let mut tools = app.hub().list(&filter);
    tools.retain(|tool| toolset.contains(&tool.definition.name));
    if let Some(text) = query.q.map(|text| text.to_lowercase()) {
        tools.retain(|tool| view::matches_text(&tool.definition, &text));
    }
    tools.retain(|tool| after.as_deref().is_none_or(|after| tool.definition.name.as_str() > after));
    let statuses = app.hub().tool_statuses(StatusScope::Shared).await?;
    let (mut items, mut next) = (Vec::new(), None);
    for tool in tools {
        let Ok(at) = statuses.binary_search_by(|info| info.tool_name.cmp(&tool.definition.name)) else { continue };
        if query.status.is_some_and(|status| statuses[at].status != status) {
            continue;
        }
        if items.len() == query.limit.get() {
            next = items.last().map(|last: &ToolView| last.name().to_owned());
            break;
        }
        items.push(ToolView::of(&app, &tool, &statuses[at]).without_standing());
    }
    Ok(here.list_response("tools", items, next))
}

async fn get(State(app): State<App>, Params(ToolPath { name }): Params<ToolPath>) -> ApiResult<Json<ToolView>> {
    let status = app.hub().tool_status(&name, StatusScope::Shared).await?;
    let gone = || crate::problem::Problem::new(Code::TOOL_NOT_FOUND, format!("no tool is named `{name}`"));
    let tool = app.hub().get(&name).ok_or_else(gone)?;
    Ok(Json(ToolView::of(&app, &tool, &status).with_policy(&tool)))
}

/// How a tool stands, in somebody's words.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusBody {
    /// `maintenance` and `unavailable` hold until they are lifted; `failed` withholds it as if it had failed; `available`
    /// lifts all of these.
    status: ToolStatus,
    /// Why.
    reason: Option<String>,
    /// When it ends by itself.
    until: Option<Timestamp>,
}

async fn set_status(
    State(app): State<App>,
    _: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(body): Body<StatusBody>,
) -> ApiResult<Json<ToolStatusInfo>> {
    let StatusBody { status, reason, until } = body;
    Ok(Json(app.hub().set_tool_status(&name, status, reason, until, StatusScope::Shared).await?))
}

async fn reset(State(app): State<App>, Params(ToolPath { name }): Params<ToolPath>) -> ApiResult<Json<ToolStatusInfo>> {
    Ok(Json(app.hub().reset_tool_status(&name, StatusScope::Shared).await?))
}

/// Why a tool is disabled.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolDisable")]
struct DisableBody {
    /// In words for whoever wonders.
    reason: Option<String>,
}

async fn disable(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
    MaybeBody(body): MaybeBody<DisableBody>,
) -> ApiResult<Json<ToolStatusInfo>> {
    Ok(Json(app.hub().set_tool_enabled(&name, false, body.and_then(|body| body.reason)).await?))
}

async fn enable(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
) -> ApiResult<Json<ToolStatusInfo>> {
    Ok(Json(app.hub().set_tool_enabled(&name, true, None).await?))
}
