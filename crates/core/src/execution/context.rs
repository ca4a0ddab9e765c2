//! `CallContext`: a running tool's view of its call.
//!
//! In: the call and the hub's services. Out: identity, deadline, cancellation, progress, attachments and state. Cheap to clone; it
//! may outlive the call and has no effect on it then.

mod abort;
mod input;

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use abort::AbortFlags;
pub use input::INPUT_TIMEOUT;
use input::PausedTime;

use crate::{
    artifact,
    blocking::StuckCounter,
    call::Call,
    execution::{CallEnvelope, CallSlot, WeakSlot},
    sealing::Sealer,
    services::Services,
};
use toolhub_schema::schema::Schema;
use toolhub_state::{ConnectionHold, ContextId, ContextState, StateCheckouts, StateError};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    content::Content,
    event_kind::{EventClass, EventKind},
    ids::{CallId, Caller, IdempotencyKey, RunId, StateName, Tenant, ThreadId},
    progress::{CallUpdate, LogLine, Progress},
    timestamp::Timestamp,
    tool::ToolName,
    trace::TraceContext,
};

/// A call's concurrency slot, held by work that outlives the call; see [`CallContext::hold_slot`].
pub struct HeldSlot(#[expect(dead_code, reason = "released on drop")] CallSlot);

impl std::fmt::Debug for HeldSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldSlot")
    }
}

/// The call that a tool is running for.
#[derive(Clone)]
pub struct CallContext(Arc<Inner>);

struct Inner {
    envelope: CallEnvelope,
    times: AttemptTimes,
    cancel: OnceLock<CancellationToken>,
    last_progress: Mutex<Option<Instant>>,
    paused: PausedTime,
    attachments: Mutex<Vec<Content>>,
    /// Whether there are attachments, so that the lock is not taken for most tools, which attach nothing.
    has_attachments: AtomicBool,
    checkouts: StateCheckouts,
    slot: WeakSlot,
    abort: AbortFlags,
}

/// The times of one attempt.
pub(crate) struct AttemptTimes {
    /// When it started.
    pub(crate) started_at: Instant,
    /// Deadline of the call, all attempts included.
    pub(crate) deadline: Instant,
}

impl CallContext {
    pub(crate) fn new(envelope: CallEnvelope, times: AttemptTimes, slot: WeakSlot) -> Self {
        let cancel = OnceLock::new();
        if let Some(token) = &envelope.call.cancel {
            // A child token: a timeout cancels the tool, but not the caller's own token.
            let _ = cancel.set(token.child_token());
        }
        Self(Arc::new(Inner {
            envelope,
            times,
            cancel,
            last_progress: Mutex::default(),
            paused: PausedTime::default(),
            attachments: Mutex::default(),
            has_attachments: AtomicBool::new(false),
            checkouts: StateCheckouts::default(),
            slot,
            abort: AbortFlags::default(),
        }))
    }

