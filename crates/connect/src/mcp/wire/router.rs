//! Decides what each message of a server is for.
//!
//! In: the requests that are sent, and the text of each message received. Out: answers to the exchanges that wait for them, updates
//! to the calls they belong to, replies to requests of the server, and the few messages that `rmcp` itself needs. Nothing here
//! waits, and nothing grows with the number of messages.

mod notifications;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, GetMeta, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use serde_json::{Value, json, value::RawValue};
use tokio::{sync::watch, time::Instant};
use toolhub_core::InputKind;

use super::{
    cancelled_calls::CancelledCalls,
    exchange::{Exchange, RequestError},
    forward::{Received, answered, refused},
    list_changes::{ListChanges, UpdatedResources},
    message::{self, Incoming, JsonRpcFailure, Violation, number},
    notification::read,
    pending::{InFlight, PendingRequests},
    question::{self, Question},
    surrogates,
    updates::Update,
};
use crate::{
    command::ProgramSecrets,
    mcp::{era::Era, log_ring::LogRing},
};

/// Maximum size of the parameters of a notification, and of a question.
const MAX_PARAMS_BYTES: usize = 256 * 1024;
/// How many questions of a server may be open.
const MAX_OPEN_QUESTIONS: usize = 16;
/// For so long after a call was cancelled, a question may still belong to that call, unless it was answered.
const CANCELLED_CALL_ASKS: Duration = Duration::from_secs(60);
/// How often a change of the list is assumed without a notification.
const ASSUMED_CHANGE_INTERVAL: Duration = Duration::from_secs(60);
/// JSON-RPC error code of a reply: the client cannot handle the request.
const INTERNAL_ERROR: i32 = -32603;

/// What a router needs to know of its connection.
pub(crate) struct RouterSettings {
    pub(crate) era: Era,
    /// The roots to report, as in the protocol: objects with `uri` and `name`.
    pub(crate) roots: Vec<Value>,
    pub(crate) logs: Arc<LogRing>,
    pub(crate) secrets: Arc<ProgramSecrets>,
    /// Whether `rmcp` has to see lists of tools: over HTTP it adds headers to calls, as the schemas of the modern era say.
    pub(crate) shows_lists: bool,
}

/// Sends the reply to a request of the server.
pub(crate) type ReplySink = Box<dyn Fn(String) -> Result<(), Violation> + Send + Sync>;

/// Where a message of a server arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// On the pipe that all requests share.
    Pipe,
    /// On the event stream, or in the response, of the request with this id.
    Stream(i64),
    /// On an event stream of the session.
    Unassociated,
}

pub(crate) struct Router {
    settings: RouterSettings,
    replies: ReplySink,
    list_changes: watch::Sender<ListChanges>,
    pub(crate) updated_resources: UpdatedResources,
    received: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pending: PendingRequests,
    open_questions: HashSet<RequestId>,
    cancelled_calls: CancelledCalls,
    /// When a change of the list was last assumed.
    last_assumed_change: Option<Instant>,
}

