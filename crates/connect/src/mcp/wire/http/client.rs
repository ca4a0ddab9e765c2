//! Sends what `rmcp` wants to be posted, with `toolhub-net`, and judges the responses.
//!
//! In: messages, with session and protocol headers. Out: answers to the router, and to `rmcp` what it needs to go on. A response
//! that violates the protocol fails its own request only. Everything here ends when the connection is to be closed.

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
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, GetExtensions, JsonRpcMessage},
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    },
};
use serde_json::Map;
use sse_stream::Sse;
use tokio::sync::mpsc;
use toolhub_core::{
    Effect, ToolError,
    clock::{Clock as _, SystemClock},
    offload,
};

use super::{HttpStartError, stream};
use crate::{
    command::ProgramSecrets,
    mcp::wire::{
        exchange::{Exchange, RequestError, Unsent},
        lifecycle::{End, EndCause, Lifecycle},
        message::{self, Incoming, JsonRpcFailure, Violation, number},
        router::{Origin, ReplySink, Router},
    },
    rest::{
        HttpError, OpenResponse, Plan, ReadLimit, Rest, SendOptions, add_secret_headers, send_request, status_error,
    },
    secret_mask::SecretMask,
};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How many replies to requests of the server wait to be posted.
const MAX_REPLIES: usize = 32;
/// How long posting a reply, or ending a session, may take.
const SIDE_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of an error response is read.
const ERROR_LIMIT: ReadLimit = ReadLimit { bytes: 256 * 1024, decompressed: 256 * 1024, truncate: true };
/// Longer session ids are refused.
const MAX_SESSION_ID: usize = 1_024;

type PostResult = Result<StreamableHttpPostResponse, StreamableHttpError<HttpFailed>>;

/// A request failed. The reason is with the exchange, or with the client.
#[derive(Debug, thiserror::Error)]
#[error("the request failed")]
pub(crate) struct HttpFailed;

/// The settings of an address, and its secrets.
pub(super) struct Prepared {
    plan: Plan,
    pub(super) secrets: Arc<ProgramSecrets>,
    replies: mpsc::Sender<String>,
}

#[derive(Clone)]
pub(crate) struct HttpClient(Arc<Shared>);

struct Shared {
    plan: Plan,
    secrets: Arc<ProgramSecrets>,
    router: Arc<Router>,
    lifecycle: Arc<Lifecycle>,
    max_message: usize,
    /// The headers of the session, for replies to requests of the server.
    session: Mutex<HeaderMap>,
    /// The last event id of each open stream, with the request it belongs to.
    resumable: Mutex<HashMap<String, i64>>,
    /// Why a request without an exchange failed.
    failure: Mutex<Option<(HttpError, bool)>>,
}

pub(super) async fn prepare(rest: &Rest) -> Result<(Prepared, mpsc::Receiver<String>), HttpStartError> {
    let plan = Plan::new(rest).map_err(HttpStartError::Settings)?;
    let mut outgoing = blank_request(&plan).map_err(HttpStartError::Credentials)?;
    let mut values = add_secret_headers(&plan, &mut outgoing).map_err(HttpStartError::Credentials)?;
    values.extend(plan.secret_texts.iter().cloned());
    if let Some(credentials) = &plan.credentials {
        values.push(credentials.apply(&mut outgoing, &plan).await.map_err(HttpStartError::Credentials)?);
        values.extend(credentials.password());
    }
    let mask = || SecretMask::new(values.iter().map(|value| &**value));
    let secrets = Arc::new(ProgramSecrets { all: mask(), named: mask() });
    let (replies, receiver) = mpsc::channel(MAX_REPLIES);
    Ok((Prepared { plan, secrets, replies }, receiver))
}

fn blank_request(plan: &Plan) -> Result<crate::rest::OutgoingRequest, HttpError> {
    plan.template.fill(&Map::new()).map_err(|error| HttpError::Broken(error.0))
}

impl Prepared {
    pub(super) fn reply_sink(&self) -> ReplySink {
        let replies = self.replies.clone();
        Box::new(move |text| replies.try_send(text).map_err(|_| Violation::RepliesUnread(MAX_REPLIES)))
    }

    pub(super) fn connect(self, router: Arc<Router>, lifecycle: Arc<Lifecycle>, max_message: usize) -> HttpClient {
        HttpClient(Arc::new(Shared {
            plan: self.plan,
            secrets: self.secrets,
            router,
            lifecycle,
            max_message,
            session: Mutex::default(),
            resumable: Mutex::default(),
            failure: Mutex::default(),
        }))
    }
}

