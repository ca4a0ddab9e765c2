//! Passes messages between the client and the MCP endpoint.
//!
//! In: lines of the client. Out: requests to the endpoint, and its messages on stdout. Requests run concurrently (`requests`);
//! notifications and answers are sent in order (`notices`).

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use toolhub_net::{Bytes, HeaderMap, Method, Response, header::HeaderValue};

use super::{
    endpoint::{Endpoint, Unanswered},
    errors::{INVALID_REQUEST, error_line},
    hub_link::HubLink,
    in_flight::{AddError, InFlight, PendingRequest},
    legacy_session::{LegacySession, VERSION_HEADER},
    lines::{Line, Output},
    message::{LISTEN, MODERN, Message, MessageKind},
    modern_headers::ParamHeaders,
};

/// Maximum number of calls that are sent at the same time; further ones wait. A session of the server accepts as many together with
/// the quick requests.
const MAX_RUNNING: usize = 240;
/// Maximum number of quick requests that are sent at the same time.
const MAX_QUICK: usize = 16;
/// Notifications and answers that wait to be sent.
const MAX_NOTICES: usize = 256;
/// How often a message is sent.
pub(super) const MAX_ATTEMPTS: u32 = 5;
/// How long ending the session may take.
const END_TIMEOUT: Duration = Duration::from_secs(1);

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
    pub(super) in_flight: InFlight,
    /// Slots of calls.
    pub(super) running: Semaphore,
    /// Slots of quick requests.
    pub(super) quick: Semaphore,
    /// `None` is the last one.
    pub(super) notices: mpsc::Sender<Option<Message>>,
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
            quick: Semaphore::new(MAX_QUICK),
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
                Line::TooLong { limit, id } => {
                    let reason = format!("the line is longer than {limit} bytes (`server.body_limit`)");
                    self.output.send(error_line(&id, INVALID_REQUEST, &reason, Some("too_large"))).await;
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

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
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