    /// The trace context of the call, to be propagated.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.call().trace.as_deref()
    }

    /// The call's id.
    #[must_use]
    pub fn call_id(&self) -> CallId {
        self.call().id
    }

    /// The tool that was called.
    #[must_use]
    pub fn tool(&self) -> &ToolName {
        &self.envelope().tool.definition.name
    }

    /// The compiled schema of the tool's output, if it has one.
    #[must_use]
    pub fn output_schema(&self) -> Option<&Schema> {
        self.envelope().tool.output.as_ref()
    }

    /// The tenant of the call.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.call().tenant
    }

    /// Seals secrets in states that other crates write.
    #[doc(hidden)]
    pub fn sealer(&self) -> &Sealer {
        &self.services().sealer
    }

    /// The caller.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.call().caller
    }

    /// The thread. Always `Some` for a tool with state or an instance.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        self.call().thread.as_ref()
    }

    /// The agent run the call belongs to.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.call().run
    }

    /// The idempotency key. Pass it on to services that support such keys.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&IdempotencyKey> {
        self.call().idempotency_key.as_ref()
    }

    /// The deadline of the call. Moves while an input request is open.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        clock::deadline_after(self.0.times.deadline, self.paused_time())
    }

    /// The deadline of this attempt, with its own timeout. Moves like that of the call.
    pub(crate) fn attempt_deadline(&self, timeout: Option<Duration>) -> Instant {
        let own =
            timeout.map(|timeout| clock::deadline_after(self.started_at(), timeout.saturating_add(self.paused_time())));
        own.map_or(self.deadline(), |own| own.min(self.deadline()))
    }

    /// When this attempt started.
    pub(crate) fn started_at(&self) -> Instant {
        self.0.times.started_at
    }

    /// Time until the deadline.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline().saturating_duration_since(self.services().clock.instant())
    }

    /// The current time by the hub's clock. Use this and not the system clock, so that tests can control the time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.services().clock.now()
    }

    /// Resolves when the call is cancelled or times out. The future of an async tool is simply dropped then; this is for work
    /// that it started elsewhere.
    pub async fn cancelled(&self) {
        self.cancel_token().clone().cancelled_owned().await;
    }

    /// Whether the call was cancelled or timed out. A blocking function should check this between steps.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel_token().is_cancelled()
    }

    /// Reports progress.
    pub fn progress(&self, message: impl Into<String>) {
        self.emit_progress(Progress::new(message.into(), self.now()));
    }

    /// Reports progress as a fraction from 0 to 1.
    pub fn progress_at(&self, fraction: f64, message: impl Into<String>) {
        self.emit_progress(Progress::new(message.into(), self.now()).with_fraction(fraction));
    }

    /// Reports how much is done, in a unit of the tool, and how much there is to do if that is known.
    pub fn progress_of(&self, done: f64, total: Option<f64>, message: impl Into<String>) {
        self.emit_progress(Progress::new(message.into(), self.now()).with_amount(done, total));
    }

    /// Passes a line of the tool's log on to the caller. It does not count as progress.
    pub fn log(&self, level: impl Into<String>, message: impl Into<String>) {
        let line = LogLine { level: level.into(), message: message.into(), at: self.now() };
        let services = self.services();
        if services.events.has_subscribers(EventClass::Calls) {
            let (call_id, run_id, tool_name) = (self.call_id(), self.run(), self.tool().clone());
            let LogLine { level, message, at } = line.clone();
            let event = EventKind::CallLog { call_id, run_id, tool_name, level, message };
            services.events.emit_for_tenant(at, self.tenant(), self.thread(), event);
        }
        self.send_update(CallUpdate::Log(line));
    }

    /// Attaches an image, audio or text to the content for the model, beside the tool's output.
    pub fn attach(&self, content: Content) {
        self.0.attachments.lock().unwrap_or_else(PoisonError::into_inner).push(content);
        self.0.has_attachments.store(true, Ordering::Release);
    }

    /// Stores bytes as an artifact that the model is not shown. Add the returned content to the tool's reply, so that clients can
    /// fetch it; `None` if the store does not answer.
    pub async fn store_artifact(&self, mime_type: &str, bytes: Vec<u8>) -> Option<Content> {
        let services = self.services();
        let owner = (self.tenant(), self.envelope().artifact_class());
        artifact::save(&*services.store, owner, mime_type, bytes, services.clock.now()).await
    }

    /// Records in the connection state of the tool whether a session is open with its service.
    pub fn set_session_active(&self, active: bool) {
        if let Some(context) = self.connection_context() {
            self.services().state.set_session_active(self.tenant(), &context, active);
        }
    }

    /// Marks the tool's connection as active while this execution lasts.
    pub(crate) fn hold_connection(&self) -> Option<ConnectionHold> {
        let context = self.connection_context()?;
        Some(self.services().state.hold_connection(self.tenant(), context))
    }

    /// Marks the tool's connection as active while its instance lives.
    pub(crate) fn hold_session(&self) -> Option<ConnectionHold> {
        let context = self.connection_context()?;
        Some(self.services().state.hold_session(self.tenant(), context))
    }

    /// The context whose kind `connection` describes the connection of the tool. Calls without a thread share one.
    fn connection_context(&self) -> Option<ContextId> {
        let name = self.envelope().tool.connection.as_ref()?;
        Some(match self.thread() {
            Some(thread) => self.services().state.context(name, thread),
            None => ContextId::shared(name.clone()),
        })
    }

    /// The state of this name in the thread of the call. Does not create it.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use toolhub_core::{CallContext, NoArguments, StateKind, ToolError, ids::StateName};
    ///
    /// async fn connect(_: NoArguments, cx: CallContext) -> Result<u64, ToolError> {
    ///     let state = cx.state(&StateName::new("mailbox")?)?;
    ///     state.set(StateKind::Connection, json!({"active": true, "lastUsed": cx.now()}), None).await?;
    ///     state.note(json!({"connected": "imap"})).await?;
    ///     Ok(state.connection().await?.error_count)
    /// }
    /// ```
    ///
    /// # Errors
    /// When the call has no thread and `session_isolation` is on.
    pub fn state(&self, name: &StateName) -> Result<ContextState, StateError> {
        ContextState::new(&self.services().state, self.tenant(), self.thread(), name).ok_or_else(|| {
            StateError::Refused(format!(
                "the call has no thread, so there is no state `{name}`; name a thread with the call"
            ))
        })
    }

    fn emit_progress(&self, progress: Progress) {
        let services = self.services();
        *self.0.last_progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(services.clock.instant());
        if services.events.has_subscribers(EventClass::Calls) {
            let (call_id, run_id, tool_name) = (self.call_id(), self.run(), self.tool().clone());
            let Progress { message, fraction, done, total, at } = progress.clone();
            let event = EventKind::CallProgress { call_id, run_id, tool_name, message, fraction, done, total };
            services.events.emit_for_tenant(at, self.tenant(), self.thread(), event);
        }
        self.send_update(CallUpdate::Progress(progress));
    }

    fn send_update(&self, update: CallUpdate) {
        if let Some(sink) = &self.call().updates {
            sink.send(update);
        }
    }

    fn cancel_token(&self) -> &CancellationToken {
        self.0.cancel.get_or_init(CancellationToken::new)
    }

    /// Signals cancellation to the tool and to the work it started.
    pub(crate) fn cancel_tool(&self) {
        // Created even if the tool has not read it yet: a blocking function may check it later.
        self.cancel_token().cancel();
    }

    /// When the tool last reported progress.
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

    /// Shares the call's concurrency slot with work that continues after the call is aborted: until this is dropped, the work
    /// counts towards the concurrency limits. Holds nothing unless the executor declares that its work does not stop
    /// ([`Executor::stops_when_dropped`](crate::Executor::stops_when_dropped)), or if the call has ended.
    #[must_use = "the slot is released when this is dropped"]
    pub fn hold_slot(&self) -> HeldSlot {
        HeldSlot(self.share_slot())
    }

    /// A shared reference to the call's slot, for work that cannot be stopped.
    pub(crate) fn share_slot(&self) -> CallSlot {
        self.0.slot.upgrade()
    }

    /// The counter of work that continues after its call has ended.
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

    /// Takes the call out of the context; clones it if the tool has kept a clone of the context.
    pub(crate) fn into_call(self) -> Call {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => *inner.envelope.call,
            Err(shared) => (*shared.envelope.call).clone(),
        }
    }

    fn call(&self) -> &Call {
        &self.envelope().call
    }
}
