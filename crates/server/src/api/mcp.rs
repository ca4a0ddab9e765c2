//! The MCP endpoint: all tools, the tools of a toolset, or those of a thread.

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, Method, header, request::Parts},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, Toolset, ids::ThreadId};

use super::{threads, toolsets};
use crate::{
    app::App,
    connections::Holder,
    extract::{FromBody, FromParts, Params},
    links::Links,
    mcp::McpRequest,
    operation::Operation,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal},
    sse::{self, StreamHolder},
};

pub(super) fn routes() -> Vec<Route> {
    let all = [
        (Method::POST, "Send a message of the Model Context Protocol"),
        (Method::GET, "Receive the messages of a session (protocol versions before 2026-07-28)"),
        (Method::DELETE, "End a session (protocol versions before 2026-07-28)"),
    ];
    let route = |route: Route, summary| {
        route
            .handles_idempotency()
            .summary(summary)
            .response(200, "application/json", "The answer")
            .response(
                200,
                "text/event-stream",
                "Messages of the request or session; the last one of a request is its answer",
            )
            .response(202, "", "A notification, or the answer to a request of the server, was accepted")
            .response(400, "application/json", "A JSON-RPC error: the message or its headers are not valid")
            .problems(&[Code::SESSION_NOT_FOUND, Code::NOT_FOUND, Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable])
    };
    let access = Access::Authenticated;
    all.into_iter()
        .flat_map(|(method, summary)| {
            [
                route(Route::new(method.clone(), "/mcp", access, "mcp", serve_all), summary),
                route(Route::new(method.clone(), "/mcp/{toolset}", access, "mcp", serve_toolset), summary),
                route(Route::new(method, "/mcp/t/{threadId}", access, "mcp", serve_thread), summary),
            ]
        })
        .collect()
}

/// The toolset in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ToolsetPath {
    /// The toolset.
    toolset: String,
}

/// The thread in a path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ThreadAddress {
    /// The thread.
    thread_id: String,
}

/// The head of a request.
struct Head(Parts);

impl FromParts for Head {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self(parts.clone()))
    }
}

/// A message of the protocol, not read yet.
struct Message(Bytes);

impl FromBody for Message {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<serde_json::Map<String, serde_json::Value>>(false);
    }

    fn from_body(_: &HeaderMap, body: Bytes, _: &App) -> Result<Self, Problem> {
        Ok(Self(body))
    }
}

async fn serve_all(
    State(app): State<App>,
    principal: Principal,
    links: Links,
    head: Head,
    message: Message,
) -> Response {
    let name = app.settings().mcp.toolset.clone();
    match toolsets::find_toolset(&app, name.as_deref()) {
        Ok(toolset) => serve(&app, principal, (toolset, None), &links, head, message).await,
        Err(problem) => problem.into_response(),
    }
}

async fn serve_toolset(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ToolsetPath>,
    links: Links,
    head: Head,
    message: Message,
) -> Response {
    match toolsets::find_named(&app, &path.toolset, Code::NOT_FOUND) {
        Ok(toolset) => serve(&app, principal, (toolset, None), &links, head, message).await,
        Err(problem) => problem.into_response(),
    }
}

async fn serve_thread(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadAddress>,
    links: Links,
    head: Head,
    message: Message,
) -> Response {
    let found = async {
        let thread = threads::find(&app, &principal.tenant, &path.thread_id).await?;
        let toolset = toolsets::find_toolset(&app, app.settings().mcp.toolset.as_deref())?;
        ApiResult::Ok((toolset, Some(thread.id)))
    };
    match found.await {
        Ok(target) => serve(&app, principal, target, &links, head, message).await,
        Err(problem) => problem.into_response(),
    }
}

async fn serve(
    app: &App,
    principal: Principal,
    (toolset, thread): (Toolset, Option<ThreadId>),
    links: &Links,
    Head(parts): Head,
    Message(body): Message,
) -> Response {
    if !app.settings().mcp.enabled {
        let problem = Problem::new(Code::NOT_FOUND, "the MCP endpoint is switched off");
        return problem.hint("set `mcp_endpoint.enabled = true`").into_response();
    }
    let request = McpRequest::new(principal.clone(), toolset, thread, links.base_url());
    let response = app.mcp().serve(parts, body, request).await;
    let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
    if response.headers().get(header::CONTENT_TYPE).is_some_and(is_stream) {
        return guard_stream(app, principal, response);
    }
    response
}

/// Ends a stream when its client's key is no longer valid, and counts it as one of its client's streams.
fn guard_stream(app: &App, principal: Principal, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.extensions.insert(StreamHolder(Holder::of_key(&principal)));
    // A buffering proxy would hold the messages back.
    parts.headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    let app = app.clone();
    let frames = body.into_data_stream();
    let frames = frames.take_while(move |_| std::future::ready(sse::is_still_authorized(&app, &principal)));
    Response::from_parts(parts, Body::from_stream(frames))
}
