//! Tools: which there are, and calls of them.

use axum::{
    Json,
    extract::State,
    http::Method,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhub_core::ErrorKind;

use crate::{
    app::App,
    extract::{Body, Params, Who},
    problem::Problem,
    route::{Access, Route},
    scope::Scope,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/tools/{name}/calls", Access::Needs(Scope::ToolsCall), "calls", call)
            .says("Call a tool")
            .answers::<Value>(200, "The call ran; its outcome")
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::ArgumentsInvalid]),
    ]
}

/// A tool's name in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct Named {
    /// The tool.
    name: String,
}

/// What a call is made with.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CallBody {
    /// The tool's arguments.
    #[serde(default)]
    arguments: Map<String, Value>,
    /// The conversation.
    thread_id: Option<String>,
}

async fn call(
    State(app): State<App>,
    Who(principal): Who,
    Params(Named { name }): Params<Named>,
    Body(body): Body<CallBody>,
) -> Response {
    let mut call =
        app.hub().call(name, Value::Object(body.arguments)).tenant(principal.tenant).caller(principal.caller);
    if let Some(thread) = body.thread_id {
        call = call.thread(thread);
    }
    let outcome = call.await;
    match &outcome.error {
        Some(error) if error.kind.row().http != 200 => Problem::from(error.clone()).into_response(),
        _ => Json(outcome).into_response(),
    }
}
