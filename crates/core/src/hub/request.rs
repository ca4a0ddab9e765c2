//! `CallRequest`, the builder of a call, and `CallHandle`, the handle of a running one.
//!
//! In: a tool name, arguments and options. Out: an outcome, a receipt, or a handle. The pipeline runs the call.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures_core::{Stream, future::BoxFuture};
use futures_util::StreamExt as _;
use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{Explanation, ToolHub};
use crate::{
    call::{ApprovalReuse, Call, CallHead, CallReceipt, InputHandler, UpdateSink},
    engine::Engine,
    pipeline::{self, Submission},
    registry::Tools,
};
use toolhub_storage::clock;
use toolhub_types::{
    error::CallError,
    ids::{CallId, Caller, IdError, IdempotencyKey, RunId, Tenant, ThreadId},
    outcome::Outcome,
    progress::{CallUpdate, Progress},
    trace::TraceContext,
};

/// Builds a call. Await it, or [`start`](Self::start) it.
#[must_use = "a call is made only when it is awaited or started"]
pub struct CallRequest<'hub> {
    engine: &'hub Arc<Engine>,
    submission: Submission,
}

impl<'hub> CallRequest<'hub> {
    pub(super) fn new(engine: &'hub Arc<Engine>, tool: SmolStr, arguments: Value) -> Self {
        let clock = &engine.services.clock;
        let arrived_at = clock.now();
        let head = CallHead::new(CallId::mint(arrived_at), tool, arrived_at, clock.instant());
        let submission = Submission::from(Box::new(Call::new(head, arguments.into())));
        Self { engine, submission }
    }

    /// The call's id, known before it is made.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.submission.call.id
    }

    /// Sets an id that the caller has [minted](CallId::mint), to find the call again after a crash of the caller. Such a call is
    /// always in the journal before its tool runs, and is made at most once: while a call of the same thread with this id
    /// runs, another one ends with `idempotency_in_progress`, and after it has ended, with `idempotency_key_reused`. A call
    /// that was refused before it was scheduled is not in the journal, and may be made again.
    pub fn with_id(mut self, id: CallId) -> Self {
        let head = self.head();
        (head.id, head.caller_minted_id) = (id, true);
        self
    }

    /// The thread of the call. With an invalid id the call fails.
    pub fn thread(mut self, thread: impl Into<SmolStr>) -> Self {
        let thread = self.note_id_error(ThreadId::new(thread));
        self.head().thread = thread;
        self
    }

    /// The tenant of the call. Default: `main`.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.head().tenant = tenant;
        self
    }

    /// The caller. Default: `local`.
    pub fn caller(mut self, caller: Caller) -> Self {
        self.head().caller = caller;
        self
    }

    /// The agent run the call belongs to.
    pub fn run(mut self, run: RunId) -> Self {
        self.head().run = Some(run);
        self
    }

    /// The model's own id of the call.
    pub fn model_call(mut self, id: impl Into<SmolStr>) -> Self {
        self.head().model_call = Some(id.into());
        self
    }

    /// The trace context of the caller. The tool can read it, and the outcome names the trace.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.head().trace = Some(Box::new(trace));
        self
    }

    /// Sets an idempotency key: repetitions with the same key, in any thread, are executed once and get the same outcome. A call
    /// that was refused before it was scheduled does not consume its key, unless its approval was denied. A key belongs to a
    /// tenant and a tool, and is stored for a day. With an invalid key the call fails.
    pub fn idempotency_key(mut self, key: impl Into<SmolStr>) -> Self {
        let key = self.note_id_error(IdempotencyKey::new(key));
        self.head().idempotency_key = key;
        self
    }

    /// Shortens the tool's timeout. A longer one has no effect.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.submission.call.timeout = Some(time);
        self
    }

    /// Overrides the tool's number of retries; zero disables them. The other conditions still apply: only what is safe to repeat
    /// is retried, within the call's timeout and the tool's retry budget.
    pub fn retries(mut self, retries: u32) -> Self {
        self.submission.call.retries = Some(retries);
        self
    }

    /// Executes the call outside the hub: it passes every stage like any other, but instead of running the tool it waits until
    /// the result is [reported](super::ToolHub::report_external_result), or ends with `timeout` after `deadline`, which replaces
    /// the tool's timeout. It counts for the tool's status as if the tool had run here, but is not retried or cached, and the
    /// tool's state is neither read nor written. Its record is stored before it waits.
    pub fn external(mut self, deadline: Duration) -> Self {
        self.submission.call.external = Some(deadline);
        self
    }

    /// Cancels the call when this token is cancelled. The call never cancels the token itself.
    pub fn cancel_on(mut self, signal: &CancellationToken) -> Self {
        self.submission.call.cancel = Some(signal.child_token());
        self
    }

    /// Resolves the tool in the list the caller was offered, regardless of later changes.
    pub fn from_offer(mut self, tools: &Arc<Tools>) -> Self {
        self.submission.offer = Some(tools.clone());
        self
    }

    /// Lets the call outlive its caller and a restart: its record is stored before it waits for approval or in the queue.
    pub fn detached(mut self) -> Self {
        self.submission.call.wait = self.submission.call.wait.detached();
        self
    }

    /// Does not wait for approval: if one is required, the call ends with `approval_required`, and the same call made again
    /// after the answer consumes the approval.
    pub fn no_wait(mut self) -> Self {
        self.submission.call.wait = self.submission.call.wait.no_approval();
        self
    }

    /// Waits for approval at most this long from now; then the call ends as with [`no_wait`](Self::no_wait).
    pub fn no_wait_after(mut self, time: Duration) -> Self {
        self.submission.call.approval_until = Some(clock::deadline_after(self.engine.services.clock.instant(), time));
        self
    }

    /// Requests no approval: if one is required that no grant gives, the call ends with `forbidden`.
    pub fn refuse_approval(mut self) -> Self {
        self.submission.call.refuses_approval = true;
        self
    }

    /// Sets which approvals of earlier, identical calls the call may use. Default: all.
    pub fn reuse_approvals(mut self, reuse: ApprovalReuse) -> Self {
        self.submission.call.approval_reuse = reuse;
        self
    }

    /// Answers input requests of the tool. Without a handler they are declined; a call that continues after a restart has none.
    pub fn input(mut self, handler: Arc<dyn InputHandler>) -> Self {
        self.submission.call.input = Some(handler);
        self
    }

    /// Starts the call on a task of its own.
    pub fn start(mut self) -> CallHandle {
        let cancel = self.submission.call.cancel.get_or_insert_default().clone();
        let (sink, updates) = UpdateSink::new();
        self.submission.call.updates = Some(sink);
        let disarmed = self.submission.call.outlives_caller();
        let pending = pipeline::start(self.engine, self.submission);
        CallHandle { cancel, updates, pending, disarmed }
    }

    /// Makes the call and waits until it has ended or waits for approval. In the second case it continues without its caller,
    /// also after a restart, and can be found by its id. Dropping the future before that cancels the call, like any other.
    ///
    /// For callers that cannot wait for an approval, such as HTTP clients.
    pub fn until_approval(self) -> BoxFuture<'hub, CallReceipt> {
        pipeline::run_until_approval(self.engine, self.submission)
    }

    /// Explains what would happen to the call if it was made now, in the member [`call`](super::Explanation::call) of the explanation of
    /// its tool. Nothing runs, counts or is stored.
    ///
    /// # Errors
    /// When the tool is not registered, the id of the thread is not valid, or the store does not answer.
    pub async fn explain(self) -> Result<Explanation, CallError> {
        ToolHub { engine: self.engine.clone() }.explain_call(self.submission).await
    }

    pub(super) fn into_submission(self) -> Submission {
        self.submission
    }

    fn head(&mut self) -> &mut CallHead {
        self.submission.call.head_mut()
    }

    fn note_id_error<T>(&mut self, id: Result<T, IdError>) -> Option<T> {
        id.inspect_err(|error| self.submission.call.id_error = Some(Box::new(error.clone()))).ok()
    }
}

