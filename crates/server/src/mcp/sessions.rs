//! The sessions of clients of the legacy era: who owns each, its thread, and what is in flight.
//!
//! In: new sessions and their owners, requests, and what clients send about them. Out: the same session for its owner only; for every
//! other caller a session that does not exist. A session is an entry of a table: it has no task of its own. One that is not used is
//! unloaded, and loaded from the store when its client comes back.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

#[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
use rmcp::model::{ClientJsonRpcMessage, InitializeRequestParams, LoggingLevel, RequestId};
use smol_str::SmolStr;
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::Instant,
};
use toolhub_core::{
    CancellationToken,
    backend::{Backend, StoreError},
    clock::{Clock, SystemClock},
    ids::ThreadId,
    tasks,
};

use super::{
    message_log::{MessageLog, Reader},
    resource_updates::ResourceUpdates,
    stored_sessions::{CreateSessionError, McpSession, McpSessions, SessionLimits, SessionOwner},
};
use crate::{scope::Principal, settings::McpSettings};

/// For so long after an answer its stream can be resumed, if the session is not unloaded before.
const RESUME_TIME: Duration = Duration::from_secs(60);
/// How often unused sessions are unloaded and old answers removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of requests in flight in a session.
const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of answered streams of a session that can be resumed.
const MAX_RESUMABLE: usize = 16;

/// All sessions.
pub(super) struct Sessions {
    stored: Arc<McpSessions>,
    limits: SessionLimits,
    stopping: CancellationToken,
    is_swept: AtomicBool,
    loaded: Mutex<HashMap<SmolStr, Arc<Session>>>,
}

/// A session.
pub(super) struct Session {
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
    log_level: LoggingLevel,
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

impl Sessions {
    pub(super) fn new(store: &Arc<dyn Backend>, settings: &McpSettings, stopping: &CancellationToken) -> Arc<Self> {
        let McpSettings { session_idle, max_sessions, max_sessions_per_caller, .. } = settings;
        let limits = SessionLimits { total: *max_sessions, per_caller: *max_sessions_per_caller, idle: *session_idle };
        Arc::new(Self {
            stored: McpSessions::new(store.clone()),
            limits,
            stopping: stopping.clone(),
            is_swept: AtomicBool::new(false),
            loaded: Mutex::default(),
        })
    }

    /// The number of sessions, loaded or not.
    pub(super) fn count(&self) -> usize {
        self.stored.total()
    }

    /// Opens a session. Returns its id, which cannot be guessed.
    pub(super) async fn open(
        self: &Arc<Self>,
        principal: &Principal,
        client: InitializeRequestParams,
    ) -> Result<SmolStr, CreateSessionError> {
        let (owner, now) = (owner_of(principal), SystemClock.now());
        // Independent of the thread, which others may see.
        let id = SmolStr::from(ThreadId::mint().as_str().replacen("th_", "mcp_", 1));
        let session = McpSession {
            id: id.clone(),
            caller: owner.caller.clone(),
            thread: ThreadId::mint(),
            client: serde_json::to_value(&client).unwrap_or_default(),
            created_at: now,
        };
        let replaced = self.stored.create(&owner, &session, self.limits, now).await?;
        if let Some(session) = replaced.and_then(|id| self.lock().remove(&id)) {
            session.ended.cancel();
        }
        self.add(id.clone(), owner, session.thread, client);
        Ok(id)
    }

    /// The session with this id, if the caller owns it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn find(
        self: &Arc<Self>,
        id: &str,
        principal: &Principal,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let (owner, now) = (owner_of(principal), SystemClock.now());
        let loaded = self.lock().get(id).cloned();
        if let Some(session) = loaded {
            if session.owner != owner {
                return Ok(None);
            }
            session.lock().last_use = Instant::now();
            self.stored.touch(id, now);
            return Ok(Some(session));
        }
        let Some(stored) = self.stored.load(&owner, id, now).await? else { return Ok(None) };
        let Ok(client) = serde_json::from_value(stored.client) else { return Ok(None) };
        Ok(Some(self.add(stored.id, owner, stored.thread, client)))
    }

    /// Ends a session of the caller and what is in flight in it. Returns whether there was one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn close(self: &Arc<Self>, id: &str, principal: &Principal) -> Result<bool, StoreError> {
        let owner = owner_of(principal);
        let is_removed = self.stored.remove(&owner, id, SystemClock.now()).await?;
        let mut loaded = self.lock();
        if loaded.get(id).is_none_or(|session| session.owner != owner) {
            return Ok(is_removed);
        }
        if let Some(session) = loaded.remove(id) {
            session.ended.cancel();
        }
        Ok(true)
    }

    /// Adds a session, or returns the one that another request has loaded.
    fn add(
        self: &Arc<Self>,
        id: SmolStr,
        owner: SessionOwner,
        thread: ThreadId,
        client: InitializeRequestParams,
    ) -> Arc<Session> {
        // Not a child of `stopping`: requests in flight may end first.
        let ended = CancellationToken::new();
        let session = Session {
            owner,
            thread,
            client,
            updates: Arc::default(),
            stopping: self.stopping.clone(),
            ended,
            activity: Mutex::new(Activity::new()),
        };
        let session = self.lock().entry(id).or_insert_with(|| Arc::new(session)).clone();
        self.sweep_in_background();
        session
    }

    /// Unloads unused sessions from time to time.
    fn sweep_in_background(self: &Arc<Self>) {
        if self.is_swept.swap(true, Relaxed) {
            return;
        }
        let (sessions, stopping) = (Arc::downgrade(self), self.stopping.clone());
        tasks::spawn("MCP sessions", stopping, move |stop| Box::pin(sweep_until_stopped(sessions.clone(), stop)));
    }

    fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|id, session| match session.lock().sweep(now, self.limits.idle) {
            Usage::Busy => {
                self.stored.touch(id, SystemClock.now());
                true
            }
            Usage::Recent => true,
            Usage::Unused => false,
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SmolStr, Arc<Session>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owner_of(principal: &Principal) -> SessionOwner {
    SessionOwner { tenant: principal.tenant.clone(), caller: principal.caller.clone() }
}

async fn sweep_until_stopped(sessions: Weak<Sessions>, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL)).await.is_some() {
        let Some(sessions) = sessions.upgrade() else { return };
        sessions.sweep();
    }
}

impl Session {
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
        Ok((RequestGuard { session: self.clone(), id, stream, log }, receiver))
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
        self.lock().log_level
    }

    #[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
    pub(super) fn set_log_level(&self, level: LoggingLevel) {
        self.lock().log_level = level;
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
    fn new() -> Self {
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
            #[allow(deprecated, reason = "log levels are deprecated, but clients still set them")]
            log_level: LoggingLevel::Info,
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
enum Usage {
    /// It has a request in flight, or an open stream.
    Busy,
    Recent,
    Unused,
}

/// A request in flight. Ends with it.
pub(super) struct RequestGuard {
    session: Arc<Session>,
    id: RequestId,
    stream: u64,
    log: Arc<MessageLog>,
}

impl RequestGuard {
    pub(super) fn id(&self) -> &RequestId {
        &self.id
    }

    /// The messages of the server about the request.
    pub(super) fn log(&self) -> &Arc<MessageLog> {
        &self.log
    }

    /// The number of its stream in the session.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        // Without an answer, if the session has ended.
        self.log.end();
        let mut activity = self.session.lock();
        activity.in_flight.remove(&self.id);
        activity.server_requests.retain(|_, sent| sent.of != self.id);
        activity.last_use = Instant::now();
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
