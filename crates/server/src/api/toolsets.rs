//! Toolsets: names under which the config puts tools together.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Serialize;
use toolhub_core::{ToolFilter, ToolName, Toolset};

use crate::{
    app::App,
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/toolsets", Access::Needs(Scope::ToolsRead), "tools", list)
            .summary("The toolsets of the config, by name")
            .json_response::<Toolsets>(200, "All of them"),
    ]
}

/// The toolset of a name in a query; every tool where none is named.
pub(super) fn find_toolset(app: &App, name: Option<&str>) -> ApiResult<Toolset> {
    let Some(name) = name else { return Ok(Toolset::all()) };
    let known = app.host_control().map(|steward| steward.toolsets()).unwrap_or_default();
    let found = known.iter().find(|set| set.name == name);
    found.and_then(|set| Toolset::from_patterns(set.tools.iter().map(String::as_str)).ok()).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|set| set.name.as_str()).collect();
        let shown: String = name.chars().take(64).collect();
        Problem::new(Code::INVALID_REQUEST, format!("there is no toolset `{shown}`")).with("suggestions", names)
    })
}

/// All toolsets.
#[derive(Debug, Serialize, JsonSchema)]
struct Toolsets {
    /// By name.
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
    /// The tools that fit now.
    tools: Vec<ToolName>,
    /// The agents that are offered them.
    agents: Vec<String>,
}

async fn list(State(app): State<App>, _: Principal) -> ApiResult<Json<Toolsets>> {
    let known = app.host_control().map(|steward| steward.toolsets()).unwrap_or_default();
    let all = app.hub().list(&ToolFilter::default());
    let items = known.into_iter().map(|set| {
        let fits = Toolset::from_patterns(set.tools.iter().map(String::as_str));
        let fits = |name: &str| fits.as_ref().is_ok_and(|fits| fits.contains(name));
        let tools = all.iter().map(|tool| tool.definition.name.clone()).filter(|name| fits(name)).collect();
        ToolsetView { name: set.name, description: set.description, patterns: set.tools, tools, agents: set.agents }
    });
    Ok(Json(Toolsets { items: items.collect() }))
}
