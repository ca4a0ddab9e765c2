//! A session of a client of the legacy era: its owner and thread, and what is in flight.
//!
//! In: requests, and what the client sends about them. Out: where each message belongs, and the streams that can be resumed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
use rmcp::model::{ClientJsonRpcMessage, InitializeRequestParams, LoggingLevel, RequestId};
use smol_str::SmolStr;
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::Instant,
};
use toolhub_core::{CancellationToken, backend::StoreError, ids::ThreadId};

use super::{
    message_log::{MessageLog, Reader},
    resource_updates::ResourceUpdates,
    stored_sessions::{McpSession, McpSessions, SessionOwner, SessionSettings},
};

/// For so long after an answer its stream can be resumed, if the session is not unloaded before.
const RESUME_TIME: Duration = Duration::from_secs(60);
/// Maximum number of requests in flight in a session.
const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of answered streams of a session that can be resumed.
const MAX_RESUMABLE: usize = 16;

/// A session.
pub(super) struct Session {
    id: SmolStr,
    stored: Arc<McpSessions>,
    owner: SessionOwner,
    /// The thread of its calls.
    pub(super) thread: ThreadId,
    /// What the client said at `initialize`, with the protocol version that was agreed on.
    pub(super) client: InitializeRequestParams,
    /// The resources that the client subscribed to.
    pub(super) updates: Arc<ResourceUpdates>,
    stopping: CancellationToken,
    /// Cancelled when the session ends.
    pub(super) ended: CancellationToken,
    activity: Mutex<Activity>,
    /// The version of the settings that apply here.
    version: Mutex<u64>,
}

struct Activity {
    last_use: Instant,
    next_stream: u64,
    /// Where messages for a request go, by its id.
    in_flight: HashMap<RequestId, UnboundedSender<ClientJsonRpcMessage>>,
    next_server_request: i64,
    /// Requests of the server that wait for an answer.
    server_requests: HashMap<RequestId, SentRequest>,
    /// The streams that can be resumed, by number.
    streams: BTreeMap<u64, Arc<MessageLog>>,
    open_streams: usize,
    /// Ends the stream of the session that was opened last.
    stream: CancellationToken,
    #[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
    log_level: Option<LoggingLevel>,
}

/// A request of the server.
struct SentRequest {
    /// The request of the client that it belongs to.
    of: RequestId,
    /// Its id there.
    id: RequestId,
    /// Whether only a key that may decide approvals may answer it.
    needs_approver: bool,
}

/// Why a request of a session is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestRefused {
    /// Too many are in flight.
    TooMany,
    /// Its id is in use.
    SameId,
}

impl Session {
    pub(super) fn new(
        stored: &Arc<McpSessions>,
        (session, version): (McpSession, u64),
        owner: SessionOwner,
        client: InitializeRequestParams,
        stopping: &CancellationToken,
    ) -> Self {
        let SessionSettings { subscriptions, log_level } = session.settings;
        Self {
            id: session.id,
            stored: stored.clone(),
            updates: Arc::new(ResourceUpdates::new(owner.tenant.clone(), subscriptions)),
            owner,
            thread: session.thread,
            client,
            stopping: stopping.clone(),
            // Not a child of `stopping`: requests in flight may end first.
            ended: CancellationToken::new(),
            activity: Mutex::new(Activity::new(log_level)),
            version: Mutex::new(version),
        }
    }

