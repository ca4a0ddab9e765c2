//! Passes messages between the client and the MCP endpoint.
//!
//! In: lines of the client. Out: requests to the endpoint, and its messages on stdout. Requests run concurrently; notifications and
//! answers are sent in order. A request whose server is lost is sent to the next one if it was not handled or may be repeated; any
//! other one is answered with an error.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use toolhub_net::{Bytes, HeaderMap, Method, Response, header::HeaderValue};

use super::{
    endpoint::{Endpoint, Unanswered},
    errors::{INTERNAL_ERROR, INVALID_REQUEST, error_answer, error_line},
    exchange::{EventMessages, Refusal, Reply, is_answer, is_event_stream, read_text},
    hub_link::HubLink,
    in_flight::{AddError, InFlight, PendingRequest},
    legacy_session::{LegacySession, VERSION_HEADER},
    lines::{Line, Output},
    message::{LISTEN, MODERN, Message, MessageKind},
    modern_headers::ParamHeaders,
};
use crate::failure::Failure;

/// Maximum number of requests that are sent at the same time; further ones wait. A session of the server accepts as many.
const MAX_RUNNING: usize = 256;
/// Notifications and answers that wait to be sent.
const MAX_NOTICES: usize = 256;
/// How often a message is sent.
pub(super) const MAX_ATTEMPTS: u32 = 5;
/// How long a server that is stopping gets before a message is sent again.
const STOPPING_DELAY: Duration = Duration::from_millis(100);
/// How long ending the session may take.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// The headers of a message do not match it.
const HEADER_MISMATCH: i64 = -32020;

/// Passes messages on.
pub(super) struct Bridge {
    pub(super) hub: Arc<HubLink>,
    pub(super) endpoint: Endpoint,
    pub(super) output: Output,
    /// The thread of all calls.
    pub(super) thread: Option<String>,
    pub(super) session: LegacySession,
    /// The version of the last message of the modern era.
    modern_version: Mutex<Option<String>>,
    pub(super) param_headers: ParamHeaders,
    in_flight: InFlight,
    running: Semaphore,
    /// `None` is the last one.
    notices: mpsc::Sender<Option<Message>>,
    /// Whether the stream of the session is held.
    pub(super) has_stream: AtomicBool,
    tasks: TaskTracker,
    pub(super) stopping: CancellationToken,
}

impl Bridge {
    pub(super) fn new(hub: Arc<HubLink>, endpoint: Endpoint, output: Output, thread: Option<String>) -> Arc<Self> {
        let (notices, queue) = mpsc::channel(MAX_NOTICES);
        let bridge = Arc::new(Self {
            hub,
            endpoint,
            output,
            thread,
            session: LegacySession::default(),
            modern_version: Mutex::default(),
            param_headers: ParamHeaders::default(),
            in_flight: InFlight::default(),
            running: Semaphore::new(MAX_RUNNING),
            notices,
            has_stream: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        });
        bridge.spawn(bridge.clone().send_notices(queue));
        bridge
    }

    /// Handles lines until the end of input.
    pub(super) async fn serve(self: &Arc<Self>, input: &mut mpsc::Receiver<Line>) {
        while let Some(line) = input.recv().await {
            match line {
                Line::Text(line) if line.trim_ascii().is_empty() => {}
                Line::Text(line) => match Message::parse(line) {
                    Ok(message) => self.dispatch(message).await,
                    Err(answer) => self.output.send(answer).await,
                },
                Line::TooLong(limit) => {
                    let reason = format!("the line is longer than {limit} bytes (`server.body_limit`)");
                    self.output.send(error_line(&Value::Null, INVALID_REQUEST, &reason, Some("too_large"))).await;
                }
            }
        }
    }

