//! A call in the making, and a call that runs.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures_core::{Stream, future::BoxFuture};
use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::{
    call::{Call, CallHead, CallReceipt, ProgressSink},
    engine::Engine,
    pipeline::{self, Submission},
    registry::Tools,
};
use toolhub_types::{
    ids::{CallId, Caller, IdError, IdempotencyKey, RunId, Tenant, ThreadId},
    outcome::Outcome,
    progress::Progress,
    trace::TraceContext,
};

/// A call in the making. Await it, or [`start`](Self::start) it.
#[must_use = "a call is made only when it is awaited or started"]
pub struct CallRequest<'hub> {
    engine: &'hub Arc<Engine>,
    submission: Submission,
}

impl<'hub> CallRequest<'hub> {
    pub(super) fn new(engine: &'hub Arc<Engine>, tool: SmolStr, arguments: Value) -> Self {
        let clock = &engine.services.clock;
        let arrived = clock.now();
        let head = CallHead::new(CallId::mint(arrived), tool, arrived, clock.instant());
        let call = Submission::from(Box::new(Call::new(head, arguments)));
        Self { engine, submission: call }
    }

    /// The call's id, known before it is made.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.submission.call.id
    }

    /// The id the caller has [minted](CallId::mint) for it, to find the call again after a crash of its own. Such a call is in the
    /// journal before its tool runs, whatever it does, and is made once: where a call of the same thread with this id runs,
    /// another one ends with `idempotency_in_progress`, and where one has ended, with `idempotency_key_reused`. One that was
    /// refused before it came to its turn is in no journal, and may be made again.
    pub fn with_id(mut self, id: CallId) -> Self {
        let head = self.head();
        (head.id, head.caller_minted_id) = (id, true);
        self
    }

    /// The conversation it belongs to. A text that is no thread id makes the call fail.
    pub fn thread(mut self, thread: impl Into<SmolStr>) -> Self {
        let thread = self.note_id_error(ThreadId::new(thread));
        self.head().thread = thread;
        self
    }

    /// Whose call it is; `main` where nothing is said.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.head().tenant = tenant;
        self
    }

    /// Who asks; `local` where nothing is said.
    pub fn caller(mut self, caller: Caller) -> Self {
        self.head().caller = caller;
        self
    }

    /// The agent run it belongs to.
    pub fn run(mut self, run: RunId) -> Self {
        self.head().run = Some(run);
        self
    }

    /// The id the model gave its request.
    pub fn model_call(mut self, id: impl Into<SmolStr>) -> Self {
        self.head().model_call = Some(id.into());
        self
    }

    /// Where the call stands in a trace that began elsewhere. Its tool may ask for it, and its outcome names the trace.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.head().trace = Some(Box::new(trace));
        self
    }

    /// The caller's word that a repetition is the same call: it is made once, and answered alike every time, in whatever
    /// thread it is repeated. A call that was turned away before its turn has not used its key up, unless a person said no. A key
    /// belongs to a tenant and a tool, and is remembered for a day.
    /// A text that is no key makes the call fail.
    pub fn idempotency_key(mut self, key: impl Into<SmolStr>) -> Self {
        let key = self.note_id_error(IdempotencyKey::new(key));
        self.head().idempotency_key = key;
        self
    }

    /// A shorter time than the tool's own. A longer one changes nothing.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.submission.call.timeout = Some(time);
        self
    }

    /// How often the tool is tried again after the first time, whatever its own settings say; zero is never. All else about
    /// it stays: only what may be repeated is, inside the call's time and the tool's budget for that.
    pub fn retries(mut self, again: u32) -> Self {
        self.submission.call.retries = Some(again);
        self
    }

    /// Somebody outside does the work: the call passes every door as any other, and where its tool would run it waits until
    /// the result is [reported](super::ToolHub::report_call), or this time is over and it ends with `timeout`. The time takes
    /// the place of the tool's own. It counts as if the tool had run here, but is tried once, answers nobody else's call, and
    /// what the tool remembers is neither read nor written. Such a call has a record before it waits.
    pub fn external(mut self, deadline: Duration) -> Self {
        self.submission.call.external = Some(deadline);
        self
    }

    /// Cancels the call when this signal is given. The signal itself is never given by the call.
    pub fn cancel_on(mut self, signal: &CancellationToken) -> Self {
        self.submission.call.cancel = Some(signal.child_token());
        self
    }

    /// Looks for the tool in the list the caller was offered, whatever has changed since.
    pub fn from_offer(mut self, tools: &Arc<Tools>) -> Self {
        self.submission.offer = Some(tools.clone());
        self
    }

    /// Lets the call go on when nobody waits for it any more, also after a restart: it is written down before it waits for a
    /// person or for its turn.
    pub fn detached(mut self) -> Self {
        self.submission.call.wait = self.submission.call.wait.detached();
        self
    }

    /// Does not wait for a person: where one must be asked, the call ends with `approval_required`, and the same call made
    /// again after the answer goes on from there.
    pub fn no_wait(mut self) -> Self {
        self.submission.call.wait = self.submission.call.wait.no_approval();
        self
    }

    /// Starts the call on a task of its own.
    pub fn start(mut self) -> CallHandle {
        let cancel = self.submission.call.cancel.get_or_insert_default().clone();
        let (sink, progress) = ProgressSink::new();
        self.submission.call.progress = Some(sink);
        let (id, tool) = (self.submission.call.id, self.submission.call.tool.clone());
        let goes_on = self.submission.call.outlives_caller();
        let pending = pipeline::start(self.engine, self.submission);
        CallHandle { id, tool, cancel, progress, pending, disarmed: goes_on }
    }

    /// Makes the call and waits for its end, or until a person is asked. Then the call goes on without its caller, also after a
    /// restart, and can be found by its id. A caller that goes away before that cancels it, as with any other call.
    ///
    /// For callers that cannot be kept waiting for a person, such as those over HTTP.
    pub fn until_approval(self) -> BoxFuture<'hub, CallReceipt> {
        pipeline::run_until_approval(self.engine, self.submission)
    }

    pub(super) fn into_submission(self) -> Submission {
        self.submission
    }

    fn head(&mut self) -> &mut CallHead {
        self.submission.call.head_mut()
    }

    fn note_id_error<T>(&mut self, id: Result<T, IdError>) -> Option<T> {
        id.inspect_err(|flaw| self.submission.call.id_error = Some(Box::new(flaw.clone()))).ok()
    }
}

