//! The HTTP client of `rmcp`.
//!
//! In: messages, with session and protocol headers. Out: their responses, judged by `response` and `stream`. Every request ends
//! when the connection is to be closed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::stream::BoxStream;
use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{ACCEPT, HeaderName, HeaderValue},
};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::Sse;
use tokio::sync::mpsc;
use toolhub_core::clock::{Clock as _, SystemClock};

use super::{
    address::Address,
    response::{Posted, access_lost, content_type},
    stream,
};
use crate::{
    mcp::wire::{
        exchange::{Exchange, HttpFailure, RequestError, is_busy},
        lifecycle::{EndCause, Lifecycle},
        message::Violation,
        router::{Origin, Router},
    },
    rest::status_error::retry_after,
};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long posting a reply, or ending a session, may take.
const SIDE_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How often, and when, a server that is too busy for a stream is asked again.
const MAX_BUSY_STREAMS: u32 = 5;
const MIN_BUSY_DELAY: Duration = Duration::from_secs(1);
const MAX_BUSY_DELAY: Duration = Duration::from_secs(60);

pub(super) type PostResult = Result<StreamableHttpPostResponse, StreamableHttpError<HttpFailed>>;

/// A request failed. The reason is with the exchange, or with the client.
#[derive(Debug, thiserror::Error)]
#[error("the request failed")]
pub(crate) struct HttpFailed;

#[derive(Clone)]
pub(crate) struct HttpClient(Arc<Shared>);

struct Shared {
    address: Address,
    router: Arc<Router>,
    lifecycle: Arc<Lifecycle>,
    max_message: usize,
    /// The headers of the session, for replies to requests of the server.
    session: Mutex<HeaderMap>,
    /// Why a request without an exchange failed.
    failure: Mutex<Option<HttpFailure>>,
    /// Whether a check of the address is running.
    is_checking: AtomicBool,
    /// Whether the server has had an event stream for this client: it answers such requests.
    has_streams: AtomicBool,
}

impl HttpClient {
    pub(super) fn new(address: Address, router: Arc<Router>, lifecycle: Arc<Lifecycle>, max_message: usize) -> Self {
        Self(Arc::new(Shared {
            address,
            router,
            lifecycle,
            max_message,
            session: Mutex::default(),
            failure: Mutex::default(),
            is_checking: AtomicBool::new(false),
            has_streams: AtomicBool::new(false),
        }))
    }

    pub(super) fn address(&self) -> &Address {
        &self.0.address
    }

    pub(super) fn router(&self) -> &Arc<Router> {
        &self.0.router
    }

    pub(super) fn lifecycle(&self) -> &Lifecycle {
        &self.0.lifecycle
    }

    pub(super) fn max_message(&self) -> usize {
        self.0.max_message
    }

    pub(super) fn take_failure(&self) -> Option<HttpFailure> {
        lock(&self.0.failure).take()
    }

    /// Ends the connection if the address accepts no connection any more: over HTTP, nothing else tells that a server is gone.
    pub(super) fn check_address(&self) {
        if self.0.is_checking.swap(true, Ordering::AcqRel) {
            return;
        }
        let client = self.clone();
        // Bounded by the connect timeout.
        tokio::spawn(async move {
            let checked = client.0.address.check().await;
            client.0.is_checking.store(false, Ordering::Release);
            if let Err(reason) = checked {
                client.0.lifecycle.end(EndCause::Unreachable(reason));
            }
        });
    }

