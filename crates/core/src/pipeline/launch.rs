//! Runs a call: in its caller's task, or spawned on a task of its own.
//!
//! In: a submission. Out: its outcome, or a receipt for a call that continues without its caller. The stages themselves
//! are in `pipeline.rs`.

use std::{pin::pin, sync::Arc};

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Found, Submission, attempts, interruption, replay, report, resolve, route, ticket, ticket::Ticket};
use crate::{
    call::{CallHead, CallReceipt},
    engine::Engine,
    journal::{CallTracker, OpenCall},
    reentrancy, scheduler,
};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind},
    outcome::Outcome,
};

/// Finds the call's tool. Naming a thread creates it, even in a call of an unknown tool, so that call is recorded here;
/// the thread of any other call is recorded when the call starts.
pub(super) fn resolve_call(engine: &Engine, submission: Submission) -> Result<Found, resolve::RefusedCall> {
    let call = &submission.call;
    if engine.is_shutting_down() {
        let error = CallError::new(ErrorKind::ShuttingDown);
        return Err(resolve::RefusedCall { call: submission.call, error });
    }
    if call.caller_minted_id && engine.live_calls.contains(call.id) {
        let error = replay::duplicate_call_error(call.id, false);
        return Err(resolve::RefusedCall { call: submission.call, error });
    }
    let submission = reserve_argument_memory(engine, submission)?;
    resolve::find(&engine.registry, submission).inspect_err(|resolve::RefusedCall { call, .. }| {
        if let Some(thread) = &call.thread {
            engine.services.thread_activity.record_call(&call.tenant, thread, call.arrived_at);
        }
    })
}

/// Reserves the memory of large arguments for as long as the call exists.
fn reserve_argument_memory(engine: &Engine, mut submission: Submission) -> Result<Submission, resolve::RefusedCall> {
    let call = &mut submission.call;
    let Some(bytes) = call.arguments.large_bytes() else { return Ok(submission) };
    match engine.argument_memory.reserve(&call.tenant, bytes) {
        Ok(permit) => {
            call.argument_memory = Some(permit);
            Ok(submission)
        }
        Err(exceeded) => {
            let text = format!(
                "the arguments of this tenant's calls would take more than {} MiB; retry when other calls have ended",
                exceeded.limit >> 20
            );
            let mut error = CallError::new(ErrorKind::Overloaded).operator(text);
            error.retry_after = Some(scheduler::RETRY_AFTER);
            Err(resolve::RefusedCall { call: submission.call, error })
        }
    }
}

/// Runs a call and waits for its end. Dropping the future cancels the call.
///
/// Each kind of call gets a future of its own: that of a plain call stays small enough for the allocator's fast path
/// (about 1 KiB).
pub(crate) fn run(engine: &Arc<Engine>, call: Submission) -> BoxFuture<'_, Outcome> {
    match resolve_call(engine, call) {
        Err(refused) => Box::pin(async move { refused_outcome(engine, refused) }),
        Ok(found) if found.runs_in_place() => Box::pin(run_stages(engine, found, true)),
        Ok(found) => Box::pin(async move {
            let outlives_caller = found.0.call.outlives_caller();
            let (mut pending, cancel) = spawn_call(engine, found);
            let cancel_guard = CancelOnDrop { cancel, disarmed: outlives_caller };
            let outcome = pending.outcome().await;
            cancel_guard.disarm();
            outcome
        }),
    }
}

/// Runs a call and waits for its end, or until it awaits an approval; then it continues without its caller.
pub(crate) fn run_until_approval(engine: &Arc<Engine>, call: Submission) -> BoxFuture<'_, CallReceipt> {
    match resolve_call(engine, call) {
        Err(refused) => Box::pin(async move { CallReceipt::Ended(refused_outcome(engine, refused)) }),
        Ok(found) if found.runs_in_place() => {
            Box::pin(async move { CallReceipt::Ended(run_stages(engine, found, true).await) })
        }
        Ok(mut found) => Box::pin(async move {
            found.0.call.wait = found.0.call.wait.until_approval();
            let outlives_caller = found.0.call.outlives_caller();
            let (mut pending, cancel) = spawn_call(engine, found);
            let cancel_guard = CancelOnDrop { cancel, disarmed: outlives_caller };
            let receipt = pending.accepted().await;
            cancel_guard.disarm();
            receipt
        }),
    }
}

