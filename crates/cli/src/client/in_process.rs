//! The transport inside this process: no server runs, so the command opens the store itself and asks the routes directly.
//!
//! In: a router with its hub behind it, and requests. Out: answers, as a server would give them. Whoever may open the
//! file may do everything with it, so nobody is asked for a key.

use std::time::Duration;

use axum::{body::Body, http};
use tower::ServiceExt;

use super::{
    events::{ByteSource, EventStream, StreamResponse},
    request::{ApiResponse, Request},
};
use crate::{failure::Failure, serve::InProcessHub};

/// How long calls that were begun may go on after the command has said all it has to say.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The same after Ctrl-C.
const INTERRUPTED_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The hub in this process.
pub(crate) struct InProcess(InProcessHub);

impl InProcess {
    pub(crate) fn new(opened: InProcessHub) -> Self {
        Self(opened)
    }

    pub(super) async fn send(&self, request: Request) -> Result<ApiResponse, Failure> {
        read_body(self.dispatch(request).await?).await
    }

    pub(super) async fn stream(&self, request: Request) -> Result<StreamResponse, Failure> {
        let answer = self.dispatch(request).await?;
        let media = answer.headers().get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return Ok(StreamResponse::Events(EventStream::new(ByteSource::InProcess(
                answer.into_body().into_data_stream(),
            ))));
        }
        read_body(answer).await.map(StreamResponse::Response)
    }

    async fn dispatch(&self, request: Request) -> Result<http::Response<Body>, Failure> {
        let mut sent = http::Request::builder().method(request.method).uri(request.target).header("host", "localhost");
        for (name, value) in request.headers {
            sent = sent.header(name, value);
        }
        let body = match request.body {
            Some(body) => {
                sent = sent.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let sent = sent.body(body).map_err(|error| invalid_request(&error))?;
        let Ok(answer) = self.0.router.clone().oneshot(sent).await;
        Ok(answer)
    }

    /// Lets what runs come to its end, and writes down what is still to be written.
    pub(super) async fn close(self, interrupted: bool) {
        self.0.agents.stop().await;
        self.0.hub.shutdown(if interrupted { INTERRUPTED_DRAIN_TIMEOUT } else { DRAIN_TIMEOUT }).await;
    }
}

async fn read_body(answer: http::Response<Body>) -> Result<ApiResponse, Failure> {
    let status = answer.status().as_u16();
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.map_err(|error| invalid_request(&error))?;
    Ok(ApiResponse { status, body: body.to_vec() })
}

fn invalid_request(error: &dyn std::fmt::Display) -> Failure {
    Failure::unexpected(format!("the request is not valid: {error}"))
}