impl HttpClient {
    /// The address, for `rmcp`, which passes it back. Requests go to the address of the settings.
    pub(super) fn display_url(&self) -> String {
        self.0.plan.origin.to_string()
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

    pub(super) fn take_failure(&self) -> Option<(HttpError, bool)> {
        lock(&self.0.failure).take()
    }

    /// Path and query of the address.
    pub(super) fn target(&self) -> Option<String> {
        blank_request(&self.0.plan).ok().map(|request| request.target)
    }

    pub(super) fn origin(&self) -> String {
        self.0.plan.origin.to_string()
    }

    /// Remembers which request a stream belongs to, by its last event.
    pub(super) fn set_resumable(&self, event: &str, request: i64) {
        let mut resumable = lock(&self.0.resumable);
        resumable.retain(|_, id| *id != request);
        resumable.insert(event.to_owned(), request);
    }

    /// The stream of a request has ended for good.
    pub(super) fn forget_resumable(&self, request: i64) {
        lock(&self.0.resumable).retain(|_, id| *id != request);
    }

    /// Posts the replies to requests of the server, one after the other.
    pub(super) async fn send_replies(self, mut replies: mpsc::Receiver<String>) {
        let posting = async {
            while let Some(text) = replies.recv().await {
                let headers = lock(&self.0.session).clone();
                let sent = AtomicBool::new(false);
                let reply = self.send(Method::POST, text.into(), headers, &sent);
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

    /// Sends one request with the credentials. A token that the server refuses is fetched again, once.
    pub(super) async fn send(
        &self,
        method: Method,
        body: Bytes,
        headers: HeaderMap,
        sent: &AtomicBool,
    ) -> Result<OpenResponse, HttpError> {
        let plan = &self.0.plan;
        let mut renewed = false;
        loop {
            let mut outgoing = blank_request(plan)?;
            outgoing.method = method.clone();
            outgoing.body = body.clone();
            outgoing.headers.insert(USER_AGENT, toolhub_net::USER_AGENT);
            outgoing.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
            outgoing.headers.remove(CONTENT_TYPE);
            if method == Method::POST {
                outgoing.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            outgoing.headers.extend(headers.clone());
            add_secret_headers(plan, &mut outgoing)?;
            let secret = match &plan.credentials {
                Some(credentials) => Some((credentials, credentials.apply(&mut outgoing, plan).await?)),
                None => None,
            };
            // A call may take as long as its own timeout allows, so there is no read timeout.
            let options = SendOptions { pool: &plan.pool, read_timeout: Duration::MAX, sent, call: None };
            let response = send_request(&options, &outgoing, None).await?;
            if let Some((credentials, secret)) = secret.filter(|_| !renewed)
                && response.status == StatusCode::UNAUTHORIZED
                && credentials.invalidate(&secret).await
            {
                renewed = true;
                drop(response.discard().await);
                sent.store(false, Ordering::Release);
                continue;
            }
            return Ok(response);
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
        let response = match self.send(Method::POST, body.into(), all, sent).await {
            Ok(response) => response,
            Err(error) => return Err(self.fail(request.as_ref(), error, sent.load(Ordering::Acquire))),
        };
        match request {
            Some(request) => self.read_answer(response, &request, session.is_some()).await,
            None => {
                let status = response.status;
                drop(response.discard().await);
                if let Some(cause) = access_lost(status, session.is_some()) {
                    self.0.lifecycle.end(cause);
                }
                if status.is_success() {
                    Ok(StreamableHttpPostResponse::Accepted)
                } else {
                    Err(StreamableHttpError::Client(HttpFailed))
                }
            }
        }
    }

    async fn read_answer(&self, response: OpenResponse, request: &Posted, session: bool) -> PostResult {
        let status = response.status;
        let session_id = response.headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()).map(String::from);
        let session_id = session_id.filter(|id| id.len() <= MAX_SESSION_ID);
        if let Some(cause) = access_lost(status, session) {
            drop(response.discard().await);
            let end = Arc::new(End::from(cause));
            // The server refused the request, so it had no effect. Before the end, which all other requests get.
            self.0.router.fail(request.id, RequestError::NotSent(Unsent::Ended(end.clone())));
            self.0.lifecycle.end(End::clone(&end));
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
                let limit = ReadLimit { bytes: self.0.max_message, decompressed: self.0.max_message, truncate: false };
                let body = match response.read(limit).await {
                    Ok(body) => body,
                    Err(HttpError::TooLarge { limit, .. }) => {
                        return Err(self.violated(request.id, Violation::TooLong { limit }));
                    }
                    Err(error) => return Err(self.fail(Some(request), error, true)),
                };
                let (router, origin) = (self.0.router.clone(), Origin::Stream(request.id));
                let handled = offload::run(body.len(), move || {
                    let text = str::from_utf8(&body).map_err(|_| Violation::NotAMessage("it is not UTF-8"))?;
                    router.incoming(text, origin)
                });
                match handled.await {
                    Ok(Some(answer)) => Ok(StreamableHttpPostResponse::Json(answer, session_id)),
                    Ok(None) => Err(self.violated(request.id, Violation::NotAMessage("the response is not an answer"))),
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

    /// A response with an unsuccessful status. Its body may be a JSON-RPC error, with any id or none.
    async fn read_refusal(&self, response: OpenResponse, request: &Posted) -> PostResult {
        let status = response.status;
        let is_json = content_type(&response.headers).eq_ignore_ascii_case("application/json");
        if !is_json && !(status.is_client_error() && request.is_discover) {
            let now = SystemClock.now();
            let error = status_error::from_response(response, &self.0.secrets.all, now, Effect::None).await;
            return Err(self.fail(Some(request), HttpError::Tool(Box::new(error)), true));
        }
        let body = response.read(ERROR_LIMIT).await.unwrap_or_default();
        let failure = match str::from_utf8(&body).ok().map(message::parse) {
            Some(Ok(Incoming::Failure { failure, .. })) => failure,
            // A server of the legacy era, probably: `rmcp` takes it for one.
            _ if request.is_discover && status.is_client_error() => JsonRpcFailure {
                code: ErrorCode::INVALID_REQUEST.0,
                message: format!("HTTP status {status}"),
                data: None,
            },
            _ => {
                let error = ToolError::refused(format!("The MCP server refused this request ({status})."));
                let error = if status.is_server_error() {
                    let text = format!("the MCP server responded {status}");
                    let error = ToolError::with_kind(toolhub_core::ErrorKind::UpstreamError, text);
                    error.hide_from_model().effect(Effect::Unknown)
                } else {
                    error
                };
                return Err(self.fail(Some(request), HttpError::Tool(Box::new(error)), true));
            }
        };
        match self.0.router.refuse(request.id, failure) {
            Some(answer) => Ok(StreamableHttpPostResponse::Json(answer, None)),
            None => Err(StreamableHttpError::Client(HttpFailed)),
        }
    }

    /// A request failed, for a reason that `rmcp` must not see.
    fn fail(&self, request: Option<&Posted>, error: HttpError, sent: bool) -> StreamableHttpError<HttpFailed> {
        match request {
            Some(Posted { id, exchange: Some(_), .. }) => {
                self.0.router.fail(*id, RequestError::Http { error: Box::new(error), sent });
            }
            _ => *lock(&self.0.failure) = Some((error, sent)),
        }
        StreamableHttpError::Client(HttpFailed)
    }

    fn violated(&self, id: i64, violation: Violation) -> StreamableHttpError<HttpFailed> {
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
        if let Some(value) = last_event.as_deref().and_then(|event| HeaderValue::from_str(event).ok()) {
            all.insert(LAST_EVENT_ID, value);
        }
        let request = last_event.and_then(|event| lock(&self.0.resumable).get(&event).copied());
        let origin = request.map_or(Origin::Unassociated, Origin::Stream);
        let sent = AtomicBool::new(false);
        let response = self.send(Method::GET, Bytes::new(), all, &sent).await;
        let response = response.map_err(|_| StreamableHttpError::Client(HttpFailed))?;
        let status = response.status;
        let is_stream = content_type(&response.headers).eq_ignore_ascii_case("text/event-stream");
        if status.is_success() && is_stream {
            return Ok(stream::events(response, self.clone(), origin));
        }
        drop(response.discard().await);
        if let Some(cause) = access_lost(status, session.is_some()) {
            self.0.lifecycle.end(cause);
        }
        // Anything but a failure of the server means that there is no such stream, which ends the attempts.
        Err(if status.is_server_error() {
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
        let deleted = self.send(Method::DELETE, Bytes::new(), headers, &sent);
        // A server need not support it.
        if let Ok(Ok(response)) = tokio::time::timeout(SIDE_REQUEST_TIMEOUT, deleted).await {
            drop(response.discard().await);
        }
        Ok(())
    }
}

/// A request that is posted.
struct Posted {
    id: i64,
    exchange: Option<Exchange>,
    is_discover: bool,
}

impl Posted {
    fn new(message: &ClientJsonRpcMessage) -> Option<Self> {
        let JsonRpcMessage::Request(request) = message else { return None };
        Some(Self {
            id: number(&request.id)?,
            exchange: request.request.extensions().get::<Exchange>().cloned(),
            is_discover: matches!(request.request, ClientRequest::DiscoverRequest(_)),
        })
    }
}

/// Why the connection cannot be used any more, if this status says so: the credentials or the session are not accepted.
fn access_lost(status: StatusCode, session: bool) -> Option<EndCause> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(EndCause::Unauthorized(status.as_u16())),
        StatusCode::NOT_FOUND if session => Some(EndCause::SessionExpired),
        _ => None,
    }
}

fn add_session(headers: &mut HeaderMap, session: Option<&str>) {
    if let Some(value) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(SESSION_ID, value);
    }
}

/// The content type without its parameters.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