impl Router {
    pub(crate) fn new(settings: RouterSettings, replies: ReplySink) -> Arc<Self> {
        Arc::new(Self {
            settings,
            replies,
            list_changes: watch::Sender::default(),
            updated_resources: UpdatedResources::default(),
            received: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Numbers that change whenever the server says that one of its lists has changed.
    pub(crate) fn list_changes(&self) -> watch::Receiver<ListChanges> {
        self.list_changes.subscribe()
    }

    /// How many requests wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().pending.len()
    }

    /// How many calls wait for an answer.
    pub(crate) fn calls_in_flight(&self) -> usize {
        self.lock().pending.calls().count()
    }

    /// Whether a call that was sent before this time waits for an answer.
    pub(crate) fn has_call_sent_before(&self, time: Instant) -> bool {
        self.lock().pending.has_call_sent_before(time)
    }

    /// How many messages of the server have arrived.
    pub(crate) fn messages_received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Whether a request waits for an answer.
    pub(crate) fn is_in_flight(&self, id: i64) -> bool {
        self.lock().pending.get(id).is_some()
    }

    /// Registers a message before it is sent. Returns the exchange of a request.
    pub(crate) fn outgoing(&self, message: &ClientJsonRpcMessage) -> Option<(i64, Option<Exchange>)> {
        match message {
            JsonRpcMessage::Request(request) => {
                let id = number(&request.id)?;
                let exchange = request.request.extensions().get::<Exchange>().cloned();
                let token = request.request.get_meta().get_progress_token().and_then(|token| number(&token.0));
                let is_listen = matches!(request.request, ClientRequest::SubscriptionsListenRequest(_));
                let is_shown_list =
                    self.settings.shows_lists && matches!(request.request, ClientRequest::ListToolsRequest(_));
                let sent = Instant::now();
                let request = InFlight { exchange: exchange.clone(), token, is_listen, is_shown_list, sent };
                self.lock().pending.insert(id, request);
                Some((id, exchange))
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = cancelled.params.request_id.as_ref().and_then(number)
                {
                    self.lock().cancel(id);
                }
                None
            }
            _ => None,
        }
    }

    /// Fails a request for a reason that is not an answer.
    pub(crate) fn fail(&self, id: i64, error: RequestError) {
        let request = self.lock().pending.cancel(id);
        if let Some(exchange) = request.and_then(|request| request.exchange) {
            exchange.complete(Err(error));
        }
    }

    /// Fails a request with an error of the server. Returns what `rmcp` has to see of it.
    pub(crate) fn refuse(&self, id: i64, failure: JsonRpcFailure) -> Option<ServerJsonRpcMessage> {
        let request = self.lock().pending.remove(id)?;
        match refused((id, request), failure) {
            Received::Forward(message) => Some(*message),
            Received::Answer | Received::Other => None,
        }
    }

    /// Notifications may have been lost, so that the lists may have changed. Counts at most once a minute.
    pub(crate) fn list_may_have_changed(&self) {
        let counts = {
            let mut state = self.lock();
            let counts = state.last_assumed_change.is_none_or(|at| at.elapsed() >= ASSUMED_CHANGE_INTERVAL);
            if counts {
                state.last_assumed_change = Some(Instant::now());
            }
            counts
        };
        if counts {
            self.list_changes.send_modify(|ListChanges { tools, prompts, resources }| {
                [tools, prompts, resources].into_iter().for_each(|changes| *changes += 1);
            });
        }
    }

    /// Nothing waits for the answer of a request any more.
    pub(crate) fn abandon(&self, id: &RequestId) {
        if let Some(id) = number(id) {
            self.lock().pending.cancel(id);
        }
    }

    /// A registered request could not be sent.
    pub(crate) fn not_sent(&self, id: i64) {
        self.lock().pending.remove(id);
    }

    /// Handles a message of the server. Returns what `rmcp` has to see of it.
    pub(crate) fn incoming(self: &Arc<Self>, text: &str, origin: Origin) -> Result<Received, Violation> {
        self.received.fetch_add(1, Relaxed);
        let text = &*surrogates::replace_lone(text);
        let message = message::parse(text).map_err(|violation| match (violation, origin) {
            (Violation::NotJson, Origin::Stream(_) | Origin::Unassociated) => Violation::NotAMessage("it is not JSON"),
            (violation, _) => violation,
        });
        match message? {
            Incoming::Answer { id, .. } | Incoming::Failure { id: Some(id), .. } if !origin.may_answer(&id) => {
                Err(Violation::OtherRequest)
            }
            Incoming::Answer { id, result } => {
                let request = self.lock().take_answered(&id)?;
                request.map_or(Ok(Received::Other), |request| answered(request, result, text))
            }
            Incoming::Failure { id, failure } => {
                let request = match (id, origin) {
                    (Some(id), _) => self.lock().take_answered(&id)?,
                    (None, Origin::Stream(id)) => self.lock().pending.remove(id).map(|request| (id, request)),
                    (None, _) => self.lock().pending.take_only()?,
                };
                Ok(request.map_or(Received::Other, |request| refused(request, failure)))
            }
            Incoming::Request { id, method, params } => {
                self.asked(id, &method, params, origin).map(|()| Received::Other)
            }
            Incoming::Notification { method, params } => {
                let forwarded = self.notified(&method, params, text, origin)?;
                Ok(forwarded.map_or(Received::Other, |message| Received::Forward(Box::new(message))))
            }
        }
    }

    /// Sends the reply to a question, once.
    pub(super) fn reply(&self, id: &RequestId, text: String) {
        if self.lock().open_questions.remove(id) {
            // A server that does not read its input is noticed by the writer.
            let _ = (self.replies)(text);
        }
    }

    fn asked(
        self: &Arc<Self>,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
        origin: Origin,
    ) -> Result<(), Violation> {
        let kind = match method {
            "ping" => return (self.replies)(question::result_reply(&id, &json!({}))),
            "roots/list" if !self.settings.roots.is_empty() => {
                return (self.replies)(question::result_reply(&id, &json!({"roots": self.settings.roots})));
            }
            "elicitation/create" if self.settings.era == Era::Legacy => elicitation_kind(params),
            "sampling/createMessage" if self.settings.era == Era::Legacy => InputKind::Sampling,
            _ => return (self.replies)(question::unknown_method(&id)),
        };
        let params = params.map_or("{}", RawValue::get);
        let call = {
            let mut state = self.lock();
            if state.open_questions.contains(&id) {
                return Err(Violation::RequestIdInUse);
            }
            if state.open_questions.len() >= MAX_OPEN_QUESTIONS || params.len() > MAX_PARAMS_BYTES {
                drop(state);
                let text = "too many open requests, or the request is too large";
                return (self.replies)(question::error_reply(&id, INTERNAL_ERROR, text));
            }
            let call = state.asking_call(origin);
            if call.as_ref().and_then(Exchange::updates).is_some_and(|updates| updates.accepts(kind)) {
                state.open_questions.insert(id.clone());
            }
            call
        };
        let updates = call.as_ref().and_then(Exchange::updates);
        let Some(updates) = updates.filter(|updates| updates.accepts(kind)) else {
            if let Some(updates) = updates {
                updates.push(Update::DeclinedQuestion(kind));
            }
            self.lock().open_questions.remove(&id);
            return (self.replies)(question::declined(kind, &id));
        };
        // Not under the lock: a question that is dropped at once replies.
        updates.push(Update::Question(Question::new(kind, params.to_owned(), id, self)));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an elicitation asks for.
fn elicitation_kind(params: Option<&RawValue>) -> InputKind {
    #[derive(serde::Deserialize)]
    struct Elicitation<'a> {
        #[serde(borrow)]
        mode: Option<std::borrow::Cow<'a, str>>,
    }
    let is_url = read::<Elicitation<'_>>(params.map(RawValue::get)).is_some_and(|it| it.mode.as_deref() == Some("url"));
    if is_url { InputKind::Url } else { InputKind::Form }
}

impl Origin {
    /// Whether a message from here may answer this request.
    fn may_answer(self, id: &RequestId) -> bool {
        match self {
            Self::Pipe | Self::Unassociated => true,
            Self::Stream(request) => number(id) == Some(request),
        }
    }
}

impl State {
    fn cancel(&mut self, id: i64) {
        let request = self.pending.cancel(id);
        if request.and_then(|request| request.exchange).is_some_and(|exchange| exchange.updates().is_some()) {
            self.cancelled_calls.add(id);
        }
    }

    /// The request that an answer belongs to; `None` if the answer is late.
    fn take_answered(&mut self, id: &RequestId) -> Result<Option<(i64, InFlight)>, Violation> {
        if let Some(id) = number(id) {
            self.cancelled_calls.answered(id);
        }
        self.pending.take_answered(id)
    }

    /// The only call in flight. A message may also belong to a call that was cancelled, which the server may not have stopped yet:
    /// there is none then. `window`: for so long after it was cancelled.
    fn only_call(&self, window: Duration) -> Option<&Exchange> {
        self.pending.only_call().filter(|_| !self.cancelled_calls.any_within(window))
    }

    /// The call that a question belongs to, if that is certain.
    fn asking_call(&self, origin: Origin) -> Option<Exchange> {
        match origin {
            // A question on a pipe or on the stream of a session names no request. Servers made with the TypeScript SDK ask there.
            Origin::Pipe | Origin::Unassociated => self.only_call(CANCELLED_CALL_ASKS).cloned(),
            Origin::Stream(id) => self.pending.get(id)?.exchange.clone(),
        }
    }
}
