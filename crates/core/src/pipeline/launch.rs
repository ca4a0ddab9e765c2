//! Where a call runs: in its caller's own task, or on one of its own; and who is told when.
//!
//! In: a call. Out: its outcome, or that it goes on without its caller. The doors themselves are in `pipeline.rs`.

use std::{pin::pin, sync::Arc};

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Found, Submission, attempts, interrupted, replay, report, resolve, route, ticket::Ticket};
use crate::{
    call::Reached,
    engine::Engine,
    held,
    journal::{CallTracker, OpenCall},
};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind},
    outcome::Outcome,
};

/// Finds the call's tool. A thread is made by being named, even by a call that asks for a tool that is not there; the others
/// are noted when they begin.
pub(super) fn enter(engine: &Engine, submission: Submission) -> Result<Found, resolve::Refused> {
    let call = &submission.call;
    if engine.is_leaving() {
        let error = CallError::new(ErrorKind::ShuttingDown);
        return Err(resolve::Refused { call: submission.call, error });
    }
    if call.own_id && engine.live.has(call.id) {
        let error = replay::made_before(call.id, false);
        return Err(resolve::Refused { call: submission.call, error });
    }
    resolve::find(&engine.registry, submission).inspect_err(|resolve::Refused { call, .. }| {
        if let Some(thread) = &call.thread {
            engine.services.known.note(&call.tenant, thread, call.arrived);
        }
    })
}

/// Runs a call and waits for its end. A caller that stops waiting cancels it.
///
/// Each sort of call gets a future of its own: a plain one is boxed as it is, and stays small enough for the allocator's
/// quick path (about 1 KiB).
pub(crate) fn run(engine: &Arc<Engine>, call: Submission) -> BoxFuture<'_, Outcome> {
    match enter(engine, call) {
        Err(refused) => Box::pin(async move { turned_away(engine, refused) }),
        Ok(found) if found.runs_in_place() => Box::pin(walk(engine, found, true)),
        Ok(found) => Box::pin(async move {
            let goes_on = found.0.call.goes_on();
            let (mut pending, cancel) = launch(engine, found);
            let wanted = Wanted { cancel, goes_on };
            let outcome = pending.outcome().await;
            wanted.satisfied();
            outcome
        }),
    }
}

/// Runs a call and waits for its end, or until a person is asked; then it goes on without its caller.
pub(crate) fn run_until_asked(engine: &Arc<Engine>, call: Submission) -> BoxFuture<'_, Reached> {
    match enter(engine, call) {
        Err(refused) => Box::pin(async move { Reached::Ended(turned_away(engine, refused)) }),
        Ok(found) if found.runs_in_place() => Box::pin(async move { Reached::Ended(walk(engine, found, true).await) }),
        Ok(mut found) => Box::pin(async move {
            found.0.call.wait = found.0.call.wait.until_approval();
            let goes_on = found.0.call.goes_on();
            let (mut pending, cancel) = launch(engine, found);
            let wanted = Wanted { cancel, goes_on };
            let reached = pending.accepted().await;
            wanted.satisfied();
            reached
        }),
    }
}

/// Starts a call on a task of its own.
pub(crate) fn start(engine: &Arc<Engine>, call: Submission) -> Pending {
    match enter(engine, call) {
        Ok(found) => launch(engine, found).0,
        Err(refused) => {
            let outcome = turned_away(engine, refused);
            Pending { told: oneshot::channel().1, otherwise: Some(Box::new(outcome)), tracker: None }
        }
    }
}

/// The end of a call that has found no tool.
fn turned_away(engine: &Engine, refused: resolve::Refused) -> Outcome {
    let ticket = Ticket::new(&engine.services, &refused.call);
    let outcome = ticket.refused(refused.error);
    report::report(ticket, &outcome);
    outcome
}

/// The end of a call on a task of its own, when it comes.
pub(crate) struct Pending {
    told: oneshot::Receiver<Outcome>,
    /// The end if nobody tells: the call was refused at once, or its task vanished with the runtime.
    otherwise: Option<Box<Outcome>>,
    /// Where it is, if it was not refused at once.
    tracker: Option<Arc<CallTracker>>,
}

impl Pending {
    /// Waits for the end. To be asked until it is told, and not again.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let told = (&mut self.told).await.ok();
        told.or_else(|| self.otherwise.take().map(|outcome| *outcome)).expect("a pending call is asked once")
    }

    /// Waits for the end, or until the journal has the call and it waits or runs.
    pub(crate) async fn accepted(&mut self) -> Reached {
        let Some(tracker) = self.tracker.clone() else { return Reached::Ended(self.outcome().await) };
        // An end that is there already is told; the order decides.
        match select(pin!(self.outcome()), pin!(tracker.accepted())).await {
            Either::Left((outcome, _)) => Reached::Ended(outcome),
            Either::Right((approval, _)) => {
                let (call, thread) = (tracker.head.id, tracker.head.thread.clone());
                match approval {
                    Some(approval) => Reached::Waiting { call, approval, thread },
                    None => Reached::Accepted { call, thread },
                }
            }
        }
    }
}

