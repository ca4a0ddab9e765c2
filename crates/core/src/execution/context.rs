//! What a running tool knows about the call it serves.
//!
//! In: the call and the hub's services. Out: who asks, how long there is, whether it is still wanted, and a way to
//! say how far it is. Cheap to clone; it may outlive the call, then it is merely old news.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    artifact,
    blocking::StuckCounter,
    call::Call,
    execution::{CallEnvelope, CallSlot, WeakSlot},
    services::Services,
    state::{ContextState, StateCheckouts, StateError},
};
use toolhub_storage::clock::Instant;
use toolhub_types::{
    content::Content,
    effect::Effect,
    error::{ErrorKind, ToolError},
    event_kind::EventKind,
    ids::{CallId, Caller, IdempotencyKey, RunId, StateName, Tenant, ThreadId},
    progress::Progress,
    timestamp::Timestamp,
    tool::ToolName,
    trace::TraceContext,
};

/// The right of a call to run, held by work that outlasts the call; see [`CallContext::hold_slot`].
pub struct HeldSlot(#[expect(dead_code, reason = "it is held, and given back when dropped")] CallSlot);

impl std::fmt::Debug for HeldSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldSlot")
    }
}

/// The call a tool is running for.
#[derive(Clone)]
pub struct CallContext(Arc<Inner>);

struct Inner {
    envelope: CallEnvelope,
    times: Times,
    cancel: OnceLock<CancellationToken>,
    last_progress: Mutex<Option<Instant>>,
    attachments: Mutex<Vec<Content>>,
    /// Whether anything was attached; most tools attach nothing.
    has_attachments: AtomicBool,
    checkouts: StateCheckouts,
    slot: WeakSlot,
    is_waiting_to_start: AtomicBool,
}

/// The times of one attempt.
pub(crate) struct Times {
    /// When it began.
    pub(crate) started_at: Instant,
    /// When the call must be done, all attempts included.
    pub(crate) deadline: Instant,
}

impl CallContext {
    pub(crate) fn new(envelope: CallEnvelope, times: Times, slot: WeakSlot) -> Self {
        let cancel = OnceLock::new();
        if let Some(token) = &envelope.call.cancel {
            // A child: when the time is up the tool is told, but the caller's own signal is not touched.
            let _ = cancel.set(token.child_token());
        }
        Self(Arc::new(Inner {
            envelope,
            times,
            cancel,
            last_progress: Mutex::default(),
            attachments: Mutex::default(),
            has_attachments: AtomicBool::new(false),
            checkouts: StateCheckouts::default(),
            slot,
            is_waiting_to_start: AtomicBool::new(false),
        }))
    }

