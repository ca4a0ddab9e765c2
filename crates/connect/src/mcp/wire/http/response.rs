//! Judges the response to a POST.
//!
//! In: a response, and the request that was posted. Out: the answer to the router, and to `rmcp` what it needs to go on. A response
//! that is not the answer to its request fails that request; only a refused session or credentials end the connection.

use std::sync::Arc;

use hyper::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, GetExtensions, JsonRpcMessage},
    transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse},
};
use toolhub_core::offload;

use super::{
    client::{HttpClient, HttpFailed, PostResult, SESSION_ID},
    stream,
};
use crate::{
    mcp::wire::{
        exchange::{Exchange, HttpFailure, RefusedResponse, RequestError, Unsent, is_busy},
        forward::Received,
        lifecycle::{End, EndCause},
        message::{self, Incoming, JsonRpcFailure, Violation, number},
        router::Origin,
        surrogates,
    },
    rest::{HttpError, OpenResponse, ReadLimit},
};

/// How much of an error response is read.
const ERROR_LIMIT: ReadLimit = ReadLimit { bytes: 256 * 1024, decompressed: 256 * 1024, truncate: true };
/// Longer session ids are refused.
const MAX_SESSION_ID: usize = 1_024;

/// A request that is posted.
pub(super) struct Posted {
    pub(super) id: i64,
    pub(super) exchange: Option<Exchange>,
    is_discover: bool,
    is_call: bool,
}

impl Posted {
    pub(super) fn new(message: &ClientJsonRpcMessage) -> Option<Self> {
        let JsonRpcMessage::Request(request) = message else { return None };
        Some(Self {
            id: number(&request.id)?,
            exchange: request.request.extensions().get::<Exchange>().cloned(),
            is_discover: matches!(request.request, ClientRequest::DiscoverRequest(_)),
            is_call: matches!(request.request, ClientRequest::CallToolRequest(_)),
        })
    }
}

impl HttpClient {
    /// The answer to a request, in the response to its POST. `session`: the request was part of one.
    pub(super) async fn read_answer(&self, response: OpenResponse, request: &Posted, session: bool) -> PostResult {
        let status = response.status;
        let session_id = response.headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()).map(String::from);
        let session_id = session_id.filter(|id| id.len() <= MAX_SESSION_ID);
        let lost = access_lost(status, session);
        if request.is_call && matches!(lost, Some(EndCause::Unauthorized(_))) {
            // It may concern this call only. The next list shows whether it concerns the server.
            self.router().list_may_have_changed();
            return self.read_refusal(response, request).await;
        }
        if let Some(cause) = lost {
            drop(response.discard().await);
            let end = Arc::new(End::from(cause));
            // The server refused the request, so it had no effect. Before the end, which all other requests get.
            self.router().fail(request.id, RequestError::NotSent(Unsent::Ended(end.clone())));
            self.lifecycle().end(End::clone(&end));
            return Err(StreamableHttpError::Client(HttpFailed));
        }
        if status.is_success() && status != StatusCode::OK {
            drop(response.discard().await);
            return Err(self.violated(request.id, Violation::NotAMessage("the response has no answer")));
        }
        let is = |kind: &str| content_type(&response.headers).eq_ignore_ascii_case(kind);
        match (status.is_success(), is("text/event-stream"), is("application/json")) {
            (true, true, _) => {
                let stream = stream::events(response, self.clone(), Origin::Stream(request.id));
                Ok(StreamableHttpPostResponse::Sse(stream, session_id))
            }
            (true, false, true) => {
                let limit = ReadLimit { bytes: self.max_message(), decompressed: self.max_message(), truncate: false };
                let body = match response.read(limit).await {
                    Ok(body) => body,
                    Err(HttpError::TooLarge { limit, .. }) => {
                        return Err(self.violated(request.id, Violation::TooLong { limit }));
                    }
                    Err(error) => {
                        let failure = HttpFailure::Request { error: Box::new(error), sent: true };
                        return Err(self.fail(Some(request), failure));
                    }
                };
                let (router, origin) = (self.router().clone(), Origin::Stream(request.id));
                let handled = offload::run(body.len(), move || {
                    let text = str::from_utf8(&body).map_err(|_| Violation::NotAMessage("it is not UTF-8"))?;
                    router.incoming(text, origin)
                });
                match handled.await {
                    Ok(Received::Forward(answer)) => Ok(StreamableHttpPostResponse::Json(*answer, session_id)),
                    Ok(Received::Answer | Received::Other) => {
                        Err(self.violated(request.id, Violation::NotAMessage("the response is not an answer")))
                    }
                    Err(violation) => Err(self.violated(request.id, violation)),
                }
            }
            (true, false, false) => {
                drop(response.discard().await);
                Err(self
                    .violated(request.id, Violation::NotAMessage("the response is neither JSON nor an event stream")))
            }
            (false, ..) => self.read_refusal(response, request).await,
        }
    }

    /// A response with an unsuccessful status. Its body may be a JSON-RPC error, with any id or none; that of a busy server says no
    /// more than the status.
    async fn read_refusal(&self, response: OpenResponse, request: &Posted) -> PostResult {
        let status = response.status;
        let is_json = content_type(&response.headers).eq_ignore_ascii_case("application/json");
        let is_legacy_refusal = status.is_client_error() && request.is_discover;
        let headers = response.headers.clone();
        let body = response.read(ERROR_LIMIT).await.unwrap_or_default();
        let text = str::from_utf8(&body).ok().filter(|_| is_json).map(surrogates::replace_lone);
        let failure = match text.as_deref().map(message::parse) {
            _ if is_busy(status) => return Err(self.refused_by_status(Some(request), status, headers, body)),
            Some(Ok(Incoming::Failure { failure, .. })) => failure,
            // A server of the legacy era, probably: `rmcp` takes it for one.
            _ if is_legacy_refusal => JsonRpcFailure {
                code: ErrorCode::INVALID_REQUEST.0,
                message: format!("HTTP status {status}"),
                data: None,
            },
            _ => return Err(self.refused_by_status(Some(request), status, headers, body)),
        };
        match self.router().refuse(request.id, failure) {
            Some(answer) => Ok(StreamableHttpPostResponse::Json(answer, None)),
            None => Err(StreamableHttpError::Client(HttpFailed)),
        }
    }

    /// A message failed with a status.
    pub(super) fn refused_by_status(
        &self,
        request: Option<&Posted>,
        status: StatusCode,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> StreamableHttpError<HttpFailed> {
        let secrets = self.address().secrets.all.clone();
        let response = RefusedResponse { status, headers, body, secrets };
        self.fail(request, HttpFailure::Status(Box::new(response)))
    }
}

/// Why the connection cannot be used any more, if this status says so: the credentials or the session are not accepted.
pub(super) fn access_lost(status: StatusCode, session: bool) -> Option<EndCause> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(EndCause::Unauthorized(status.as_u16())),
        StatusCode::NOT_FOUND if session => Some(EndCause::SessionExpired),
        _ => None,
    }
}

/// The content type without its parameters.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}
