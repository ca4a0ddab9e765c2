//! Toolsets: named groups of tools in the config.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Serialize;
use toolhub_core::{ToolFilter, ToolName, Toolset, suggest};

use crate::{
    app::App,
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

use super::threads::truncate;

/// How many names an unknown one is answered with.
const MAX_SUGGESTIONS: usize = 3;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/toolsets", Access::Needs(Scope::ToolsRead), "tools", list)
            .summary("The toolsets of the config, by name")
            .json_response::<Toolsets>(200, "All toolsets"),
    ]
}

/// The toolset with this name; all tools if no name is given.
pub(super) fn find_toolset(app: &App, name: Option<&str>) -> ApiResult<Toolset> {
    name.map_or_else(|| Ok(Toolset::all()), |name| find_named(app, name, Code::INVALID_REQUEST))
}

/// The toolset with this name; a problem with this code and the closest names if there is none.
pub(super) fn find_named(app: &App, name: &str, code: Code) -> ApiResult<Toolset> {
    let toolsets = app.host_control().map(|host_control| host_control.toolsets()).unwrap_or_default();
    let found = toolsets.iter().find(|set| set.name == name);
    found.and_then(|set| Toolset::from_patterns(set.tools.iter().map(String::as_str)).ok()).ok_or_else(|| {
        let closest = suggest::closest(name, toolsets.iter().map(|set| set.name.as_str()), MAX_SUGGESTIONS);
        Problem::new(code, format!("there is no toolset `{}`", truncate(name)))
            .with_some("suggestions", (!closest.is_empty()).then_some(closest))
    })
}

/// All toolsets.
#[derive(Debug, Serialize, JsonSchema)]
struct Toolsets {
    /// The toolsets, by name.
    items: Vec<ToolsetView>,
}

/// A toolset.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Toolset")]
struct ToolsetView {
    /// Its name.
    name: String,
    /// What it is for.
    description: Option<String>,
    /// Names of tools, and globs over them.
    patterns: Vec<String>,
    /// The registered tools that match.
    tools: Vec<ToolName>,
    /// The agents that are offered them.
    agents: Vec<String>,
}

async fn list(State(app): State<App>, _: Principal) -> ApiResult<Json<Toolsets>> {
    let toolsets = app.host_control().map(|host_control| host_control.toolsets()).unwrap_or_default();
    let all = app.hub().list(&ToolFilter::default());
    let items = toolsets.into_iter().map(|set| {
        let toolset = Toolset::from_patterns(set.tools.iter().map(String::as_str));
        let matches = |name: &str| toolset.as_ref().is_ok_and(|toolset| toolset.contains(name));
        let tools = all.iter().map(|tool| tool.definition.name.clone()).filter(|name| matches(name)).collect();
        ToolsetView { name: set.name, description: set.description, patterns: set.tools, tools, agents: set.agents }
    });
    Ok(Json(Toolsets { items: items.collect() }))
}
