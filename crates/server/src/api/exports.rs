//! Exports tools in the formats of model providers.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use toolhub_core::{ErrorKind, export::Format, ids::ThreadId};

use crate::{
    app::App,
    extract::Query,
    json::Json,
    problem::ApiResult,
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/tools/export", Access::Needs(Scope::ToolsRead), "tools", export_tools)
            .summary("Tools in a model provider's format")
            .json_response::<ExportResponse>(200, "All tools, or exactly those offered to a thread now")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// What to export.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExportQuery {
    /// The provider's format.
    #[serde(deserialize_with = "parse_format")]
    format: Format,
    /// Only the tools offered to this thread now. A thread that does not exist is offered what a new one would be.
    thread_id: Option<ThreadId>,
    /// Only the tools of this toolset.
    toolset: Option<String>,
}

fn parse_format<'de, D: Deserializer<'de>>(from: D) -> Result<Format, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

/// The exported tools.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExportResponse {
    /// The format.
    format: Format,
    /// The tools, by name.
    tools: Vec<Value>,
}

async fn export_tools(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<ExportQuery>,
) -> ApiResult<Json<ExportResponse>> {
    let toolset = super::toolsets::find_toolset(&app, query.toolset.as_deref())?;
    let tools = match &query.thread_id {
        None => app.hub().export_toolset(query.format, &toolset),
        Some(thread) => app.hub().offer_with(&principal.tenant, thread, &toolset.into()).await?.export(query.format),
    };
    Ok(Json(ExportResponse { format: query.format, tools }))
}
