//! Where a call runs: in its caller's own task, or on one of its own; and who is told when.
//!
//! In: a call. Out: its outcome, or that it goes on without its caller. The doors themselves are in `pipeline.rs`.

use std::{pin::pin, sync::Arc};

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Found, Submission, attempts, interruption, replay, report, resolve, route, ticket::Ticket};
use crate::{
    call::CallReceipt,
    engine::Engine,
    journal::{CallTracker, OpenCall},
    reentrancy,
};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind},
    outcome::Outcome,
};

/// Finds the call's tool. A thread is made by being named, even by a call that asks for a tool that is not there; the others
/// are noted when they begin.
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
    resolve::find(&engine.registry, submission).inspect_err(|resolve::RefusedCall { call, .. }| {
        if let Some(thread) = &call.thread {
            engine.services.thread_activity.record_call(&call.tenant, thread, call.arrived_at);
        }
    })
}

/// Runs a call and waits for its end. A caller that stops waiting cancels it.
///
/// Each sort of call gets a future of its own: a plain one is boxed as it is, and stays small enough for the allocator's
/// quick path (about 1 KiB).
pub(crate) fn run(engine: &Arc<Engine>, call: Submission) -> BoxFuture<'_, Outcome> {
    match resolve_call(engine, call) {
        Err(refused) => Box::pin(async move { refused_outcome(engine, refused) }),
        Ok(found) if found.runs_in_place() => Box::pin(run_stages(engine, found, true)),
        Ok(found) => Box::pin(async move {
            let goes_on = found.0.call.outlives_caller();
            let (mut pending, cancel) = spawn_call(engine, found);
            let wanted = CancelOnDrop { cancel, disarmed: goes_on };
            let outcome = pending.outcome().await;
            wanted.disarm();
            outcome
        }),
    }
}

/// Runs a call and waits for its end, or until a person is asked; then it goes on without its caller.
pub(crate) fn run_until_approval(engine: &Arc<Engine>, call: Submission) -> BoxFuture<'_, CallReceipt> {
    match resolve_call(engine, call) {
        Err(refused) => Box::pin(async move { CallReceipt::Ended(refused_outcome(engine, refused)) }),
        Ok(found) if found.runs_in_place() => {
            Box::pin(async move { CallReceipt::Ended(run_stages(engine, found, true).await) })
        }
        Ok(mut found) => Box::pin(async move {
            found.0.call.wait = found.0.call.wait.until_approval();
            let goes_on = found.0.call.outlives_caller();
            let (mut pending, cancel) = spawn_call(engine, found);
            let wanted = CancelOnDrop { cancel, disarmed: goes_on };
            let reached = pending.accepted().await;
            wanted.disarm();
            reached
        }),
    }
}

/// Starts a call on a task of its own.
pub(crate) fn start(engine: &Arc<Engine>, call: Submission) -> PendingOutcome {
    match resolve_call(engine, call) {
        Ok(found) => spawn_call(engine, found).0,
        Err(refused) => {
            let outcome = refused_outcome(engine, refused);
            PendingOutcome { receiver: oneshot::channel().1, fallback: Some(Box::new(outcome)), tracker: None }
        }
    }
}

/// The end of a call that has found no tool.
fn refused_outcome(engine: &Engine, refused: resolve::RefusedCall) -> Outcome {
    let ticket = Ticket::new(&engine.services, &refused.call);
    let outcome = ticket.refused_outcome(refused.error);
    report::report(ticket, &outcome);
    outcome
}

/// The end of a call on a task of its own, when it comes.
pub(crate) struct PendingOutcome {
    receiver: oneshot::Receiver<Outcome>,
    /// The end if nobody tells: the call was refused at once, or its task vanished with the runtime.
    fallback: Option<Box<Outcome>>,
    /// Where it is, if it was not refused at once.
    tracker: Option<Arc<CallTracker>>,
}

