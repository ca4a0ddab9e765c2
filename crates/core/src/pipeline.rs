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
mod open;
mod output;
mod policy;
mod prepare;
mod replay;
mod report;
mod resolve;
mod status;
mod ticket;
mod validate;

use std::{pin::pin, sync::Arc};

use futures_core::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    approvals::Permit,
    backend::Seen,
    call::{Call, Effect, Outcome},
    clock::{self, Instant},
    context::CallContext,
    engine::Engine,
    error::{CallError, ErrorKind, ToolError},
    executor::Reply,
    held,
    journal::OpenCall,
    kept::Fingerprint,
    registry::{Base, Tool},
    statuses::Standing,
};
pub(crate) use admission::{Slot, WeakSlot};
pub(crate) use again::run_again;
pub(crate) use interrupted::{close as close_open, outcome as interrupted, tell as tell_interrupted};
pub(crate) use prepare::prepare;
use ticket::Ticket;

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
    //  9. admission: whose turn is it? `Allowed → Placed`, which holds a slot
    let mut placed = match admission::place(services, allowed)? {
        admission::Placing::Now(placed) => placed,
        admission::Placing::Later(turn) => turn.await?,
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
    /// The record of a call whose process died.
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

    /// The record of a call whose process died; it is run again.
    fn left_open(&self) -> Option<&OpenCall> {
        self.along.as_ref()?.left_open.as_deref()
    }

    /// Whether it is run again, because its process died.
    fn runs_again(&self) -> bool {
        self.left_open().is_some()
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
        tool.definition.annotations.read_only && call.key.is_none() && !tool.stateful && !proves && !tool.gate.may_ask()
    }
}

/// Finds the call's tool. A thread is made by being named, even by a call that asks for a tool that is not there; the others
/// are noted when they begin.
fn enter(engine: &Engine, call: Box<Call>) -> Result<Found, resolve::Refused> {
    resolve::find(&engine.registry, call).inspect_err(|resolve::Refused { call, .. }| {
        if let Some(thread) = &call.thread {
            engine.services.known.note(&call.tenant, thread, call.arrived);
        }
    })
}

/// Runs a call and waits for its end. A caller that stops waiting cancels it.
///
/// Each sort of call gets a future of its own: a plain one is boxed as it is, and stays small enough for the allocator's
/// quick path (about 1 KiB).
pub(crate) fn run(engine: &Arc<Engine>, call: Box<Call>) -> BoxFuture<'_, Outcome> {
    match enter(engine, call) {
        Err(refused) => Box::pin(async move {
            let ticket = Ticket::new(&engine.services, &refused.call);
            let outcome = ticket.refused(refused.error);
            report::report(ticket, &outcome);
            outcome
        }),
        Ok(found) if found.runs_in_place() => Box::pin(walk(engine, found, true)),
        Ok(mut found) => Box::pin(async move {
            let call = &mut found.0.call;
            let wanted = Wanted { cancel: call.cancel.get_or_insert_default().clone(), goes_on: call.goes_on() };
            let outcome = launch(engine, found).outcome().await;
            wanted.satisfied();
            outcome
        }),
    }
}

/// Starts a call on a task of its own.
pub(crate) fn start(engine: &Arc<Engine>, call: Box<Call>) -> Pending {
    match enter(engine, call) {
        Ok(found) => launch(engine, found),
        Err(refused) => {
            let ticket = Ticket::new(&engine.services, &refused.call);
            let outcome = ticket.refused(refused.error);
            report::report(ticket, &outcome);
            Pending { told: oneshot::channel().1, otherwise: Some(Box::new(outcome)) }
        }
    }
}

/// The end of a call on a task of its own, when it comes.
pub(crate) struct Pending {
    told: oneshot::Receiver<Outcome>,
    /// The end if nobody tells: the call was refused at once, or its task vanished with the runtime.
    otherwise: Option<Box<Outcome>>,
}

impl Pending {
    /// Waits for the end. To be asked once.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let told = (&mut self.told).await.ok();
        told.or_else(|| self.otherwise.take().map(|outcome| *outcome)).expect("a pending call is asked once")
    }
}

fn launch(engine: &Arc<Engine>, found: Found) -> Pending {
    let (tell, told) = oneshot::channel();
    let otherwise = Some(Box::new(Ticket::new(&engine.services, &found.0.call).lost()));
    let id = found.0.call.id;
    let running = engine.live.enter(id, found.0.call.cancel.clone());
    let progress = found.0.call.progress.clone();
    let (tasks, runtime) = (engine.tasks.clone(), engine.runtime.clone());
    let engine = engine.clone();
    // A call that nobody waits for holds up nobody, so it need not know where it was made.
    let hold = held::current().filter(|_| !found.0.call.detached);
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
    Pending { told, otherwise }
}

/// Walks a call through all doors and reports its end, even if something panics on the way.
async fn walk(engine: &Engine, found: Found, in_place: bool) -> Outcome {
    let mut ticket = Ticket::new(&engine.services, &found.0.call);
    ticket.runs(in_place, &found.0.tool, &engine.registry);
    let passed = {
        let walking = pin!(route(engine, found, &mut ticket));
        attempts::caught(walking).await
    };
    let outcome = match passed {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(refusal)) => {
            ticket.count(refusal.kind);
            ticket.refused(refusal)
        }
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

/// When a call must be done: the tool's time, or the caller's where that is shorter.
fn deadline(way: &Way, now: Instant) -> Instant {
    let own = way.tool.limits.timeout;
    clock::after(now, way.call.timeout.map_or(own, |wanted| wanted.min(own)))
}