    /// Stores what its client has set, so that it holds after a pause, after a restart and on other nodes.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn save_settings(&self, change: impl Fn(&mut SessionSettings)) -> Result<(), StoreError> {
        if let Some((settings, version)) = self.stored.change_settings(&self.owner, &self.id, change).await? {
            self.apply_settings(&settings, version);
        }
        Ok(())
    }

    /// Applies settings that were stored here or on another node, unless later ones are known.
    pub(super) fn apply_settings(&self, settings: &SessionSettings, version: u64) {
        let mut known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if *known < version {
            *known = version;
            self.updates.replace(&settings.subscriptions);
            self.lock().log_level = settings.log_level;
        }
    }

    /// The version of the settings that apply here.
    pub(super) fn version(&self) -> u64 {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Who it belongs to.
    pub(super) fn owner(&self) -> &SessionOwner {
        &self.owner
    }

    /// Records its use.
    pub(super) fn touch(&self) {
        self.lock().last_use = Instant::now();
    }

    /// Forgets answers that are too old. Returns whether it is used.
    pub(super) fn sweep(&self, now: Instant, idle_time: Duration) -> Usage {
        self.lock().sweep(now, idle_time)
    }

    /// Begins a request. Its messages arrive at the receiver.
    pub(super) fn begin(
        self: &Arc<Self>,
        id: RequestId,
    ) -> Result<(RequestGuard, UnboundedReceiver<ClientJsonRpcMessage>), RequestRefused> {
        let mut activity = self.lock();
        if activity.in_flight.contains_key(&id) {
            return Err(RequestRefused::SameId);
        }
        if activity.in_flight.len() >= MAX_IN_FLIGHT {
            return Err(RequestRefused::TooMany);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        activity.in_flight.insert(id.clone(), sender);
        let stream = activity.next_stream;
        activity.next_stream += 1;
        let log = Arc::<MessageLog>::default();
        Ok((RequestGuard { session: self.clone(), id, stream, log, has_ended: false }, receiver))
    }

    /// Registers a request of the server that belongs to a request in flight. Returns the id it is sent with.
    pub(super) fn add_server_request(&self, request: &RequestId, id: RequestId, needs_approver: bool) -> RequestId {
        let mut activity = self.lock();
        activity.next_server_request += 1;
        let sent = RequestId::Number(activity.next_server_request);
        activity.server_requests.insert(sent.clone(), SentRequest { of: request.clone(), id, needs_approver });
        sent
    }

    /// Forgets a request of the server that is not needed any more. Returns the id it was sent with.
    pub(super) fn withdraw_server_request(&self, request: &RequestId, id: &RequestId) -> Option<RequestId> {
        let mut activity = self.lock();
        let mut sent = activity.server_requests.iter();
        let sent = sent.find(|(_, it)| it.of == *request && it.id == *id).map(|(sent, _)| sent.clone())?;
        activity.server_requests.remove(&sent);
        Some(sent)
    }

    /// Passes an answer to a request of the server, or a cancellation, on to the request it belongs to. Returns `false` if it is an
    /// answer that only a key that may decide approvals may give.
    pub(super) fn deliver(&self, mut message: ClientJsonRpcMessage, is_approver: bool) -> bool {
        use rmcp::model::{ClientNotification::CancelledNotification, JsonRpcMessage};
        let mut activity = self.lock();
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let needs_approver = |id: &RequestId| activity.server_requests.get(id).is_some_and(|sent| sent.needs_approver);
        if !is_approver && answered.is_some_and(needs_approver) {
            return false;
        }
        let request = match &mut message {
            JsonRpcMessage::Response(response) => activity.answered(&mut response.id),
            JsonRpcMessage::Error(error) => error.id.as_mut().and_then(|id| activity.answered(id)),
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                CancelledNotification(cancelled) => cancelled.params.request_id.clone(),
                _ => None,
            },
            JsonRpcMessage::Request(_) => None,
        };
        if let Some(sender) = request.and_then(|request| activity.in_flight.get(&request)) {
            let _ = sender.send(message);
        }
        true
    }

    /// Lets a stream be resumed, also for a while after its answer.
    pub(super) fn keep_stream(&self, number: u64, log: Arc<MessageLog>) {
        let mut activity = self.lock();
        activity.streams.insert(number, log);
        let answered = activity.streams.iter().filter(|(_, log)| log.ended_at().is_some());
        let answered: Vec<u64> = answered.map(|(number, _)| *number).collect();
        for number in &answered[..answered.len().saturating_sub(MAX_RESUMABLE)] {
            activity.streams.remove(number);
        }
    }

    /// Resumes a stream after a number of messages.
    pub(super) fn resume(&self, stream: u64, received: usize) -> Option<Reader> {
        self.lock().streams.get(&stream).map(|log| log.read_from(received))
    }

    /// The least level of log lines that its client wants.
    #[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
    pub(super) fn log_level(&self) -> LoggingLevel {
        self.lock().log_level.unwrap_or(LoggingLevel::Info)
    }

    /// Ends the stream of the session, if there is one. Returns what ends the next one.
    pub(super) fn replace_stream(&self) -> CancellationToken {
        let mut activity = self.lock();
        let next = self.stopping.child_token();
        std::mem::replace(&mut activity.stream, next.clone()).cancel();
        next
    }

    /// Keeps the session open while a stream of it is.
    pub(super) fn open_stream(self: &Arc<Self>) -> OpenStream {
        self.lock().open_streams += 1;
        OpenStream(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    #[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
    fn new(log_level: Option<LoggingLevel>) -> Self {
        Self {
            last_use: Instant::now(),
            // Not from zero: after a restart an id of before must not name something else.
            next_stream: fastrand::u64(..1 << 48),
            in_flight: HashMap::new(),
            // Not negative, and exact as a double: clients in JavaScript read and return it as one.
            next_server_request: fastrand::i64(0..1 << 48),
            server_requests: HashMap::new(),
            streams: BTreeMap::new(),
            open_streams: 0,
            stream: CancellationToken::new(),
            log_level,
        }
    }

    /// Takes the request that an answer belongs to, and gives the answer the id it has there.
    fn answered(&mut self, id: &mut RequestId) -> Option<RequestId> {
        let sent = self.server_requests.remove(id)?;
        *id = sent.id;
        Some(sent.of)
    }

    /// Forgets answers that are too old.
    fn sweep(&mut self, now: Instant, idle_time: Duration) -> Usage {
        let is_old = |ended: Instant| now.duration_since(ended) >= RESUME_TIME;
        self.streams.retain(|_, log| !log.ended_at().is_some_and(is_old));
        if !self.in_flight.is_empty() || self.open_streams > 0 {
            return Usage::Busy;
        }
        if now.duration_since(self.last_use) >= idle_time { Usage::Unused } else { Usage::Recent }
    }
}

/// Whether a session is used.
pub(super) enum Usage {
    /// It has a request in flight, or an open stream.
    Busy,
    Recent,
    Unused,
}

/// A request in flight, until it is dropped or has ended before.
pub(super) struct RequestGuard {
    session: Arc<Session>,
    id: RequestId,
    stream: u64,
    log: Arc<MessageLog>,
    has_ended: bool,
}

impl RequestGuard {
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    /// The messages of the server about the request.
    pub(super) fn log(&self) -> &Arc<MessageLog> {
        &self.log
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends the request with its answer, or without one. Its client may use the id again as soon as it has the answer, so the request is
    /// not in flight from before that on.
    pub(super) fn end(&mut self, answer: Option<String>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let mut activity = self.session.lock();
            activity.in_flight.remove(&self.id);
            activity.server_requests.retain(|_, sent| sent.of != self.id);
            activity.last_use = Instant::now();
            drop(activity);
            self.log.end(answer);
        }
    }

    /// The number of its stream in the session.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        // Without an answer, if the session has ended.
        self.end(None);
    }
}

/// An open event stream of a session.
pub(super) struct OpenStream(Arc<Session>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.open_streams -= 1;
        activity.last_use = Instant::now();
    }
}
