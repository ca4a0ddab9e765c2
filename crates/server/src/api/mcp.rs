//! The MCP endpoint: all tools, the tools of a toolset, or those of a thread.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, Method, header, request::Parts},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, Toolset};

use super::{threads, toolsets};
use crate::{
    app::App,
    connections::{Holder, StreamHolder},
    extract::{self, FromBody, FromParts, Params, Query},
    links::Links,
    mcp::{ConfiguredToolset, EndlessStream, McpAddress, McpRequest},
    operation::Operation,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal},
    settings::{Auth, McpMode},
    sse,
};

/// How long a client that listens may leave messages unread.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The addresses of a toolset and of a thread.
const TOOLSET_PATH: &str = "/mcp/{toolset}";
const THREAD_PATH: &str = "/mcp/t/{threadId}";

pub(super) fn routes() -> Vec<Route> {
    let route = |method: Method, path: &'static str, summary: &'static str| {
        let access = Access::Authenticated;
        let route = match (&method, path) {
            (&Method::POST, "/mcp") => Route::new(method, path, access, "mcp", post_all),
            (&Method::POST, TOOLSET_PATH) => Route::new(method, path, access, "mcp", post_toolset),
            (&Method::POST, _) => Route::new(method, path, access, "mcp", post_thread),
            (_, "/mcp") => Route::new(method, path, access, "mcp", session_of_all),
            (_, TOOLSET_PATH) => Route::new(method, path, access, "mcp", session_of_toolset),
            _ => Route::new(method, path, access, "mcp", session_of_thread),
        };
        let problems = [Code::SESSION_NOT_FOUND, Code::NOT_FOUND, Code::THREAD_NOT_FOUND];
        route.handles_idempotency().summary(summary).problems(&problems).refusals(&[ErrorKind::StoreUnavailable])
    };
    let events = "text/event-stream";
    ["/mcp", TOOLSET_PATH, THREAD_PATH]
        .into_iter()
        .flat_map(|path| {
            [
                route(Method::POST, path, "Send a message of the Model Context Protocol")
                    .response(200, "application/json", "The answer")
                    .response(200, events, "Progress and requests of the server; the last message is the answer")
                    .empty_response(202, "A notification, or the answer to a request of the server, was accepted")
                    .response(400, "application/json", "A JSON-RPC error: the message or its headers are not valid")
                    .response(404, "application/json", "A JSON-RPC error: the method is unknown"),
                route(Method::GET, path, "Receive the messages of a session (protocol versions before 2026-07-28)")
                    .response(200, events, "The messages of the session, or of the stream that is resumed")
                    .empty_response(204, "The stream to be resumed has ended, and no message follows")
                    .response(400, "application/json", "A JSON-RPC error: the header Mcp-Session-Id is missing")
                    .problems(&[Code::METHOD_NOT_ALLOWED]),
                route(Method::DELETE, path, "End a session (protocol versions before 2026-07-28)")
                    .empty_response(204, "The session has ended")
                    .response(400, "application/json", "A JSON-RPC error: the header Mcp-Session-Id is missing")
                    .problems(&[Code::METHOD_NOT_ALLOWED]),
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

/// How the tools of an address are shown.
#[derive(Debug, Deserialize, JsonSchema)]
struct ModeQuery {
    /// How the tools are shown; `mcp_endpoint.mode` if absent.
    mode: Option<McpMode>,
}

/// The head of a request.
struct Head {
    parts: Parts,
    mode: Option<McpMode>,
    links: Links,
}

impl FromParts for Head {
    fn describe(operation: &mut Operation<'_>) {
        Query::<ModeQuery>::describe(operation);
    }

    fn from_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let (Query(query), links) = (Query::<ModeQuery>::from_parts(parts, app)?, Links::from_parts(parts, app)?);
        Ok(Self { parts: parts.clone(), mode: query.mode, links })
    }
}

/// A message of the protocol, not read yet.
struct Message(Bytes);

impl FromBody for Message {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<serde_json::Map<String, serde_json::Value>>(false);
    }

    fn from_body(headers: &HeaderMap, body: Bytes, _: &App) -> Result<Self, Problem> {
        if !body.is_empty() {
            extract::require_json(headers)?;
        }
        Ok(Self(body))
    }
}

async fn post_all(
    State(app): State<App>,
    principal: Principal,
    head: Head,
    Message(body): Message,
) -> ApiResult<Response> {
    let address = default_address(&app)?;
    Ok(serve(&app, principal, address, head, body).await)
}

async fn session_of_all(State(app): State<App>, principal: Principal, head: Head) -> ApiResult<Response> {
    let address = default_address(&app)?;
    Ok(serve(&app, principal, address, head, Bytes::new()).await)
}

async fn post_toolset(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ToolsetPath>,
    head: Head,
    Message(body): Message,
) -> ApiResult<Response> {
    let address = toolset_address(&app, &path.toolset, Code::NOT_FOUND)?;
    Ok(serve(&app, principal, address, head, body).await)
}

async fn session_of_toolset(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ToolsetPath>,
    head: Head,
) -> ApiResult<Response> {
    let address = toolset_address(&app, &path.toolset, Code::NOT_FOUND)?;
    Ok(serve(&app, principal, address, head, Bytes::new()).await)
}

async fn post_thread(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadAddress>,
    head: Head,
    Message(body): Message,
) -> ApiResult<Response> {
    let address = thread_address(&app, &principal, &path.thread_id).await?;
    Ok(serve(&app, principal, address, head, body).await)
}

async fn session_of_thread(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadAddress>,
    head: Head,
) -> ApiResult<Response> {
    let address = thread_address(&app, &principal, &path.thread_id).await?;
    Ok(serve(&app, principal, address, head, Bytes::new()).await)
}

/// The address that names nothing.
fn default_address(app: &App) -> ApiResult<McpAddress> {
    match &app.settings().mcp.toolset {
        Some(name) => toolset_address(app, name, Code::INVALID_REQUEST),
        None => Ok(McpAddress { toolset: Toolset::all(), configured: None, thread: None }),
    }
}

/// The address of a toolset; a problem with this code if there is none.
fn toolset_address(app: &App, name: &str, code: Code) -> ApiResult<McpAddress> {
    let toolset = toolsets::find_named(app, name, code)?;
    let configured = app.host_control().map(|host| ConfiguredToolset::new(name, host));
    Ok(McpAddress { toolset, configured, thread: None })
}

async fn thread_address(app: &App, principal: &Principal, id: &str) -> ApiResult<McpAddress> {
    let thread = threads::find_or_suggest(app, principal, id).await?;
    Ok(McpAddress { thread: Some(thread.id), ..default_address(app)? })
}

async fn serve(
    app: &App,
    principal: Principal,
    address: McpAddress,
    Head { parts, mode, links }: Head,
    body: Bytes,
) -> Response {
    if !app.settings().mcp.enabled {
        let problem = Problem::new(Code::NOT_FOUND, "the MCP endpoint is switched off");
        return problem.hint("set `mcp_endpoint.enabled = true`").into_response();
    }
    let settings = app.settings();
    let (mode, has_keys) = (mode.unwrap_or(settings.mcp.mode), matches!(settings.auth, Auth::Keys(_)));
    let request = McpRequest::new(principal.clone(), address, links.approvals(), mode, (&parts, has_keys));
    let response = app.mcp().serve(parts, body, request).await;
    let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
    if response.headers().get(header::CONTENT_TYPE).is_some_and(is_stream) {
        return guard_stream(app, principal, response);
    }
    response
}

/// Ends a stream when its client's key is no longer valid. One that lasts as long as its client wants counts as one of its client's
/// streams, and ends when the server stops.
fn guard_stream(app: &App, principal: Principal, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if parts.extensions.remove::<EndlessStream>().is_some() {
        let holder = Holder::of_key(&principal);
        parts.extensions.insert(StreamHolder { holder, unread_timeout: Some(UNREAD_TIMEOUT) });
    }
    // A buffering proxy would hold the messages back.
    parts.headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Response::from_parts(parts, Body::from_stream(sse::end_with_key(app, principal, body.into_data_stream())))
}
