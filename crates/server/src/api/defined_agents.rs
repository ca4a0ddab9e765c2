//! The agents that messages can be sent to.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Serialize;
use toolhub_agent::AgentInfo;

use crate::{
    app::App,
    json::Json,
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/agents", Access::Needs(Scope::ToolsRead), "agents", list)
            .summary("The agents that messages can be sent to, by name")
            .json_response::<Agents>(200, "All agents"),
    ]
}

/// All agents.
#[derive(Debug, Serialize, JsonSchema)]
struct Agents {
    /// The agents, by name.
    items: Vec<AgentInfo>,
}

async fn list(State(app): State<App>, _: Principal) -> Json<Agents> {
    Json(Agents { items: app.agents().agent_infos() })
}
