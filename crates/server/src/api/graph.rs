//! The dependency graph of the tools, with their statuses.

use std::collections::{BTreeSet, HashMap};

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    DependencyGroup, DependencyStatus, ErrorKind, OfferOptions, StatusScope, ToolFilter, ToolName, ToolStatusInfo,
    status::ToolStatus,
};

use super::threads;
use crate::{
    app::App,
    extract::{AcceptLanguage, Query},
    json::Json,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/graph", Access::Needs(Scope::ToolsRead), "tools", graph)
            .summary("Dependency graph of the tools, with their statuses")
            .json_response::<Graph>(200, "Tools, and an edge for each dependency")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// Whose statuses to show.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GraphQuery {
    /// The statuses in this thread. Default: those that all threads share.
    thread_id: Option<String>,
}

/// The dependency graph of the tools.
#[derive(Debug, Serialize, JsonSchema)]
struct Graph {
    /// The tools, by name, and dependencies that are not registered.
    nodes: Vec<Node>,
    /// The dependencies.
    edges: Vec<Edge>,
}

/// A tool.
#[derive(Debug, Serialize, JsonSchema)]
struct Node {
    /// Its name.
    name: String,
    /// Its kind; null if it is not registered.
    kind: Option<String>,
    /// Whether it has no dependencies.
    root: bool,
    /// Its status, in the thread or shared by all threads; null if it is not registered.
    status: Option<ToolStatus>,
    /// Why it has that status.
    reason: Option<String>,
}

/// A dependency of one tool on another.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Edge {
    /// The tool that must succeed.
    from: String,
    /// The tool that depends on it.
    to: String,
    /// The index of its dependency group; all groups must be satisfied.
    group: usize,
    /// Whether all tools of the group must succeed, any of them, or all in this order.
    needs: GroupMode,
    /// How old a success may be; absent for any age.
    #[serde(skip_serializing_if = "Option::is_none")]
    within_ms: Option<u64>,
    /// Whether its success is not missing in the thread: it is there, or another tool's is enough. Absent without a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

/// How the tools of a group combine.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum GroupMode {
    All,
    Any,
    Sequence,
}

async fn graph(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<GraphQuery>,
    AcceptLanguage(language): AcceptLanguage,
) -> ApiResult<Json<Graph>> {
    let thread = match &query.thread_id {
        Some(id) => Some(threads::find(&app, &principal.tenant, id).await?.id),
        None => None,
    };
    let options: OfferOptions = language.into();
    let statuses: Vec<(ToolStatusInfo, Vec<DependencyStatus>)> = match &thread {
        Some(thread) => {
            let details = app.hub().status_details(&principal.tenant, thread, &options).await?;
            details.tools.into_iter().map(|tool| (tool.info, tool.dependencies)).collect()
        }
        None => {
            let statuses = app.hub().tool_statuses_with(StatusScope::Shared, &options).await?;
            statuses.into_iter().map(|info| (info, Vec::new())).collect()
        }
    };
    let mut statuses: HashMap<ToolName, _> =
        statuses.into_iter().map(|(info, states)| (info.tool_name.clone(), (info, states))).collect();
    let tools = app.hub().list(&ToolFilter::default());
    let mut nodes: Vec<Node> = Vec::with_capacity(tools.len());
    let (mut edges, mut dependencies) = (Vec::new(), BTreeSet::new());
    for tool in &tools {
        let definition = &tool.definition;
        let (name, kind) = (definition.name.to_string(), Some(definition.kind.to_string()));
        let (info, states) = statuses.remove(&definition.name).unzip();
        let states = states.unwrap_or_default();
        for (index, group) in definition.depends_on.0.iter().enumerate() {
            for base in group.tools() {
                dependencies.insert(base.clone());
                edges.push(Edge {
                    from: base.to_string(),
                    to: name.clone(),
                    group: index,
                    needs: group_mode(group),
                    met: states.iter().find(|state| state.tool_name == *base).map(|state| state.met),
                    within_ms: group.within().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                });
            }
        }
        let (status, reason) = info.map(|info| (info.status, info.reason)).unzip();
        nodes.push(Node { name, kind, root: definition.depends_on.is_empty(), status, reason });
    }
    let unregistered = dependencies.into_iter().filter(|name| app.hub().get(name).is_none());
    nodes.extend(unregistered.map(|name| {
        let name = name.to_string();
        Node { name, kind: None, root: true, status: None, reason: None }
    }));
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(Graph { nodes, edges }))
}

fn group_mode(group: &DependencyGroup) -> GroupMode {
    match group {
        DependencyGroup::All { .. } => GroupMode::All,
        DependencyGroup::Any { .. } => GroupMode::Any,
        DependencyGroup::Sequence { .. } => GroupMode::Sequence,
    }
}