    /// Posts the replies to requests of the server, one after the other.
    pub(super) async fn send_replies(self, mut replies: mpsc::Receiver<String>) {
        let posting = async {
            while let Some(text) = replies.recv().await {
                let headers = lock(&self.0.session).clone();
                let sent = AtomicBool::new(false);
                let reply = self.0.address.send(Method::POST, text.into(), headers, &sent);
                if let Ok(Ok(response)) = tokio::time::timeout(SIDE_REQUEST_TIMEOUT, reply).await {
                    drop(response.discard().await);
                }
            }
        };
        tokio::select! {
            _ = self.0.lifecycle.ended() => {}
            () = self.0.lifecycle.close_requested() => {}
            () = posting => {}
        }
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> PostResult {
        let mut all: HeaderMap = headers.into_iter().collect();
        add_session(&mut all, session.as_deref());
        self.remember_session(&all);
        let Ok(body) = serde_json::to_vec(&message) else { return Err(StreamableHttpError::Client(HttpFailed)) };
        let request = Posted::new(&message);
        let not_sent = AtomicBool::new(false);
        let sent =
            request.as_ref().and_then(|request| request.exchange.as_ref()).map_or(&not_sent, Exchange::sent_flag);
        let response = match self.0.address.send(Method::POST, body.into(), all, sent).await {
            Ok(response) => response,
            Err(error) => {
                let failure = HttpFailure::Request { error: Box::new(error), sent: sent.load(Ordering::Acquire) };
                return Err(self.fail(request.as_ref(), failure));
            }
        };
        match request {
            Some(request) => self.read_answer(response, &request, session.is_some()).await,
            None => {
                let (status, headers) = (response.status, response.headers.clone());
                drop(response.discard().await);
                if let Some(cause) = access_lost(status, session.is_some()) {
                    self.0.lifecycle.end(cause);
                }
                if status.is_success() {
                    Ok(StreamableHttpPostResponse::Accepted)
                } else if is_busy(status) {
                    // It may be the end of the handshake.
                    Err(self.refused_by_status(None, status, headers, Vec::new()))
                } else {
                    Err(StreamableHttpError::Client(HttpFailed))
                }
            }
        }
    }

    /// A request failed, for a reason that `rmcp` must not see.
    pub(super) fn fail(&self, request: Option<&Posted>, failure: HttpFailure) -> StreamableHttpError<HttpFailed> {
        if matches!(failure, HttpFailure::Request { .. }) {
            self.check_address();
        }
        match request {
            Some(Posted { id, exchange: Some(_), .. }) => self.0.router.fail(*id, RequestError::Http(failure)),
            _ => *lock(&self.0.failure) = Some(failure),
        }
        StreamableHttpError::Client(HttpFailed)
    }

    pub(super) fn violated(&self, id: i64, violation: Violation) -> StreamableHttpError<HttpFailed> {
        self.0.router.fail(id, RequestError::Invalid(violation));
        StreamableHttpError::Client(HttpFailed)
    }

    fn remember_session(&self, headers: &HeaderMap) {
        let names = [SESSION_ID, PROTOCOL_VERSION];
        let known = names.into_iter().filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())));
        *lock(&self.0.session) = known.collect();
    }

    async fn get(
        &self,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<HttpFailed>> {
        let mut all: HeaderMap = headers.into_iter().collect();
        all.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        add_session(&mut all, session.as_deref());
        let (request, last_event) = last_event.as_deref().map_or((None, None), stream::split_event_id);
        if let Some(value) = last_event.and_then(|event| HeaderValue::from_str(event).ok()) {
            all.insert(LAST_EVENT_ID, value);
        }
        let request = request.filter(|request| self.0.router.is_in_flight(*request));
        let origin = request.map_or(Origin::Unassociated, Origin::Stream);
        let mut waits = 0;
        let response = loop {
            let sent = AtomicBool::new(false);
            let response = self.0.address.send(Method::GET, Bytes::new(), all.clone(), &sent).await;
            let response = response.map_err(|_| {
                self.check_address();
                StreamableHttpError::Client(HttpFailed)
            })?;
            if !is_busy(response.status) || waits == MAX_BUSY_STREAMS {
                break response;
            }
            // `rmcp` asks for the stream of a session only once.
            let wait = retry_after(&response.headers, SystemClock.now()).unwrap_or_default();
            drop(response.discard().await);
            tokio::time::sleep(wait.clamp(MIN_BUSY_DELAY, MAX_BUSY_DELAY)).await;
            waits += 1;
        };
        let status = response.status;
        let is_stream = content_type(&response.headers).eq_ignore_ascii_case("text/event-stream");
        if status.is_success() && is_stream {
            self.0.has_streams.store(true, Ordering::Release);
            return Ok(stream::events(response, self.clone(), origin));
        }
        drop(response.discard().await);
        // A server that never had a stream may have no such route: that says nothing about the session.
        let cause = access_lost(status, session.is_some()).filter(|_| self.0.has_streams.load(Ordering::Acquire));
        if let Some(cause) = cause {
            self.0.lifecycle.end(cause);
        }
        // Anything but a failure of the server, or too much to do, means that there is no such stream, which ends the attempts.
        Err(if status.is_server_error() || is_busy(status) {
            StreamableHttpError::Client(HttpFailed)
        } else {
            StreamableHttpError::ServerDoesNotSupportSse
        })
    }

    /// Runs a request until the connection is to be closed.
    async fn until_closed<T>(
        &self,
        request: impl Future<Output = Result<T, StreamableHttpError<HttpFailed>>>,
    ) -> Result<T, StreamableHttpError<HttpFailed>> {
        tokio::select! {
            biased;
            () = self.0.lifecycle.close_requested() => Err(StreamableHttpError::Client(HttpFailed)),
            result = request => result,
        }
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFailed;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> PostResult {
        self.until_closed(self.post(message, session_id, custom_headers)).await
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<HttpFailed>> {
        self.until_closed(self.get(session_id, last_event_id, custom_headers)).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<HttpFailed>> {
        let mut headers: HeaderMap = custom_headers.into_iter().collect();
        add_session(&mut headers, Some(&session_id));
        let sent = AtomicBool::new(false);
        let deleted = self.0.address.send(Method::DELETE, Bytes::new(), headers, &sent);
        // A server need not support it.
        if let Ok(Ok(response)) = tokio::time::timeout(SIDE_REQUEST_TIMEOUT, deleted).await {
            drop(response.discard().await);
        }
        Ok(())
    }
}

fn add_session(headers: &mut HeaderMap, session: Option<&str>) {
    if let Some(value) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(SESSION_ID, value);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