/// Starts a call on a task of its own.
pub(crate) fn start(engine: &Arc<Engine>, call: Submission) -> PendingOutcome {
    match resolve_call(engine, call) {
        Ok(found) => spawn_call(engine, found).0,
        Err(refused) => {
            let head = refused.call.head.clone();
            let refused = Some(Box::new(refused_outcome(engine, refused)));
            PendingOutcome { head, receiver: oneshot::channel().1, refused, tracker: None }
        }
    }
}

/// The outcome of a call that was refused at stage 1.
fn refused_outcome(engine: &Engine, refused: resolve::RefusedCall) -> Outcome {
    let ticket = Ticket::new(&engine.services, &refused.call);
    let outcome = ticket.refused_outcome(refused.error);
    report::report(ticket, &outcome);
    outcome
}

/// The outcome of a call that runs on a task of its own.
pub(crate) struct PendingOutcome {
    pub(crate) head: Arc<CallHead>,
    receiver: oneshot::Receiver<Outcome>,
    /// The outcome of a call that was refused at stage 1.
    refused: Option<Box<Outcome>>,
    /// The call's tracker; none if the call was refused at stage 1.
    tracker: Option<Arc<CallTracker>>,
}

impl PendingOutcome {
    /// Resolves to the outcome. Must not be polled after it resolved.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        match (&mut self.receiver).await {
            Ok(outcome) => outcome,
            Err(_) => self.refused.take().map_or_else(|| ticket::lost_outcome(&self.head), |outcome| *outcome),
        }
    }

    /// Waits for the end, or until the journal has the call and it waits or runs.
    pub(crate) async fn accepted(&mut self) -> CallReceipt {
        let Some(tracker) = self.tracker.clone() else { return CallReceipt::Ended(self.outcome().await) };
        // `select` polls the outcome first, so a call that has ended is reported as ended.
        match select(pin!(self.outcome()), pin!(tracker.wait_accepted())).await {
            Either::Left((outcome, _)) => CallReceipt::Ended(outcome),
            Either::Right((approval, _)) => {
                let (call, thread) = (tracker.head.id, tracker.head.thread.clone());
                match approval {
                    Some(approval) => CallReceipt::AwaitingApproval { call, approval, thread },
                    None => CallReceipt::Accepted { call, thread },
                }
            }
        }
    }
}

/// Starts a call on a task of its own; also returns the token that cancels it.
fn spawn_call(engine: &Arc<Engine>, mut found: Found) -> (PendingOutcome, CancellationToken) {
    let (sender, receiver) = oneshot::channel();
    let call = &mut found.0.call;
    let (head, cancel) = (call.head.clone(), call.cancel.get_or_insert_default().clone());
    let tracker = CallTracker::new(call, cancel.clone());
    found.0.tracker = Some(tracker.clone());
    let (id, running) = (head.id, engine.live_calls.register(&tracker));
    let updates = found.0.call.updates.clone();
    let (tasks, runtime) = (engine.call_tasks.clone(), engine.runtime.clone());
    let engine = engine.clone();
    // No call waits for a detached call, so it cannot deadlock and does not inherit the held locks.
    let held_locks = reentrancy::current().filter(|_| !found.0.call.wait.is_detached());
    let task = async move {
        let outcome = run_stages(&engine, found, false).await;
        drop(running);
        if outcome.error.is_some() {
            engine.journal.mark_stopped(id);
        }
        if let Some(updates) = updates {
            updates.close();
        }
        // A dropped receiver is no failure: the outcome is recorded.
        let _ = sender.send(outcome);
    };
    match held_locks {
        None => tasks.spawn_on(task, &runtime),
        Some(held_locks) => tasks.spawn_on(held_locks.scope(task), &runtime),
    };
    (PendingOutcome { head, receiver, refused: None, tracker: Some(tracker) }, cancel)
}