/// Starts a call on a task of its own; answers also what cancels it.
fn launch(engine: &Arc<Engine>, mut found: Found) -> (Pending, CancellationToken) {
    let (tell, told) = oneshot::channel();
    let otherwise = Some(Box::new(Ticket::new(&engine.services, &found.0.call).lost()));
    let call = &mut found.0.call;
    let (id, cancel) = (call.id, call.cancel.get_or_insert_default().clone());
    let tracker = CallTracker::of(call, cancel.clone());
    found.0.tracker = Some(tracker.clone());
    let running = engine.live.enter(&tracker);
    let progress = found.0.call.progress.clone();
    let (tasks, runtime) = (engine.tasks.clone(), engine.runtime.clone());
    let engine = engine.clone();
    // A call that nobody waits for holds up nobody, so it need not know where it was made.
    let hold = held::current().filter(|_| !found.0.call.wait.is_detached());
    let task = async move {
        let outcome = walk(&engine, found, false).await;
        drop(running);
        if outcome.error.is_some() {
            engine.journal.gone(id);
        }
        if let Some(progress) = progress {
            progress.close();
        }
        // Nobody waiting any more is no failure: the end is recorded.
        let _ = tell.send(outcome);
    };
    match hold {
        None => tasks.spawn_on(task, &runtime),
        Some(hold) => tasks.spawn_on(hold.around(task), &runtime),
    };
    (Pending { told, otherwise, tracker: Some(tracker) }, cancel)
}

/// Walks a call through all doors and reports its end, even if something panics on the way.
async fn walk(engine: &Engine, found: Found, in_place: bool) -> Outcome {
    let mut ticket = Ticket::new(&engine.services, &found.0.call);
    ticket.runs(in_place, &found.0.tool, &engine.registry);
    let tracker = found.0.tracker.clone();
    let passed = {
        let walking = pin!(route(engine, found, &mut ticket));
        attempts::caught(walking).await
    };
    let outcome = match passed {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(refusal)) => match ahead(tracker.as_deref(), &refusal) {
            Ahead::Nothing => {
                ticket.count(refusal.kind);
                ticket.refused(refusal)
            }
            Ahead::Stays => {
                let outcome = Outcome { effect: Effect::Unknown, ..ticket.refused(left_for_later(refusal)) };
                ticket.settle();
                return outcome;
            }
            Ahead::Closes(open) => {
                ticket.count(refusal.kind);
                let outcome = ticket.refused(refusal);
                Box::pin(close_refused(engine, &open, &outcome, tracker)).await;
                outcome
            }
        },
        Err(panic) => {
            ticket.count(ErrorKind::Internal);
            let outcome = ticket.refused(CallError::new(ErrorKind::Internal).operator(attempts::panic_text(panic)));
            if !in_place {
                engine.journal.not_written(&outcome);
            }
            outcome
        }
    };
    report::report(ticket, &outcome);
    outcome
}

/// What becomes of the record of a call that is refused, where it was written down before.
pub(super) enum Ahead {
    /// It was not.
    Nothing,
    /// It stays as it is, for the next start.
    Stays,
    /// It is closed as refused.
    Closes(Box<OpenCall>),
}

pub(super) fn ahead(tracker: Option<&CallTracker>, refusal: &CallError) -> Ahead {
    let Some(tracker) = tracker else { return Ahead::Nothing };
    // Cancelled because the hub goes down, it has done nothing yet: it can go on later.
    let cut_off = refusal.kind == ErrorKind::Cancelled && tracker.is_cut_off() && tracker.leave();
    if cut_off || tracker.is_left() {
        return Ahead::Stays;
    }
    tracker.take_ahead().map_or(Ahead::Nothing, Ahead::Closes)
}

/// What is told to somebody who still waits for a call that goes on at the next start: it has not run, and it will.
fn left_for_later(refusal: CallError) -> CallError {
    CallError::new(ErrorKind::Interrupted)
        .operator("the hub goes down; the call has not run yet, and goes on when the hub is started again")
        .model("This call has not run yet and goes on later by itself. Do not make it again.")
        .detail(refusal.detail)
}

/// Closes a call that was written down before it came to its turn, and is refused now. If that is not possible, it is closed
/// when the store answers again.
async fn close_refused(engine: &Engine, open: &OpenCall, outcome: &Outcome, tracker: Option<Arc<CallTracker>>) {
    let Some(tracker) = tracker else { return };
    if let Err(error) = interrupted::close(engine, &tracker.head.tenant, open, outcome).await {
        tracing::warn!(%error, call = %outcome.id, "a call that was refused could not be closed; that is tried again");
        engine.journal.not_written(outcome);
    }
}

/// Held by a caller while it waits. Dropped early it cancels the call, unless the call goes on without its caller.
struct Wanted {
    cancel: CancellationToken,
    goes_on: bool,
}

impl Wanted {
    /// The end is there. What the tool may still be doing with its context is its own affair now.
    fn satisfied(mut self) {
        self.goes_on = true;
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if !self.goes_on {
            self.cancel.cancel();
        }
    }
}