impl<'hub> IntoFuture for CallRequest<'hub> {
    type Output = Outcome;
    type IntoFuture = BoxFuture<'hub, Outcome>;

    fn into_future(self) -> Self::IntoFuture {
        pipeline::run(self.engine, self.submission)
    }
}

/// Handle of a running call. Await it for the outcome. Dropping it before that cancels the call, unless the call is detached
/// or has an idempotency key.
#[must_use = "dropping a running call cancels it"]
pub struct CallHandle {
    cancel: CancellationToken,
    updates: broadcast::Receiver<CallUpdate>,
    pending: pipeline::PendingOutcome,
    /// Whether dropping the handle leaves the call running.
    disarmed: bool,
}

impl CallHandle {
    /// The call's id.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.pending.head.id
    }

    /// The tool's name as the caller wrote it.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.pending.head.tool
    }

    /// Cancels the call. It still has an outcome: `cancelled`, or its result if that was complete first.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the outcome. Cancel safe: a dropped wait can be repeated. Must not be called again after it resolved.
    pub async fn outcome(&mut self) -> Outcome {
        let outcome = self.pending.outcome().await;
        // The call has ended: dropping the handle must not cancel work that the tool left running on purpose.
        self.disarmed = true;
        outcome
    }

    /// Waits until the call has ended, or is [detached](CallRequest::detached) and in the journal, so that its caller can come
    /// back for the outcome: it waits for approval, is queued, or runs.
    pub async fn accepted(&mut self) -> CallReceipt {
        let receipt = self.pending.accepted().await;
        self.disarmed |= matches!(receipt, CallReceipt::Ended(_));
        receipt
    }

    /// The tool's progress messages until the call ends: the part of [`updates`](Self::updates) that most callers need.
    pub fn progress(&mut self) -> impl Stream<Item = Progress> + Send + 'static {
        self.updates().filter_map(|update| async move {
            match update {
                CallUpdate::Progress(progress) => Some(progress),
                _ => None,
            }
        })
    }

    /// The tool's progress messages and log lines until the call ends. The first stream starts at the beginning of the call, a
    /// later one from now on; a slow reader misses the oldest ones.
    pub fn updates(&mut self) -> impl Stream<Item = CallUpdate> + Send + 'static {
        let later = self.updates.resubscribe();
        futures_util::stream::unfold(std::mem::replace(&mut self.updates, later), |mut receiver| async move {
            loop {
                match receiver.recv().await {
                    Ok(update) => return Some((update, receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        })
    }
}

impl IntoFuture for CallHandle {
    type Output = Outcome;
    type IntoFuture = BoxFuture<'static, Outcome>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut handle = self;
            handle.outcome().await
        })
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if !self.disarmed {
            self.cancel.cancel();
        }
    }
}