    /// Where the call stands in a trace that began elsewhere, to be handed on.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.call().trace.as_deref()
    }

    /// The call.
    #[must_use]
    pub fn call_id(&self) -> CallId {
        self.call().id
    }

    /// The tool that was called.
    #[must_use]
    pub fn tool(&self) -> &ToolName {
        &self.envelope().tool.definition.name
    }

    /// Whose call it is.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.call().tenant
    }

    /// Who asks.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.call().caller
    }

    /// The conversation. Always there for a tool with state or an instance.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        self.call().thread.as_ref()
    }

    /// The agent run the call belongs to.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.call().run
    }

    /// The caller's word that a repetition is the same call. Pass it on to services that understand such keys.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.call().idempotency_key.as_ref()
    }

    /// When the call must be done.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.times.deadline
    }

    /// When this attempt began.
    pub(crate) fn started_at(&self) -> Instant {
        self.0.times.started_at
    }

    /// How long there is.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.0.times.deadline.saturating_duration_since(self.services().clock.instant())
    }

    /// What time it is. Use this and not the machine's clock, so that tests can choose the time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.services().clock.now()
    }

    /// Waits until nobody wants the result any more: the call was cancelled or its time is up. An async tool is simply
    /// dropped then; this is for work it handed to somebody else.
    pub async fn cancelled(&self) {
        self.cancel_token().clone().cancelled_owned().await;
    }

    /// Whether nobody wants the result any more. A blocking function asks this between two steps.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel_token().is_cancelled()
    }

    /// Says how far the tool is.
    pub fn progress(&self, message: impl Into<String>) {
        self.emit_progress(message.into(), None);
    }

    /// Says how far the tool is, from 0 to 1.
    pub fn progress_at(&self, fraction: f64, message: impl Into<String>) {
        self.emit_progress(message.into(), Some(fraction.clamp(0.0, 1.0)));
    }

    /// Adds a picture, sound or text to what the model is shown, beside the tool's output.
    pub fn attach(&self, content: Content) {
        self.0.attachments.lock().unwrap_or_else(PoisonError::into_inner).push(content);
        self.0.has_attachments.store(true, Ordering::Release);
    }

    /// Keeps bytes that no model is shown, to be fetched by whoever is told of them. What it answers belongs among the content
    /// of the tool's reply; `None` when the store does not answer.
    pub async fn store_artifact(&self, mime_type: &str, bytes: Vec<u8>) -> Option<Content> {
        let services = self.services();
        artifact::save(&*services.store, self.tenant(), mime_type, bytes, services.clock.now()).await
    }

    /// What is remembered under this name in the thread of the call. Nothing is made by asking.
    ///
    /// # Errors
    /// When the call has no thread, and states are not shared by all threads.
    pub fn state(&self, name: &StateName) -> Result<ContextState, StateError> {
        ContextState::new(&self.services().state, self.tenant(), self.thread(), name).ok_or_else(|| {
            StateError::Refused(format!(
                "the call has no thread, so there is no state `{name}`; name a thread with the call"
            ))
        })
    }

    fn emit_progress(&self, message: String, fraction: Option<f64>) {
        let services = self.services();
        *self.0.last_progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(services.clock.instant());
        let at = services.clock.now();
        if services.events.has_subscribers() {
            let (call_id, run_id, tool_name) = (self.call_id(), self.run(), self.tool().clone());
            let news = EventKind::CallProgress { call_id, run_id, tool_name, message: message.clone(), fraction };
            services.events.emit_for_tenant(at, self.tenant(), self.thread(), news);
        }
        if let Some(sink) = &self.call().progress {
            sink.send(Progress { message, fraction, at });
        }
    }

    fn cancel_token(&self) -> &CancellationToken {
        self.0.cancel.get_or_init(CancellationToken::new)
    }

    /// Tells the tool, and whatever it started, that nobody waits any more.
    pub(crate) fn cancel_tool(&self) {
        // Made even where nobody has asked yet: a blocking function may ask later.
        self.cancel_token().cancel();
    }

    /// When the tool last said something.
    pub(crate) fn last_progress_at(&self) -> Option<Instant> {
        *self.0.last_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_attachments(&self) -> Vec<Content> {
        if !self.0.has_attachments.load(Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.0.attachments.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn checkouts(&self) -> &StateCheckouts {
        &self.0.checkouts
    }

    /// Waits for something without which the tool cannot begin: its turn, its state, a connection. A call that is cut off here
    /// has done nothing, and says nothing against its tool.
    ///
    /// # Errors
    /// When the call was cancelled at the moment it came to its turn: then its tool does not begin.
    pub async fn wait_before_start<T>(&self, turn: impl Future<Output = T>) -> Result<T, ToolError> {
        self.0.is_waiting_to_start.store(true, Ordering::Release);
        let turn = turn.await;
        self.0.is_waiting_to_start.store(false, Ordering::Release);
        if self.call().is_cancelled() {
            return Err(
                ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call").effect(Effect::None)
            );
        }
        Ok(turn)
    }

    /// Whether the tool has not begun, because it waits for something or was cut off there.
    pub(crate) fn is_waiting_to_start(&self) -> bool {
        self.0.is_waiting_to_start.load(Ordering::Acquire)
    }

    /// The call's slot, for work that goes on when the call is cut off: until this is dropped, the work counts among what runs at once.
    /// There is one only where the executor says that its work does not stop
    /// ([`Executor::stops_when_dropped`](crate::Executor::stops_when_dropped)), and while the call runs.
    #[must_use = "dropped at once, it holds nothing"]
    pub fn hold_slot(&self) -> HeldSlot {
        HeldSlot(self.share_slot())
    }

    /// A share of the call's slot, for work that cannot be stopped.
    pub(crate) fn share_slot(&self) -> CallSlot {
        self.0.slot.upgrade()
    }

    /// Where work that cannot be stopped is counted when nobody waits for it any more.
    pub(crate) fn stuck_counter(&self) -> StuckCounter {
        self.envelope().tool.runtime.stuck.clone()
    }

    pub(crate) fn services(&self) -> &Services {
        &self.envelope().tool.services
    }

    /// The call and its tool.
    pub(crate) fn envelope(&self) -> &CallEnvelope {
        &self.0.envelope
    }

    /// The call, when nobody needs the context any more. A tool may have kept it; then the call is copied.
    pub(crate) fn into_call(self) -> Call {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => *inner.envelope.call,
            Err(kept) => (*kept.envelope.call).clone(),
        }
    }

    fn call(&self) -> &Call {
        &self.envelope().call
    }
}
