//! Tools as model providers want to read them.

use axum::{Json, extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use toolhub_core::{ErrorKind, export::Format, ids::ThreadId};

use crate::{
    app::App,
    extract::{Query, Who},
    problem::Answer,
    route::{Access, Route},
    scope::Scope,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/tools/export", Access::Needs(Scope::ToolsRead), "tools", export)
            .says("Tools in a model provider's own format")
            .answers::<Exported>(200, "All tools, or exactly those a thread is offered now")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// What is wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    /// The provider's format.
    #[serde(deserialize_with = "word")]
    format: Format,
    /// Only the tools this thread is offered now. A thread nobody has named yet is offered what a new one would be.
    thread_id: Option<ThreadId>,
}

fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Format, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

/// The tools, ready to be handed to a model.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Exported {
    /// The format.
    format: Format,
    /// The tools, by name.
    tools: Vec<Value>,
}

async fn export(State(app): State<App>, Who(principal): Who, Query(wanted): Query<Wanted>) -> Answer<Json<Exported>> {
    let tools = match &wanted.thread_id {
        None => app.hub().export(wanted.format),
        Some(thread) => app.hub().offer(&principal.tenant, thread).await?.export(wanted.format),
    };
    Ok(Json(Exported { format: wanted.format, tools }))
}