/// Runs a call through all stages and reports its end, even if a stage panics.
async fn run_stages(engine: &Engine, found: Found, in_place: bool) -> Outcome {
    let mut ticket = Ticket::new(&engine.services, &found.0.call);
    ticket.mark_running(in_place, &found.0.tool, &engine.registry);
    let tracker = found.0.tracker.clone();
    let routed = {
        let routing = pin!(route(engine, found, &mut ticket));
        attempts::catch_panic(routing).await
    };
    let outcome = match routed {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(refusal)) => match preopened_record(tracker.as_deref(), &refusal) {
            PreopenedRecord::Absent => {
                ticket.count_end(refusal.kind);
                let outcome = ticket.refused_outcome(refusal);
                let is_settled = !tracker.as_ref().is_some_and(|tracker| tracker.may_be_resumed());
                if is_settled { outcome } else { not_settled(outcome) }
            }
            PreopenedRecord::Retained => {
                let outcome = Outcome { effect: Effect::Unknown, ..ticket.refused_outcome(deferred_error(refusal)) };
                ticket.complete();
                return outcome;
            }
            PreopenedRecord::MustClose(open) => {
                ticket.count_end(refusal.kind);
                let outcome = ticket.refused_outcome(refusal);
                Box::pin(close_refused(engine, &open, outcome, tracker)).await
            }
        },
        Err(panic) => {
            ticket.count_end(ErrorKind::Internal);
            let outcome =
                ticket.refused_outcome(CallError::new(ErrorKind::Internal).operator(attempts::panic_text(panic)));
            if !in_place {
                engine.journal.note_unwritten(&outcome);
            }
            outcome
        }
    };
    report::report(ticket, &outcome);
    outcome
}

/// What happens to the preopened record of a call that is refused.
pub(super) enum PreopenedRecord {
    /// The call was not preopened.
    Absent,
    /// The record stays open; the next start resumes the call.
    Retained,
    /// The record is closed with the refusal.
    MustClose(Arc<OpenCall>),
}

pub(super) fn preopened_record(tracker: Option<&CallTracker>, refusal: &CallError) -> PreopenedRecord {
    let Some(tracker) = tracker else { return PreopenedRecord::Absent };
    // A call that the shutdown cancelled before its tool started can resume after the restart.
    let cancelled_by_shutdown =
        refusal.kind == ErrorKind::Cancelled && tracker.is_cancelled_by_shutdown() && tracker.leave_for_recovery();
    if cancelled_by_shutdown || tracker.is_left_for_recovery() {
        return PreopenedRecord::Retained;
    }
    tracker.take_preopened().map_or(PreopenedRecord::Absent, PreopenedRecord::MustClose)
}

/// The error for a caller that still waits for a call which resumes after the restart.
fn deferred_error(refusal: CallError) -> CallError {
    CallError::new(ErrorKind::Interrupted)
        .operator("the hub is shutting down; the call has not run yet and resumes after the restart")
        .model("This call has not run yet and goes on later by itself. Do not make it again.")
        .detail(refusal.detail)
}

/// Closes the record of a preopened call that is refused; returns its outcome. If the store does not answer, the journal closes it later.
async fn close_refused(
    engine: &Engine,
    open: &OpenCall,
    outcome: Outcome,
    tracker: Option<Arc<CallTracker>>,
) -> Outcome {
    let Some(tracker) = tracker else { return outcome };
    match interruption::close_open_call(engine, &tracker.head.tenant, open, &outcome).await {
        Ok(true) => outcome,
        // Without an outcome there, the call was deleted with its thread; it may have run before.
        Ok(false) => interruption::outcome_elsewhere(engine, &tracker).await.unwrap_or_else(|| not_settled(outcome)),
        Err(error) => {
            tracing::warn!(%error, call = %outcome.id, "could not close refused call; will be retried");
            engine.journal.note_unwritten(&outcome);
            // Before that another process may resume the call, if this one dies or is taken for dead.
            not_settled(outcome)
        }
    }
}

/// The outcome of a call that was refused here and may be resumed by another process.
fn not_settled(mut outcome: Outcome) -> Outcome {
    outcome.effect = Effect::Unknown;
    outcome.error.iter_mut().for_each(|error| error.retryable = false);
    outcome
}

/// Cancels the call when its waiting caller is dropped, unless the call outlives its caller.
struct CancelOnDrop {
    cancel: CancellationToken,
    disarmed: bool,
}

impl CancelOnDrop {
    /// The call has ended. Work that its tool has spawned is not cancelled.
    fn disarm(mut self) {
        self.disarmed = true;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.disarmed {
            self.cancel.cancel();
        }
    }
}