    /// Waits for everything in flight, except for what only the client ends.
    pub(super) async fn finish(&self) {
        self.in_flight.cancel(true);
        let _ = self.notices.send(None).await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends the session, and what is in flight.
    pub(super) async fn close(&self) {
        self.in_flight.cancel(false);
        self.stopping.cancel();
        if self.session.is_open() {
            let mut headers = HeaderMap::new();
            self.session.add_headers(&mut headers);
            let ended = self.endpoint.send(Method::DELETE, Bytes::new(), headers);
            let _ = tokio::time::timeout(END_TIMEOUT, ended).await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.stopping.clone().run_until_cancelled_owned(task);
        // Not supervised: each ends with its request, and all with the bridge.
        self.tasks.spawn(task);
    }

    async fn dispatch(self: &Arc<Self>, message: Message) {
        let is_modern = self.is_modern(&message);
        match (&message.kind, &message.cancels) {
            (MessageKind::Request { id, method }, _) => {
                let request = PendingRequest {
                    id: id.clone(),
                    is_modern,
                    is_endless: method == LISTEN,
                    cancelled: CancellationToken::new(),
                };
                let is_initialize = method == "initialize";
                match self.in_flight.add(request) {
                    // Later messages belong to the session that it opens.
                    Ok(request) if is_initialize => self.clone().request(message, request).await,
                    Ok(request) => self.spawn(self.clone().request(message, request)),
                    Err(error) => {
                        let reason = match error {
                            AddError::SameId => "a request with this id is still in flight",
                            AddError::TooMany => "too many requests are in flight",
                        };
                        self.output.send(error_line(id, INVALID_REQUEST, reason, None)).await;
                    }
                }
            }
            (MessageKind::Notification { .. }, Some(id)) => {
                // Otherwise it was answered meanwhile.
                let Some(request) = self.in_flight.get(id) else { return };
                request.cancelled.cancel();
                if !request.is_modern {
                    let _ = self.notices.send(Some(message)).await;
                }
            }
            (MessageKind::Notification { .. } | MessageKind::Answer, _) => {
                let _ = self.notices.send(Some(message)).await;
            }
        }
    }

    /// Runs a request. Exactly one answer is sent, or none if the client cancelled it.
    async fn request(self: Arc<Self>, message: Message, request: Arc<PendingRequest>) {
        let answered = tokio::select! {
            biased;
            // In the modern era a request is cancelled by closing its connection.
            () = request.cancelled.cancelled(), if request.is_modern => Ok(()),
            answered = self.run(&message, &request) => answered,
        };
        self.in_flight.remove(&request.id);
        if let Err(error) = answered
            && !request.cancelled.is_cancelled()
        {
            self.output.send(error).await;
        }
    }

    /// Sends a request until it is answered.
    ///
    /// # Errors
    /// The error that answers it.
    async fn run(&self, message: &Message, request: &PendingRequest) -> Result<(), String> {
        let _permit = self.running.acquire().await;
        let (mut attempts, mut has_learned) = (0, false);
        let unreachable = |failure: Failure| {
            let reason = format!("the hub cannot be reached: {}", failure.message);
            error_line(&request.id, INTERNAL_ERROR, &reason, Some(&failure.code))
        };
        while !request.cancelled.is_cancelled() {
            attempts += 1;
            self.hub.ready().await.map_err(unreachable)?;
            let (epoch, generation) = (self.hub.epoch(), self.session.generation());
            let reply = match self.post(message).await {
                Ok(response) => self.pass_on(message, request, response).await,
                Err(Unanswered { is_unsent: true, reason }) => Reply::Unsent(reason),
                Err(Unanswered { reason, .. }) => Reply::Lost(reason),
            };
            if matches!(reply, Reply::Unsent(_) | Reply::Lost(_)) {
                self.endpoint.close_idle();
                self.hub.report_lost();
            }
            match reply {
                Reply::Passed => return Ok(()),
                Reply::Unsent(_) if attempts < MAX_ATTEMPTS => self.hub.reconnect(epoch).await.map_err(unreachable)?,
                Reply::Lost(_) if message.is_repeatable() && attempts < MAX_ATTEMPTS => {
                    self.hub.reconnect(epoch).await.map_err(unreachable)?;
                    if request.is_endless {
                        attempts = 0;
                    }
                }
                Reply::Unsent(reason) => {
                    return Err(unreachable(Failure::new("unreachable", reason)));
                }
                Reply::Lost(reason) => {
                    let hub = self.hub.clone();
                    self.spawn(async move { drop(hub.reconnect(epoch).await) });
                    let reason = format!(
                        "the connection to the hub was lost while this request was in flight; whether it was carried out is not known ({reason})"
                    );
                    return Err(error_line(&request.id, INTERNAL_ERROR, &reason, Some("interrupted")));
                }
                Reply::Refused(refusal) => {
                    let is_mismatch = refusal.error["code"] == HEADER_MISMATCH && message.method() == "tools/call";
                    match (refusal.code.as_str(), &self.thread) {
                        _ if attempts >= MAX_ATTEMPTS => return Err(error_answer(&request.id, &refusal.error)),
                        ("session_not_found", _) if self.session.is_open() => {
                            self.renew_session(generation).await.map_err(unreachable)?;
                        }
                        ("thread_not_found", Some(thread)) => {
                            self.hub.create_thread(thread).await.map_err(unreachable)?;
                        }
                        ("shutting_down", _) => {
                            tokio::time::sleep(STOPPING_DELAY).await;
                            self.hub.reconnect(epoch).await.map_err(unreachable)?;
                        }
                        _ if is_mismatch && request.is_modern && !has_learned => {
                            has_learned = true;
                            self.learn_tools(message).await;
                        }
                        _ => return Err(error_answer(&request.id, &refusal.error)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes the messages of a response on.
    async fn pass_on(&self, message: &Message, request: &PendingRequest, response: Response) -> Reply {
        if request.cancelled.is_cancelled() {
            // The cancellation may have arrived before the request.
            let text =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request.id}});
            if let Ok(cancelled) = Message::parse(text.to_string().into()) {
                let _ = self.notices.send(Some(cancelled)).await;
            }
        }
        let headers = response.headers.clone();
        if is_event_stream(&response) {
            let mut messages = EventMessages::new(response);
            loop {
                match messages.next().await {
                    Ok(Some(text)) if is_answer(&text, &request.id) => {
                        self.answer(message, request, &headers, text).await;
                        // The end of the stream, so that its connection can be used again.
                        let _ = tokio::time::timeout(STOPPING_DELAY, messages.next()).await;
                        return Reply::Passed;
                    }
                    Ok(Some(text)) => self.output.send(text).await,
                    Ok(None) => return Reply::Lost("the event stream ended without an answer".into()),
                    Err(reason) => return Reply::Lost(reason),
                }
            }
        }
        let status = response.status;
        match read_text(response).await {
            Err(reason) => Reply::Lost(reason),
            Ok(text) if !status.is_success() => Reply::Refused(Refusal::read(status, &text)),
            Ok(text) if text.is_empty() => match request.cancelled.is_cancelled() {
                true => Reply::Passed,
                false => Reply::Refused(Refusal::read(status, "")),
            },
            Ok(text) => {
                self.answer(message, request, &headers, text).await;
                Reply::Passed
            }
        }
    }

    /// Passes an answer on, and takes from it what later messages need.
    async fn answer(&self, message: &Message, request: &PendingRequest, headers: &HeaderMap, text: String) {
        match message.method() {
            "initialize" => self.session.opened(&message.text, headers, &text),
            "tools/list" => self.param_headers.learn(&text),
            _ => {}
        }
        // The client may use the id again as soon as it has read the answer.
        self.in_flight.remove(&request.id);
        if !request.cancelled.is_cancelled() {
            self.output.send(text).await;
        }
    }

    pub(super) async fn post(&self, message: &Message) -> Result<Response, Unanswered> {
        self.endpoint.send(Method::POST, message.text.clone(), self.headers(message)).await
    }

    fn is_modern(&self, message: &Message) -> bool {
        let mut last = self.modern_version.lock().unwrap_or_else(PoisonError::into_inner);
        match (message.method(), &message.version) {
            ("initialize", _) => false,
            ("server/discover", None) => true,
            (_, Some(version)) if version.as_str() >= MODERN => {
                *last = Some(version.clone());
                true
            }
            (_, Some(_)) => false,
            (_, None) => last.is_some() && !self.session.is_open(),
        }
    }

    fn headers(&self, message: &Message) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !self.is_modern(message) {
            if message.method() != "initialize" {
                self.session.add_headers(&mut headers);
            }
            return headers;
        }
        let last = self.modern_version.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let version = message.version.clone().or(last).unwrap_or_else(|| MODERN.into());
        headers.extend(HeaderValue::try_from(version).ok().map(|version| (VERSION_HEADER, version)));
        self.param_headers.add(message, &mut headers);
        headers
    }
}
