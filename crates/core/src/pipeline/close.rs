//! Door 14: state, record and outcome become true together.
//!
//! In: what the tool did. Out: the outcome, committed where it must be. The tool's result is kept even when its state
//! could not be: the world has changed, and the caller must know.

mod commit_plan;

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_core::future::BoxFuture;

use super::{
    Done, admission,
    attempts::{Rerun, panic_text},
    ticket::Ticket,
    validate,
};
use crate::{
    engine::Engine,
    execution::{CallContext, CallEnvelope, EvidenceDemand, Reply},
    journal::OpenCall,
    state::Drafts,
    statuses::StatusKey,
};
use commit_plan::{CommitError, CommitPlan};
use toolhub_types::{
    error::{CallError, ErrorKind, ToolError},
    outcome::Outcome,
};

/// The end of a call: there already, or as soon as it is committed. Not an async function: a plain call has nothing to
/// wait for, and would carry the size of the waiting all the same.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum Closing<'a> {
    Closed(Outcome),
    Committing(BoxFuture<'a, Box<CloseResult>>),
}

/// What came of the closing.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum CloseResult {
    Closed(Outcome),
    /// Nothing was committed: somebody else changed the states, and the tool may run once more.
    Rerun(Rerun),
}

pub(super) fn close<'a>(engine: &'a Engine, done: Done, ticket: &'a Ticket<'_>) -> Closing<'a> {
    let Done { context, record, result, effect, hook_error: withheld, .. } = done;
    let envelope = context.envelope();
    let (reply, error, drafts) = match (result, withheld) {
        // What the tool did stays done, and what it remembers of it too; only nobody sees what it said.
        (Ok(_), Some(why)) => match collect_drafts(&context) {
            (drafts, None) => (Reply::default(), Some(*why), drafts),
            (drafts, Some(unsaved)) => {
                let both = format!("{}; {}", why.operator, unsaved.operator);
                (Reply::default(), Some(why.operator(both)), drafts)
            }
        },
        (Ok(reply), None) => {
            let (drafts, unsaved) = collect_drafts(&context);
            (reply, unsaved.map(|unsaved| to_call_error(envelope, unsaved)), drafts)
        }
        // A failure may tell as much as a result. That the caller cancelled tells nothing.
        (Err(failed), Some(mut why)) if failed.kind != ErrorKind::Cancelled => {
            why.counts = to_call_error(envelope, failed).counts;
            (Reply::default(), Some(*why), context.checkouts().take_unchanged_drafts())
        }
        (Err(failed), _) => {
            (Reply::default(), Some(to_call_error(envelope, failed)), context.checkouts().take_unchanged_drafts())
        }
    };
    let outcome = ticket.outcome(effect, reply.output, reply.content, error);
    let proves = outcome.is_success() && envelope.evidence_demand != EvidenceDemand::None;
    if record.is_none() && drafts.list.iter().all(|draft| draft.text.is_none()) && !proves {
        count_end(engine, envelope, &outcome);
        if let Some(plain) = &engine.batched_records {
            plain.note(context, &outcome);
        }
        return Closing::Closed(outcome);
    }
    Closing::Committing(Box::pin(commit_end(engine, context, record, (outcome, drafts), ticket)))
}

/// Counts a call that has ended, and remembers that the tool did well for those who ask about its status.
fn count_end(engine: &Engine, envelope: &CallEnvelope, outcome: &Outcome) {
    let desk = &envelope.tool.runtime;
    desk.meter.record_end(outcome.duration, outcome.error.as_ref().map(|error| error.kind));
    if outcome.is_success() {
        desk.last_success.note(outcome.ended_at);
        if let Some(thread) = &envelope.call.thread {
            let whose = StatusKey::thread(&envelope.tool.definition.name, &envelope.call.tenant, thread);
            engine.statuses.successes.note(whose, outcome.ended_at);
        }
    }
}

/// Commits the end of a call that has something to commit.
async fn commit_end(
    engine: &Engine,
    context: CallContext,
    record: Option<Box<OpenCall>>,
    (mut outcome, mut drafts): (Outcome, Drafts),
    ticket: &Ticket<'_>,
) -> Box<CloseResult> {
    let (envelope, services) = (context.envelope(), &engine.services);
    // Kept with the answer, and told again with it.
    let changed = drafts.list.iter().filter(|draft| draft.text.is_some());
    outcome.durability = changed.map(|draft| services.state.durability(&draft.context)).max().unwrap_or_default();
    let book = CommitPlan::new(engine, envelope, record.as_deref());
    let mut recorded = true;
    let outcome = match book.commit_all(&outcome, &mut drafts).await {
        Ok(has_record) => {
            recorded = has_record;
            outcome
        }
        Err(CommitError::Failed(error)) if error.kind == ErrorKind::Interrupted => {
            book.recorded_outcome(outcome, error, ticket).await
        }
        Err(CommitError::Failed(error)) => book.close_without_state(outcome, error, &mut drafts, ticket).await,
        Err(CommitError::Rerun) => {
            // Others may write meanwhile; who comes first is whose turn it is.
            drafts.release_locks();
            let slot = admission::reacquire_slot(services, envelope, context.deadline()).await;
            // A tool that never waits would never find out that its time is up.
            let in_time = !envelope.call.is_cancelled() && services.clock.instant() < context.deadline();
            match slot {
                Ok(slot) if in_time => return Box::new(CloseResult::Rerun(Rerun { context, slot, record })),
                _ => {
                    let error = CallError::new(ErrorKind::StateConflict)
                        .operator("others wrote the state until there was no time left to run once more");
                    book.close_without_state(outcome, error, &mut drafts, ticket).await
                }
            }
        }
    };
    for draft in &drafts.list {
        services.state.clean_up_after_call(&envelope.call.tenant, &draft.context, &envelope.tool.state).await;
    }
    count_end(engine, envelope, &outcome);
    if let (false, Some(plain)) = (recorded, &engine.batched_records) {
        plain.note(context, &outcome);
    }
    Box::new(CloseResult::Closed(outcome))
}

/// The states the tool has changed, and why they cannot be committed. Writing them down is the author's code, and may panic.
fn collect_drafts(context: &CallContext) -> (Drafts, Option<ToolError>) {
    if context.checkouts().is_untouched() {
        return (Drafts::default(), None);
    }
    let mut unsaved = None;
    let mut drafts = context.checkouts().take_drafts(|parked| {
        let written = catch_unwind(AssertUnwindSafe(|| parked.encode_changes()))
            .unwrap_or_else(|panic| Err(ToolError::operator_only(ErrorKind::Crashed, panic_text(panic))));
        written.unwrap_or_else(|error| {
            unsaved.get_or_insert(error);
            None
        })
    });
    let state = &context.services().state;
    let too_large = || drafts.list.iter().find_map(|draft| state.check_size(draft).err());
    let unsaved =
        unsaved.or_else(|| too_large().map(|error| ToolError::operator_only(error.kind(), error.to_string())));
    if unsaved.is_some() {
        // All of them or none. The history is told of the call all the same.
        drafts.list.iter_mut().for_each(|draft| draft.text = None);
    }
    (drafts, unsaved)
}

/// The failure of a tool as its caller sees it.
pub(super) fn to_call_error(envelope: &CallEnvelope, failed: ToolError) -> CallError {
    let error = if failed.problems.is_empty() {
        CallError::from(failed)
    } else {
        validate::invalid_arguments(&envelope.tool.definition.name, failed.problems)
    };
    error.truncate_model_text(envelope.tool.limits.text)
}
