//! The life of a call, from first door to last.
//!
//! This file is the list of doors; each door is a file of its own below it. A call is a value that changes its type
//! on the way, `Call → Found → Valid → Allowed → Placed → Opened → Trying → Done → Outcome`, so that no door can be passed
//! before the one ahead of it. Whatever happens, exactly one `Outcome` comes out.
//!
//! A refusal (`CallError`) is possible up to the opening record; from then on every end is a `Done` and is closed.

mod admission;
mod again;
mod attempts;
mod cache;
mod close;
mod dependencies;
mod hooks;
mod interrupted;
mod launch;
mod open;
mod output;
mod outside;
mod policy;
mod prepare;
mod replay;
mod report;
mod resolve;
mod status;
mod ticket;
mod validate;

use std::{sync::Arc, time::Duration};

use crate::{
    approvals::Permit,
    call::Call,
    context::CallContext,
    engine::Engine,
    executor::Reply,
    journal::OpenCall,
    kept::Fingerprint,
    registry::{Base, Tool},
    statuses::Standing,
};
pub(crate) use admission::{Slot, WeakSlot};
pub(crate) use again::run_again;
pub(crate) use interrupted::{close as close_open, outcome as interrupted, tell as tell_interrupted};
use launch::enter;
pub(crate) use launch::{Pending, run, run_until_asked, start};
pub(crate) use prepare::prepare;
use ticket::Ticket;
use toolhub_storage::{
    backend::Seen,
    clock::{self, Instant},
};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ToolError},
    ids::ApprovalId,
    outcome::Outcome,
};

/// The doors, in order.
async fn route(engine: &Engine, found: Found, ticket: &mut Ticket<'_>) -> Result<Outcome, CallError> {
    let Engine { services, journal, statuses, .. } = engine;

    //  1. resolve: which tool? `Call → Found`. It stands in `run` and `start`: the tool decides where its call runs.

    // A call that is run again, because its process died, has passed the doors up to 8 before: what was asked then is not
    // asked again. Not told by a branch here, because every call would carry its size.

    //  2. replay: was this very call made before?
    let found = match replay::look(journal, services, found).await? {
        replay::Seen::Before(outcome) => return Ok(ticket.replayed(*outcome)),
        replay::Seen::Never(found) => found,
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
    let allowed = match cache::look(engine, allowed, ticket).await? {
        cache::Known::Yes(outcome) => return Ok(*outcome),
        cache::Known::No(allowed) => allowed,
    };
    //     An asynchronous call is written down before it waits for its turn: nobody waits with it.
    let allowed =
        if allowed.0.call.detached { Box::pin(open::ahead_of_its_turn(engine, allowed)).await? } else { allowed };
    //  9. admission: whose turn is it? `Allowed → Placed`, which holds a slot
    let mut placed = match admission::place(services, allowed)? {
        admission::Placing::Now(placed) if placed.way.permit().is_none() => placed,
        //  Whatever has waited, for a person or for its turn, is denied by rules that came meanwhile too.
        admission::Placing::Now(placed) => policy::look_again(engine, placed)?,
        admission::Placing::Later(turn) => policy::look_again(engine, turn.await?)?,
    };
    // 10. status gate: may it still run, now that it is its turn?
    if let Some(looking) = status::gate(statuses, services, &mut placed) {
        looking.await?;
    }
    // 11. open: what must not be forgotten. `Placed → Opened`; from here on nothing is refused
    let record = match open::record(engine, &placed)? {
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
        cache::keep(engine, &done);
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
        ticket.closes();
        let end = match close::close(engine, done, ticket) {
            close::Closing::Closed(outcome) => break outcome,
            close::Closing::Committing(end) => end,
        };
        match *end.await {
            close::End::Closed(outcome) => break outcome,
            close::End::Again(again) => {
                let standing = verdict.map(|told| Box::new(told.0));
                trying = attempts::Trying::once_more(services, again, standing);
            }
        }
    };
    // 15. report to the tool's status; the report to listeners stands in `walk`, because a refusal is an end like any other
    match verdict {
        None => Ok(outcome),
        Some(verdict) => Ok(*status::tell(&engine.runtime, verdict, Box::new(outcome)).await),
    }
}

/// What travels through all doors: the call and the tool it asked for. The call is in a box, because a value that is
/// moved from door to door is copied at each.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) call: Box<Call>,
    pub(crate) tool: Arc<Tool>,
    /// Whether others wait for this tool.
    base: Base,
    /// What few calls carry along. Apart, because a value that is moved from door to door is copied at each.
    along: Option<Box<Along>>,
}

