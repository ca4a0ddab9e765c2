//! The in-process transport: no server runs, so the command opens the store itself and calls the router directly.
//!
//! In: a router with its hub, and requests. Out: the responses a server would give. A user who may open the store's file already
//! has full access, so no API key is required.

use std::time::Duration;

use axum::{body::Body, http};
use tokio::sync::OnceCell;
use tower::ServiceExt;

use super::{
    events::{ByteSource, EventStream, StreamResponse},
    request::{ApiResponse, Request, parse_retry_after},
};
use crate::{
    failure::Failure,
    serve::{InProcessHub, wait_for_first_connections},
};

/// How long running calls may take to finish after the command is done.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The same after Ctrl-C.
const INTERRUPTED_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the MCP servers of the hub may take for their first connections before a request goes on without them.
const STARTUP_WAIT: Duration = Duration::from_secs(10);

/// The hub in this process.
pub(crate) struct InProcess {
    hub: InProcessHub,
    /// Set when MCP servers were connected.
    is_started: OnceCell<()>,
}

impl InProcess {
    pub(crate) fn new(hub: InProcessHub) -> Self {
        Self { hub, is_started: OnceCell::new() }
    }

    pub(super) async fn send(&self, request: Request) -> Result<ApiResponse, Failure> {
        read_body(self.dispatch(request).await?).await
    }

    pub(super) async fn stream(&self, request: Request) -> Result<StreamResponse, Failure> {
        let response = self.dispatch(request).await?;
        let media = response.headers().get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return Ok(StreamResponse::Events(EventStream::new(ByteSource::InProcess(
                response.into_body().into_data_stream(),
            ))));
        }
        read_body(response).await.map(StreamResponse::Response)
    }

    async fn dispatch(&self, request: Request) -> Result<http::Response<Body>, Failure> {
        if needs_tools(&request.method, &request.target) {
            self.is_started.get_or_init(|| self.connect_mcp_servers()).await;
        }
        let mut http_request =
            http::Request::builder().method(request.method).uri(request.target).header("host", "localhost");
        for (name, value) in request.headers {
            http_request = http_request.header(name, value);
        }
        let body = match request.body {
            Some(body) => {
                http_request = http_request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let http_request = http_request.body(body).map_err(|error| invalid_request(&error))?;
        let Ok(response) = self.hub.router.clone().oneshot(http_request).await;
        Ok(response)
    }

    /// Connects to the MCP servers, and waits until each has connected or failed, so that its tools are there.
    async fn connect_mcp_servers(&self) {
        self.hub.connect_mcp_servers().await;
        let _ = tokio::time::timeout(STARTUP_WAIT, wait_for_first_connections(&self.hub.hub)).await;
    }

    /// Waits for running calls, up to the drain timeout, and flushes pending writes.
    pub(super) async fn close(self, interrupted: bool) {
        self.hub.agents.stop().await;
        self.hub.hub.shutdown(if interrupted { INTERRUPTED_DRAIN_TIMEOUT } else { DRAIN_TIMEOUT }).await;
    }
}

/// Whether the response depends on the tools of MCP servers: those of requests that list or call tools.
fn needs_tools(method: &http::Method, target: &str) -> bool {
    let route =
        target.trim_start_matches("/api/v1").trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    let lists_tools = ["tools", "agents", "mcp-servers"].contains(&route);
    lists_tools || method != http::Method::GET && ["calls", "threads", "runs", "approvals"].contains(&route)
}

async fn read_body(response: http::Response<Body>) -> Result<ApiResponse, Failure> {
    let status = response.status().as_u16();
    let retry_after = parse_retry_after(response.headers().get("retry-after").map(http::HeaderValue::as_bytes));
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.map_err(|error| invalid_request(&error))?;
    Ok(ApiResponse { status, body: body.to_vec(), retry_after })
}

fn invalid_request(error: &dyn std::fmt::Display) -> Failure {
    Failure::unexpected(format!("invalid request: {error}"))
}
