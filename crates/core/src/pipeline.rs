//! The call pipeline: an ordered list of stages that every call passes.
//!
//! This file is the list; each stage is a file of its own below it. A call is a value that changes its type from stage
//! to stage, `Call → Found → Valid → Allowed → Placed → Opened → Executing → Done → Outcome`, so that no stage can be
//! skipped or reordered. Every call produces exactly one `Outcome`.
//!
//! A stage may refuse the call (`CallError`) until the opening record is written; from then on every end is a `Done`
//! and goes through the close stage.

mod admission;
mod attempts;
mod batch;
mod cache;
mod close;
mod dependencies;
mod external;
mod forecast;
mod hooks;
mod interruption;
mod launch;
mod open;
mod output;
mod policy;
mod prepare;
mod replay;
mod report;
mod resolve;
mod resume;
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
pub(crate) use admission::rate_limited;
pub(crate) use batch::run_batch;
pub use cache::CacheForecast;
pub(crate) use forecast::{Forecast, forecast};
pub(crate) use interruption::{close_open_call, close_unopened_call, emit_interrupted, interrupted_outcome};
use launch::resolve_call;
pub(crate) use launch::{PendingOutcome, run, run_until_approval, start};
pub(crate) use prepare::prepare;
pub(crate) use resume::spawn_resumed;
use ticket::Ticket;
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ToolError},
    outcome::Outcome,
};

/// The stages, in order.
async fn route<'a>(engine: &'a Engine, found: Found, ticket: &mut Ticket<'a>) -> Result<Outcome, CallError> {
    let Engine { services, journal, statuses, .. } = engine;

    //  1. resolve: which tool? `Call → Found`. `run` and `start` do this, because the tool decides where its call runs.

    // A call that is resumed because its process died has passed stages 2 to 8 before; those that must not act twice
    // check `is_resumed`. There is no branch for that here, because it would enlarge the future of every call.

    //  2. replay: does the idempotency key or the caller's call id name an earlier call?
    let found = match replay::lookup(journal, services, found).await? {
        replay::ReplayLookup::Hit(outcome) => return Ok(ticket.replayed_outcome(*outcome)),
        replay::ReplayLookup::Miss(found) => found,
    };
    //  3. status pre-check: is the tool withheld?
    status::pre_check(statuses, &found)?;
    //  4. dependencies: have the tools it depends on succeeded in this thread?
    dependencies::check(engine, &found).await?;
    //  5. before-hooks: may block the call or rewrite its arguments
    let found = hooks::before(found).await?;
    //  6. validate: do the arguments match the schema? `Found → Valid`
    let valid = validate::check(engine, found)?;
    //  7. policy: deny, ask a person, or allow. `Valid → Allowed`
    let allowed = policy::decide(engine, valid).await?;
    //  8. cache: is there a cached result?
    let allowed = match cache::lookup(engine, allowed, ticket).await? {
        cache::CacheLookup::Hit(outcome) => return Ok(*outcome),
        cache::CacheLookup::Miss(allowed) => allowed,
    };
    //     A detached call is journaled before it queues, because no caller waits for it and it must survive a restart.
    let allowed = if allowed.0.call.wait.is_detached() {
        Box::pin(open::preopen_for_queue(engine, allowed)).await?
    } else {
        allowed
    };
    //  9. admission: rate limits, concurrency and queue. `Allowed → Placed`, which holds a slot
    let mut placed = match admission::admit(services, allowed)? {
        admission::Placement::Ready(placed) if placed.envelope.approval().is_none() => placed,
        //  A call that waited, for a person or in the queue, must also pass the rules that were added meanwhile.
        admission::Placement::Ready(placed) => policy::recheck_rules(engine, placed)?,
        admission::Placement::Pending(slot_wait) => {
            ticket.mark_scheduled(services.clock.instant());
            policy::recheck_rules(engine, slot_wait.await?)?
        }
    };
    // 10. status gate: is the tool still available, now that the call holds a slot?
    if let Some(probing) = status::gate(statuses, services, &mut placed) {
        probing.await?;
    }
    // 11. open: writes the opening record. `Placed → Opened`; from here on nothing is refused
    let record = match open::write_record(engine, &placed)? {
        Some(writing) => Some(writing.await?),
        None => None,
    };
    let opened = open::open(services, placed, record, ticket);
    // 12. attempts: the tool runs. `Opened → Executing → Done`
    let mut executing = attempts::begin(services, opened, ticket);
    ticket.record_if_dropped(engine.batched_records.as_deref(), executing.context());
    let mut verdict;
    let outcome = loop {
        let result = attempts::run(services, &mut executing, ticket).await;
        if !executing.context().envelope().tool.hooks.is_empty() {
            ticket.mark_done(services.clock.instant());
        }
        let mut done = executing.done(result);
        cache::store_result(engine, &done);
        // 13. after-hooks, and the output size limits
        if let Some(running_hooks) = hooks::after(&mut done) {
            running_hooks.await;
        }
        if let Some(truncating) = output::limit(services, &mut done) {
            truncating.await;
        }
        verdict = status::verdict(statuses, &mut done);
        // 14. close: state, record and outcome in one transaction. `Done → Outcome`, or back to stage 12 after a write
        //     conflict on the state, if the tool may run again
        ticket.mark_counted();
        let committing = match close::close(engine, done, ticket) {
            close::Closing::Closed(outcome) => break outcome,
            close::Closing::Committing(committing) => committing,
        };
        match *committing.await {
            close::CloseResult::Closed(outcome) => break outcome,
            close::CloseResult::Rerun(rerun) => {
                let probe_guard = verdict.map(|verdict| Box::new(verdict.0));
                executing = attempts::Executing::rerun(services, rerun, probe_guard, ticket);
            }
        }
    };
    // 15. report to the tool's status. `run_stages` emits the events, because a refusal needs them too.
    match verdict {
        None => Ok(outcome),
        Some(verdict) => Ok(*status::report_verdict(&engine.runtime, verdict, Box::new(outcome)).await),
    }
}

