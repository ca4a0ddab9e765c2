//! Statistics and policies of tools.

use std::sync::Arc;

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{CallError, Detail, ErrorKind, Limits, RecentStats, Tool, ToolFilter, ToolStats};

use super::tools::ToolPath;
use crate::{
    app::App,
    duration_param::DurationParam,
    extract::{AcceptLanguage, Params, Query},
    json::Json,
    page::{self, List, ListQuery, ListResponse, RequestUri},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

const LIST_NAME: &str = "policies";

pub(super) fn routes() -> Vec<Route> {
    let reads = Access::Needs(Scope::ToolsRead);
    vec![
        Route::new(Method::GET, "/api/v1/tools/{name}/stats", reads, "tools", stats)
            .summary("Statistics of a tool since the server started, or within a time window")
            .json_response::<StatsView>(200, "Calls, errors, refusals, latency, retries")
            .problems(&[Code::INVALID_REQUEST])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/policies", reads, "tools", policies)
            .summary("Rules and limits of each tool")
            .json_response::<List<PolicyView>>(200, "A page of tools, by name"),
    ]
}

/// The tool with this name.
pub(super) fn find_tool(app: &App, name: &str) -> ApiResult<Arc<Tool>> {
    let unknown = || {
        let shown: String = name.chars().take(64).collect();
        CallError::new(ErrorKind::ToolNotFound)
            .operator(format!("no tool is named `{shown}`"))
            .detail(Detail::Suggestions(app.hub().tools().suggest(&shown)))
    };
    Ok(app.hub().get(name).ok_or_else(unknown)?)
}

/// The time window.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StatsQuery {
    /// Only calls that ended within this time before now, such as `90s`, `1h` or `7d`; at most the retention of calls.
    window: Option<DurationParam>,
}

/// Statistics of a tool.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum StatsView {
    /// Since the server started, from its counters.
    Counted(Box<ToolStats>),
    /// Within a time window, from the journal.
    Recent(Box<RecentStats>),
}

async fn stats(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
    Query(StatsQuery { window }): Query<StatsQuery>,
) -> ApiResult<Json<StatsView>> {
    let tool = find_tool(&app, &name)?;
    let name = &tool.definition.name;
    let retention = app.hub().call_retention();
    let view = match window {
        None => app.hub().tool_stats(name).map(|counted| StatsView::Counted(counted.into())),
        Some(DurationParam(window)) if window > retention => {
            let detail = format!("calls are stored for {}, so the window must not be longer", DurationParam(retention));
            return Err(Problem::new(Code::INVALID_REQUEST, detail));
        }
        Some(DurationParam(window)) => {
            app.hub().recent_stats(name, window).await?.map(|recent| StatsView::Recent(recent.into()))
        }
    };
    Ok(Json(view.ok_or_else(|| CallError::new(ErrorKind::ToolNotFound))?))
}

/// Rules and limits of a tool.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolPolicy")]
struct PolicyView {
    /// The tool.
    tool: String,
    /// The rule that denies every call of it, so that it is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<String>,
    /// The rules that may apply to its calls, in the order of evaluation, and the default.
    rules: Vec<String>,
    /// Timeouts, sizes, rate limits, concurrency, retries.
    limits: Limits,
}

async fn policies(
    State(app): State<App>,
    AcceptLanguage(language): AcceptLanguage,
    Query(query): Query<ListQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<PolicyView>> {
    let last = page::decode_cursor(query.cursor.as_ref(), LIST_NAME)?;
    let tools = app.hub().list(&ToolFilter::default());
    let after = tools.iter().filter(|tool| last.as_deref().is_none_or(|last| tool.definition.name.as_str() > last));
    let mut policies: Vec<PolicyView> = after
        .take(query.limit.plus_one())
        .map(|tool| PolicyView {
            tool: tool.definition.name.to_string(),
            denied_by: tool.denied_by(),
            rules: tool.rules(language),
            limits: tool.limits().clone(),
        })
        .collect();
    let next = query.limit.truncate(&mut policies).map(|last| last.tool.clone());
    let position = |policies: &[PolicyView]| policies.last().map(|last| last.tool.clone()).unwrap_or_default();
    Ok(uri.bounded_list_response(LIST_NAME, policies, next, position))
}