/// What few calls carry along.
#[derive(Default, Clone)]
struct Along {
    /// A claim on the call's idempotency key whose call the journal no longer knows; it may be taken over.
    stale_claim: Option<Seen>,
    /// The fingerprint of the arguments as the caller wrote them, for a call with a key.
    digest: Option<String>,
    /// A person's yes to exactly this call.
    permit: Option<Permit>,
    /// What the model is told beside the result.
    notes: Vec<String>,
    /// What the answer is kept as.
    keep_as: Option<Fingerprint>,
    /// The record that was written before the call came to its turn, or by a process that died.
    left_open: Option<Box<OpenCall>>,
}

impl Way {
    /// What it carries along, to be added to.
    fn along(&mut self) -> &mut Along {
        self.along.get_or_insert_default()
    }

    /// A person's yes to exactly this call.
    fn permit(&self) -> Option<&Permit> {
        self.along.as_ref()?.permit.as_ref()
    }

    /// The record of the call, if it was written before it came to its turn, or by a process that died.
    fn left_open(&self) -> Option<&OpenCall> {
        self.along.as_ref()?.left_open.as_deref()
    }

    /// Whether it has passed the doors up to 8 before: it is run again, or goes on, because its process died.
    fn runs_again(&self) -> bool {
        self.left_open().is_some()
    }

    /// The question it waits for, or did when its process died.
    fn asked(&self) -> Option<ApprovalId> {
        self.left_open().filter(|left| left.waits()).and_then(|left| left.record.approval)
    }

    /// What the model is told beside the result.
    fn notes(&self) -> &[String] {
        self.along.as_ref().map_or(&[], |along| &along.notes)
    }
}

/// The tool is known.
pub(crate) struct Found(Way);
/// The arguments fit the tool.
struct Valid(Way);
/// Every rule said yes.
struct Allowed(Way);
/// It is the call's turn.
struct Placed {
    way: Way,
    slot: admission::Slot,
    token: admission::Unspent,
    /// How the call stands with the records of its tool; none while no tool has a record.
    standing: Option<Box<Standing>>,
}
/// What must not be forgotten about the call is written down.
struct Opened {
    way: Way,
    slot: admission::Slot,
    token: admission::Unspent,
    standing: Option<Box<Standing>>,
    record: Option<Box<OpenCall>>,
}
/// The tool has run, or was stopped.
struct Done {
    /// Holds the way: a tool may keep its context, so the call lives there from here on.
    context: CallContext,
    standing: Option<Box<Standing>>,
    record: Option<Box<OpenCall>>,
    result: Result<Reply, ToolError>,
    effect: Effect,
    /// Why nobody sees the result.
    withheld: Option<Box<CallError>>,
}

impl Found {
    /// Plain read-only calls run in the caller's own task: they have nothing to commit, so being dropped halfway harms
    /// nothing, and a task of their own would cost more than the call. All others run on a task.
    fn runs_in_place(&self) -> bool {
        let Way { call, tool, base, .. } = &self.0;
        let proves = *base != Base::No && call.thread.is_some();
        let known = call.key.is_some() || call.own_id || call.external.is_some();
        let plain = !known && !call.detached && !tool.stateful && !proves;
        tool.definition.annotations.read_only && plain && !tool.gate.may_ask()
    }
}

/// How long a call may take: the tool's time, or what somebody outside has for it; or the caller's where that is shorter.
fn time_limit(way: &Way) -> Duration {
    let own = way.call.external.unwrap_or(way.tool.limits.timeout);
    way.call.timeout.map_or(own, |wanted| wanted.min(own))
}

/// When a call must be done.
fn deadline(way: &Way, now: Instant) -> Instant {
    clock::after(now, time_limit(way))
}