/// A call as the caller submits it.
pub(crate) struct Submission {
    pub(crate) call: Box<Call>,
    /// The tool list the caller was offered; if absent, the hub's current one.
    pub(crate) offer: Option<Arc<Tools>>,
    /// Its position among the calls of one step.
    pub(crate) step_call: Option<StepCall>,
}

impl From<Box<Call>> for Submission {
    fn from(call: Box<Call>) -> Self {
        Self { call, offer: None, step_call: None }
    }
}

/// The tool is known.
pub(crate) struct Found(CallEnvelope);
/// The arguments match the tool's schema.
struct Valid(CallEnvelope);
/// Every rule allows the call, or a person approved it.
struct Allowed(CallEnvelope);
/// The call holds a slot and a rate permit.
struct Placed {
    envelope: CallEnvelope,
    slot: CallSlot,
    rate_permit: admission::RefundOnDrop,
    /// The call's guard on the status records of its tool; none while no tool has a record.
    probe_guard: Option<Box<ProbeGuard>>,
}
/// The opening record is written, if the call needs one.
struct Opened {
    envelope: CallEnvelope,
    slot: CallSlot,
    rate_permit: admission::RefundOnDrop,
    probe_guard: Option<Box<ProbeGuard>>,
    record: Option<Arc<OpenCall>>,
}
/// The tool has returned, failed or was stopped.
struct Done {
    /// Owns the envelope: a tool may keep a clone of its context, so the call lives there from here on.
    context: CallContext,
    probe_guard: Option<Box<ProbeGuard>>,
    record: Option<Arc<OpenCall>>,
    result: Result<Reply, ToolError>,
    effect: Effect,
    /// Why an after-hook withholds the result.
    hook_error: Option<Box<CallError>>,
}

impl Found {
    /// Plain read-only calls run in the caller's own task: they have nothing to commit, so dropping them halfway is
    /// harmless, and a task of their own would cost more than the call. All others run on a task.
    fn runs_in_place(&self) -> bool {
        let CallEnvelope { call, tool, evidence_demand, .. } = &self.0;
        let leaves_evidence = *evidence_demand != EvidenceDemand::None && call.thread.is_some();
        let journaled = call.idempotency_key.is_some() || call.caller_minted_id || call.external.is_some();
        let plain = !journaled && !call.wait.is_detached() && !tool.stateful && !leaves_evidence;
        tool.definition.annotations.read_only && plain && !tool.gate.may_require_approval()
    }
}

/// How long a call may take: the tool's timeout, or the time limit of external work; or the caller's timeout if that is
/// shorter.
fn time_limit(envelope: &CallEnvelope) -> Duration {
    let limit = envelope.call.external.unwrap_or(envelope.tool.limits.timeout);
    envelope.call.timeout.map_or(limit, |requested| requested.min(limit))
}

/// The instant at which a call times out.
fn deadline(envelope: &CallEnvelope, now: Instant) -> Instant {
    clock::deadline_after(now, time_limit(envelope))
}
