//! Tools from a distance: what one has done, what holds for each, and how they hang together.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{CallError, DependencyGroup, Detail, ErrorKind, Limits, RecentStats, Tool, ToolFilter, ToolStats};

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
            .summary("What a tool has done since the server began, or within a time, in numbers")
            .json_response::<StatsView>(200, "Calls, errors, latency, retries; since the server began also refusals")
            .problems(&[Code::INVALID_REQUEST])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/policies", reads, "tools", policies)
            .summary("What holds for the calls of each tool: rules and limits")
            .json_response::<List<PolicyView>>(200, "A page of tools, by name"),
        Route::new(Method::GET, "/api/v1/graph", reads, "tools", graph)
            .summary("Which tools wait for which")
            .json_response::<Graph>(200, "Tools, and an edge for each that waits"),
    ]
}

/// The tool of this name.
pub(super) fn find_tool(app: &App, name: &str) -> ApiResult<Arc<Tool>> {
    let unknown = || {
        let shown: String = name.chars().take(64).collect();
        CallError::new(ErrorKind::ToolNotFound)
            .operator(format!("no tool is named `{shown}`"))
            .detail(Detail::Suggestions(app.hub().tools().suggest(&shown)))
    };
    Ok(app.hub().get(name).ok_or_else(unknown)?)
}

/// A tool's name in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ToolPath {
    /// The tool.
    pub(super) name: String,
}

/// How far to look back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StatsQuery {
    /// Only calls that ended within this time up to now, such as `90s`, `1h` or `7d`; no longer than calls are kept.
    window: Option<DurationParam>,
}

/// What a tool has done.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum StatsView {
    /// Since the server began, as it counted.
    Counted(Box<ToolStats>),
    /// Within a time, as the journal tells.
    Recent(Box<RecentStats>),
}

async fn stats(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
    Query(StatsQuery { window }): Query<StatsQuery>,
) -> ApiResult<Json<StatsView>> {
    let tool = find_tool(&app, &name)?;
    let name = &tool.definition.name;
    let kept = app.hub().call_retention();
    let figures = match window {
        None => app.hub().tool_stats(name).map(|counted| StatsView::Counted(counted.into())),
        Some(DurationParam(window)) if window > kept => {
            let wrong = format!("calls are kept for {}, so a window is no longer than that", DurationParam(kept));
            return Err(Problem::new(Code::INVALID_REQUEST, wrong));
        }
        Some(DurationParam(window)) => {
            app.hub().recent_stats(name, window).await?.map(|recent| StatsView::Recent(recent.into()))
        }
    };
    Ok(Json(figures.ok_or_else(|| CallError::new(ErrorKind::ToolNotFound))?))
}

/// What holds for the calls of a tool.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolPolicy")]
struct PolicyView {
    /// The tool.
    tool: String,
    /// The rule that denies every call of it, so that it is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<String>,
    /// The rules that may concern its calls, in the order they are asked, and what holds where none of them speaks.
    rules: Vec<String>,
    /// Times, sizes, rates, slots, retries.
    limits: Limits,
}

async fn policies(
    State(app): State<App>,
    AcceptLanguage(language): AcceptLanguage,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<PolicyView>> {
    let last = page::decode_cursor(query.cursor.as_ref(), LIST_NAME)?;
    let tools = app.hub().list(&ToolFilter::default());
    let after = tools.iter().filter(|tool| last.as_deref().is_none_or(|last| tool.definition.name.as_str() > last));
    let mut found: Vec<PolicyView> = after
        .take(query.limit.plus_one())
        .map(|tool| PolicyView {
            tool: tool.definition.name.to_string(),
            denied_by: tool.denied_by(),
            rules: tool.rules(language),
            limits: tool.limits().clone(),
        })
        .collect();
    let next = query.limit.truncate(&mut found).map(|last| last.tool.clone());
    Ok(here.list_response(LIST_NAME, found, next))
}

/// Which tools wait for which.
#[derive(Debug, Serialize, JsonSchema)]
struct Graph {
    /// The tools, by name, and the names of those that others wait for although nobody has registered them.
    nodes: Vec<Node>,
    /// Who waits for whom.
    edges: Vec<Edge>,
}

/// A tool.
#[derive(Debug, Serialize, JsonSchema)]
struct Node {
    /// Its name.
    name: String,
    /// Its kind; null for one that is not there.
    kind: Option<String>,
    /// Whether it waits for nothing.
    root: bool,
}

/// One tool waits for another.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Edge {
    /// The tool that must succeed.
    from: String,
    /// The tool that waits for it.
    to: String,
    /// Which of the groups it belongs to that must all be satisfied, counted from 0.
    group: usize,
    /// Whether all tools of the group must succeed, any of them, or all in this order.
    needs: GroupMode,
    /// How old a success may be; any age where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    within_ms: Option<u64>,
}

/// How the tools of a group count together.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum GroupMode {
    All,
    Any,
    Sequence,
}

async fn graph(State(app): State<App>) -> Json<Graph> {
    let tools = app.hub().list(&ToolFilter::default());
    let mut nodes: Vec<Node> = Vec::with_capacity(tools.len());
    let (mut edges, mut awaited) = (Vec::new(), BTreeSet::new());
    for tool in &tools {
        let definition = &tool.definition;
        let (name, kind) = (definition.name.to_string(), Some(definition.kind.to_string()));
        for (number, group) in definition.depends_on.0.iter().enumerate() {
            for base in group.tools() {
                awaited.insert(base.clone());
                edges.push(Edge {
                    from: base.to_string(),
                    to: name.clone(),
                    group: number,
                    needs: group_mode(group),
                    within_ms: group.within().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                });
            }
        }
        nodes.push(Node { name, kind, root: definition.depends_on.is_empty() });
    }
    let gone = awaited.into_iter().filter(|name| app.hub().get(name).is_none());
    nodes.extend(gone.map(|name| Node { name: name.to_string(), kind: None, root: true }));
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Json(Graph { nodes, edges })
}

fn group_mode(group: &DependencyGroup) -> GroupMode {
    match group {
        DependencyGroup::All { .. } => GroupMode::All,
        DependencyGroup::Any { .. } => GroupMode::Any,
        DependencyGroup::Sequence { .. } => GroupMode::Sequence,
    }
}