impl PendingOutcome {
    /// Waits for the end. To be asked until it is told, and not again.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let told = (&mut self.receiver).await.ok();
        told.or_else(|| self.fallback.take().map(|outcome| *outcome)).expect("a pending call is asked once")
    }

    /// Waits for the end, or until the journal has the call and it waits or runs.
    pub(crate) async fn accepted(&mut self) -> CallReceipt {
        let Some(tracker) = self.tracker.clone() else { return CallReceipt::Ended(self.outcome().await) };
        // An end that is there already is told; the order decides.
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

/// Starts a call on a task of its own; answers also what cancels it.
fn spawn_call(engine: &Arc<Engine>, mut found: Found) -> (PendingOutcome, CancellationToken) {
    let (tell, told) = oneshot::channel();
    let otherwise = Some(Box::new(Ticket::new(&engine.services, &found.0.call).lost_outcome()));
    let call = &mut found.0.call;
    let (id, cancel) = (call.id, call.cancel.get_or_insert_default().clone());
    let tracker = CallTracker::new(call, cancel.clone());
    found.0.tracker = Some(tracker.clone());
    let running = engine.live_calls.register(&tracker);
    let progress = found.0.call.progress.clone();
    let (tasks, runtime) = (engine.call_tasks.clone(), engine.runtime.clone());
    let engine = engine.clone();
    // A call that nobody waits for holds up nobody, so it need not know where it was made.
    let hold = reentrancy::current().filter(|_| !found.0.call.wait.is_detached());
    let task = async move {
        let outcome = run_stages(&engine, found, false).await;
        drop(running);
        if outcome.error.is_some() {
            engine.journal.mark_stopped(id);
        }
        if let Some(progress) = progress {
            progress.close();
        }
        // Nobody waiting any more is no failure: the end is recorded.
        let _ = tell.send(outcome);
    };
    match hold {
        None => tasks.spawn_on(task, &runtime),
        Some(hold) => tasks.spawn_on(hold.scope(task), &runtime),
    };
    (PendingOutcome { receiver: told, fallback: otherwise, tracker: Some(tracker) }, cancel)
}

/// Walks a call through all doors and reports its end, even if something panics on the way.
async fn run_stages(engine: &Engine, found: Found, in_place: bool) -> Outcome {
    let mut ticket = Ticket::new(&engine.services, &found.0.call);
    ticket.mark_running(in_place, &found.0.tool, &engine.registry);
    let tracker = found.0.tracker.clone();
    let passed = {
        let walking = pin!(route(engine, found, &mut ticket));
        attempts::catch_panic(walking).await
    };
    let outcome = match passed {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(refusal)) => match preopened_record(tracker.as_deref(), &refusal) {
            PreopenedRecord::Absent => {
                ticket.count_end(refusal.kind);
                ticket.refused_outcome(refusal)
            }
            PreopenedRecord::Retained => {
                let outcome = Outcome { effect: Effect::Unknown, ..ticket.refused_outcome(deferred_error(refusal)) };
                ticket.complete();
                return outcome;
            }
            PreopenedRecord::MustClose(open) => {
                ticket.count_end(refusal.kind);
                let outcome = ticket.refused_outcome(refusal);
                Box::pin(close_refused(engine, &open, &outcome, tracker)).await;
                outcome
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

/// What becomes of the record of a call that is refused, where it was written down before.
pub(super) enum PreopenedRecord {
    /// It was not.
    Absent,
    /// It stays as it is, for the next start.
    Retained,
    /// It is closed as refused.
    MustClose(Box<OpenCall>),
}

pub(super) fn preopened_record(tracker: Option<&CallTracker>, refusal: &CallError) -> PreopenedRecord {
    let Some(tracker) = tracker else { return PreopenedRecord::Absent };
    // Cancelled because the hub goes down, it has done nothing yet: it can go on later.
    let cut_off =
        refusal.kind == ErrorKind::Cancelled && tracker.is_cancelled_by_shutdown() && tracker.leave_for_recovery();
    if cut_off || tracker.is_left_for_recovery() {
        return PreopenedRecord::Retained;
    }
    tracker.take_preopened().map_or(PreopenedRecord::Absent, PreopenedRecord::MustClose)
}

/// What is told to somebody who still waits for a call that goes on at the next start: it has not run, and it will.
fn deferred_error(refusal: CallError) -> CallError {
    CallError::new(ErrorKind::Interrupted)
        .operator("the hub goes down; the call has not run yet, and goes on when the hub is started again")
        .model("This call has not run yet and goes on later by itself. Do not make it again.")
        .detail(refusal.detail)
}

/// Closes a call that was written down before it came to its turn, and is refused now. If that is not possible, it is closed
/// when the store answers again.
async fn close_refused(engine: &Engine, open: &OpenCall, outcome: &Outcome, tracker: Option<Arc<CallTracker>>) {
    let Some(tracker) = tracker else { return };
    if let Err(error) = interruption::close_open_call(engine, &tracker.head.tenant, open, outcome).await {
        tracing::warn!(%error, call = %outcome.id, "a call that was refused could not be closed; that is tried again");
        engine.journal.note_unwritten(outcome);
    }
}

/// Held by a caller while it waits. Dropped early it cancels the call, unless the call goes on without its caller.
struct CancelOnDrop {
    cancel: CancellationToken,
    disarmed: bool,
}

impl CancelOnDrop {
    /// The end is there. What the tool may still be doing with its context is its own affair now.
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
