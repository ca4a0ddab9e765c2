//! One request, from the view of its caller: was it sent, and what is its answer.
//!
//! In: the request, which carries the [`Exchange`] through `rmcp` without serializing it. Out: the raw answer, directly from the
//! task that read it: `rmcp` would read it into types that lose what they do not know.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use super::{
    lifecycle::End,
    message::{JsonRpcFailure, Violation},
    updates::UpdateSender,
};
use crate::{rest::HttpError, secret_mask::SecretMask};

/// The raw JSON text of a result, or why there is none.
pub(crate) type RawAnswer = Result<String, RequestError>;

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// Nothing of it was sent.
    NotSent(Unsent),
    /// It was sent, at least in part, and the connection ended before its answer.
    Lost(Arc<End>),
    /// The server answered with an error.
    Refused(JsonRpcFailure),
    /// The answer violates the protocol; the connection goes on.
    Invalid(Violation),
    /// Its HTTP request failed; the connection goes on.
    Http(HttpFailure),
}

/// Why an HTTP request has no answer.
#[derive(Debug)]
pub(crate) enum HttpFailure {
    /// There is no complete response. `sent`: part of the request may have arrived.
    Request { error: Box<HttpError>, sent: bool },
    /// The response has an unsuccessful status, and is no JSON-RPC error.
    Status(Box<RefusedResponse>),
}

impl RequestError {
    /// Whether the server lives, but has too much to do.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Http(HttpFailure::Status(response)) if is_busy(response.status))
    }
}

/// Whether a server that answers with this status lives, but has too much to do.
pub(crate) fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

/// A response with an unsuccessful status.
pub(crate) struct RefusedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// The secrets that the server knows and may repeat.
    pub(crate) secrets: Arc<SecretMask>,
}

impl fmt::Debug for RefusedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why a request was not sent.
#[derive(Debug, Clone)]
pub(crate) enum Unsent {
    /// The connection has ended.
    Ended(Arc<End>),
    /// Too many bytes wait to be written already.
    QueueFull,
}

/// A request that waits for its answer.
#[derive(Clone)]
pub(crate) struct Exchange(Arc<Inner>);

struct Inner {
    answer: Mutex<Option<oneshot::Sender<RawAnswer>>>,
    sent: AtomicBool,
    /// Only calls have updates.
    updates: Option<UpdateSender>,
}

impl Exchange {
    /// A request, and where its answer will arrive. `updates`: of a call.
    pub(crate) fn new(updates: Option<UpdateSender>) -> (Self, oneshot::Receiver<RawAnswer>) {
        let (sender, receiver) = oneshot::channel();
        let inner = Inner { answer: Mutex::new(Some(sender)), sent: AtomicBool::new(false), updates };
        (Self(Arc::new(inner)), receiver)
    }

    /// Completes the request. Only the first answer counts.
    pub(crate) fn complete(&self, answer: RawAnswer) {
        if let Some(sender) = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Fails if the caller is gone.
            let _ = sender.send(answer);
        }
    }

    /// The first bytes have been sent.
    pub(crate) fn mark_sent(&self) {
        self.0.sent.store(true, Ordering::Release);
    }

    /// Whether any byte was sent, for a sender that sets it itself.
    pub(crate) fn sent_flag(&self) -> &AtomicBool {
        &self.0.sent
    }

    /// The error of a request whose connection has ended.
    pub(crate) fn lost(&self, end: Arc<End>) -> RequestError {
        if self.0.sent.load(Ordering::Acquire) {
            RequestError::Lost(end)
        } else {
            RequestError::NotSent(Unsent::Ended(end))
        }
    }

    /// Where updates of the call go; `None` if it is no call.
    pub(crate) fn updates(&self) -> Option<&UpdateSender> {
        self.0.updates.as_ref()
    }
}
