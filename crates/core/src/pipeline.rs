//! The life of a call, from first door to last.
//!
//! This file is the list of doors; each door is a file of its own below it. A call is a value that changes its type
//! on the way, `Call → Found → Valid → Allowed → Placed → Opened → Trying → Done → Outcome`, so that no door can be passed
//! before the one ahead of it. Whatever happens, exactly one `Outcome` comes out.
//!
//! A refusal (`CallError`) is possible up to the opening record; from then on every end is a `Done` and is closed.

mod admission;
mod attempts;
mod batch;
mod cache;
mod close;
mod dependencies;
mod external;
mod hooks;
mod interruption;
mod launch;
mod open;
mod output;
mod policy;
mod prepare;
mod replay;
mod report;
mod rerun;
mod resolve;
mod state_locks;
mod status;
mod ticket;
mod validate;

use std::{sync::Arc, time::Duration};

use crate::{
    call::Call,
    engine::Engine,
    execution::{CallContext, CallEnvelope, CallSlot, EvidenceDemand, Reply},
    journal::OpenCall,
    registry::Tools,
    statuses::ProbeGuard,
    step::StepCall,
};
pub(crate) use batch::run_batch;
pub(crate) use interruption::{
    close_open_call as close_open, emit_interrupted as tell_interrupted, interrupted_outcome as interrupted,
};
use launch::resolve_call;
pub(crate) use launch::{PendingOutcome, run, run_until_approval, start};
pub(crate) use prepare::prepare;
pub(crate) use rerun::spawn_rerun;
use ticket::Ticket;
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ToolError},
    outcome::Outcome,
};

/// The doors, in order.
async fn route(engine: &Engine, found: Found, ticket: &mut Ticket<'_>) -> Result<Outcome, CallError> {
    let Engine { services, journal, statuses, .. } = engine;

    //  1. resolve: which tool? `Call → Found`. It stands in `run` and `start`: the tool decides where its call runs.

    // A call that is run again, because its process died, has passed the doors up to 8 before: what was asked then is not
    // asked again. Not told by a branch here, because every call would carry its size.

    //  2. replay: was this very call made before?
    let found = match replay::lookup(journal, services, found).await? {
        replay::ReplayLookup::Hit(outcome) => return Ok(ticket.replayed_outcome(*outcome)),
        replay::ReplayLookup::Miss(found) => found,
    };
    //  3. status pre-check: is the tool withheld?
    status::pre_check(statuses, &found)?;
    //  4. dependencies: has its time come?
    dependencies::check(journal, services, &found).await?;
    //  5. before-hooks: what does the owner's own code say?
    let found = hooks::before(found).await?;
    //  6. validate: do the arguments fit? `Found → Valid`
    let valid = validate::check(engine, found)?;
    //  7. policy: deny, ask, allow. `Valid → Allowed`
    let allowed = policy::decide(engine, valid).await?;
    //  8. cache: is the answer known?
    let allowed = match cache::lookup(engine, allowed, ticket).await? {
        cache::CacheLookup::Hit(outcome) => return Ok(*outcome),
        cache::CacheLookup::Miss(allowed) => allowed,
    };
    //     An asynchronous call is written down before it waits for its turn: nobody waits with it.
    let allowed = if allowed.0.call.wait.is_detached() {
        Box::pin(open::preopen_for_queue(engine, allowed)).await?
    } else {
        allowed
    };
    //  9. admission: whose turn is it? `Allowed → Placed`, which holds a slot
    let mut placed = match admission::admit(services, allowed)? {
        admission::Placement::Ready(placed) if placed.envelope.approval().is_none() => placed,
        //  Whatever has waited, for a person or for its turn, is denied by rules that came meanwhile too.
        admission::Placement::Ready(placed) => policy::recheck_rules(engine, placed)?,
        admission::Placement::Pending(turn) => policy::recheck_rules(engine, turn.await?)?,
    };
    // 10. status gate: may it still run, now that it is its turn?
    if let Some(looking) = status::gate(statuses, services, &mut placed) {
        looking.await?;
    }
    // 11. open: what must not be forgotten. `Placed → Opened`; from here on nothing is refused
    let record = match open::write_record(engine, &placed)? {
        Some(writing) => Some(writing.await?),
        None => None,
    };
    let opened = open::open(services, placed, record, ticket);
    // 12. attempts: the tool runs. `Opened → Trying → Done`
    let mut trying = attempts::begin(services, opened, ticket);
    let mut verdict;
    let outcome = loop {
        let result = attempts::run(services, &mut trying, ticket).await;
        let mut done = trying.done(result);
        cache::store_result(engine, &done);
        // 13. after-hooks, and no more text than a model can bear
        if let Some(asking) = hooks::after(&mut done) {
            asking.await;
        }
        if let Some(cutting) = output::limit(services, &mut done) {
            cutting.await;
        }
        verdict = status::verdict(statuses, &mut done);
        // 14. close: state, record and outcome in one transaction. `Done → Outcome`, or back to door 12 when somebody else
        //     has changed the state and the tool may run once more
        ticket.mark_counted();
        let end = match close::close(engine, done, ticket) {
            close::Closing::Closed(outcome) => break outcome,
            close::Closing::Committing(end) => end,
        };
        match *end.await {
            close::CloseResult::Closed(outcome) => break outcome,
            close::CloseResult::Rerun(again) => {
                let standing = verdict.map(|told| Box::new(told.0));
                trying = attempts::Executing::rerun(services, again, standing);
            }
        }
    };
    // 15. report to the tool's status; the report to listeners stands in `walk`, because a refusal is an end like any other
    match verdict {
        None => Ok(outcome),
        Some(verdict) => Ok(*status::report_verdict(&engine.runtime, verdict, Box::new(outcome)).await),
    }
}