impl<'hub> IntoFuture for CallRequest<'hub> {
    type Output = Outcome;
    type IntoFuture = BoxFuture<'hub, Outcome>;

    fn into_future(self) -> Self::IntoFuture {
        pipeline::run(self.engine, self.submission)
    }
}

/// A call that runs. Await it for its outcome; dropped before that, it cancels the call, unless the call was detached
/// or has an idempotency key.
#[must_use = "dropping a running call cancels it"]
pub struct CallHandle {
    id: CallId,
    tool: SmolStr,
    cancel: CancellationToken,
    progress: broadcast::Receiver<Progress>,
    pending: pipeline::PendingOutcome,
    disarmed: bool,
}

impl CallHandle {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.id
    }

    /// The tool's name as the caller wrote it.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Asks the call to stop. It still has an outcome: `cancelled`, or its result if it was faster.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the end of the call. Whoever stops waiting may wait again; the end is told once.
    pub async fn outcome(&mut self) -> Outcome {
        let outcome = self.pending.outcome().await;
        // What the tool may still be doing with its context is its own affair now.
        self.disarmed = true;
        outcome
    }

    /// Waits until the call has ended, or is [detached](CallRequest::detached) and in the journal, so that its caller can be told
    /// to come back: a person was asked, or it waits for its turn, or it runs.
    pub async fn accepted(&mut self) -> CallReceipt {
        let reached = self.pending.accepted().await;
        self.disarmed |= matches!(reached, CallReceipt::Ended(_));
        reached
    }

    /// What the tool says about how far it is, until the call ends. The first stream hears it from the beginning, a later
    /// one from then on; a slow reader misses the oldest.
    pub fn progress(&mut self) -> impl Stream<Item = Progress> + Send + 'static {
        let later = self.progress.resubscribe();
        futures_util::stream::unfold(std::mem::replace(&mut self.progress, later), |mut news| async move {
            loop {
                match news.recv().await {
                    Ok(progress) => return Some((progress, news)),
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
            let mut running = self;
            running.outcome().await
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