/// A call as it is handed in.
pub(crate) struct Submission {
    pub(crate) call: Box<Call>,
    /// The list the caller was offered; the hub's present one where absent.
    pub(crate) offer: Option<Arc<Tools>>,
    /// Its place among the calls of one step.
    pub(crate) step_call: Option<StepCall>,
}

impl From<Box<Call>> for Submission {
    fn from(call: Box<Call>) -> Self {
        Self { call, offer: None, step_call: None }
    }
}

/// The tool is known.
pub(crate) struct Found(CallEnvelope);
/// The arguments fit the tool.
struct Valid(CallEnvelope);
/// Every rule said yes.
struct Allowed(CallEnvelope);
/// It is the call's turn.
struct Placed {
    envelope: CallEnvelope,
    slot: CallSlot,
    rate_permit: admission::RefundOnDrop,
    /// How the call stands with the records of its tool; none while no tool has a record.
    probe_guard: Option<Box<ProbeGuard>>,
}
/// What must not be forgotten about the call is written down.
struct Opened {
    envelope: CallEnvelope,
    slot: CallSlot,
    rate_permit: admission::RefundOnDrop,
    probe_guard: Option<Box<ProbeGuard>>,
    record: Option<Box<OpenCall>>,
}
/// The tool has run, or was stopped.
struct Done {
    /// Holds the way: a tool may keep its context, so the call lives there from here on.
    context: CallContext,
    probe_guard: Option<Box<ProbeGuard>>,
    record: Option<Box<OpenCall>>,
    result: Result<Reply, ToolError>,
    effect: Effect,
    /// Why nobody sees the result.
    hook_error: Option<Box<CallError>>,
}

impl Found {
    /// Plain read-only calls run in the caller's own task: they have nothing to commit, so being dropped halfway harms
    /// nothing, and a task of their own would cost more than the call. All others run on a task.
    fn runs_in_place(&self) -> bool {
        let CallEnvelope { call, tool, evidence_demand: base, .. } = &self.0;
        let proves = *base != EvidenceDemand::None && call.thread.is_some();
        let known = call.idempotency_key.is_some() || call.caller_minted_id || call.external.is_some();
        let plain = !known && !call.wait.is_detached() && !tool.stateful && !proves;
        tool.definition.annotations.read_only && plain && !tool.gate.may_require_approval()
    }
}

/// How long a call may take: the tool's time, or what somebody outside has for it; or the caller's where that is shorter.
fn time_limit(envelope: &CallEnvelope) -> Duration {
    let own = envelope.call.external.unwrap_or(envelope.tool.limits.timeout);
    envelope.call.timeout.map_or(own, |wanted| wanted.min(own))
}

/// When a call must be done.
fn deadline(envelope: &CallEnvelope, now: Instant) -> Instant {
    clock::deadline_after(now, time_limit(envelope))
}
