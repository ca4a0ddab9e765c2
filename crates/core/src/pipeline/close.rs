//! Stage 14: commits state, record and outcome in one transaction.
//!
//! In: what the tool did. Out: the outcome, committed where needed. The caller gets the tool's result even if its state
//! could not be committed, because the effect has happened.

mod commit_plan;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures_core::future::BoxFuture;

use super::{
    Done, admission,
    attempts::{Rerun, panic_text},
    ticket::Ticket,
    validate,
};
use crate::{
    batched_records::EndedCall,
    engine::Engine,
    execution::{CallContext, CallEnvelope, EvidenceDemand, Reply},
    journal::OpenCall,
    statuses::StatusKey,
};
use commit_plan::{CommitError, CommitPlan};
use toolhub_state::Drafts;
use toolhub_types::{
    error::{CallError, ErrorKind, ToolError},
    outcome::Outcome,
};

/// The end of a call: either closed already, or after a commit. Not an async function: a plain call has nothing to
/// commit, but its future would still have the size of the commit.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum Closing<'a> {
    Closed(Outcome),
    Committing(BoxFuture<'a, Box<CloseResult>>),
}

/// The result of a commit.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum CloseResult {
    Closed(Outcome),
    /// Nothing was committed: the states were changed concurrently, and the tool may run again.
    Rerun(Rerun),
}

pub(super) fn close<'a>(engine: &'a Engine, done: Done, ticket: &'a Ticket<'_>) -> Closing<'a> {
    let Done { context, record, result, effect, hook_error, .. } = done;
    let envelope = context.envelope();
    let (reply, error, drafts) = match (result, hook_error) {
        // An after-hook hides the output only: the tool's effect has happened, so its state is still committed.
        (Ok(_), Some(hook_error)) => match collect_drafts(&context) {
            (drafts, None) => (Reply::default(), Some(*hook_error), drafts),
            (drafts, Some(unsaved)) => {
                let combined = format!("{}; {}", hook_error.operator, unsaved.operator);
                (Reply::default(), Some(hook_error.operator(combined)), drafts)
            }
        },
        (Ok(reply), None) => {
            let (drafts, unsaved) = collect_drafts(&context);
            (reply, unsaved.map(|unsaved| to_call_error(envelope, unsaved)), drafts)
        }
        // A failure text can leak as much as a result, so the hook's error replaces it. A cancellation has nothing to
        // leak.
        (Err(failed), Some(mut hook_error)) if failed.kind != ErrorKind::Cancelled => {
            hook_error.counts = to_call_error(envelope, failed).counts;
            (Reply::default(), Some(*hook_error), context.checkouts().take_unchanged_drafts())
        }
        (Err(failed), _) => {
            (Reply::default(), Some(to_call_error(envelope, failed)), context.checkouts().take_unchanged_drafts())
        }
    };
    let outcome = ticket.outcome(effect, reply.output, reply.content, error);
    let leaves_evidence = outcome.is_success() && envelope.evidence_demand != EvidenceDemand::None;
    if record.is_none() && drafts.list.iter().all(|draft| draft.text.is_none()) && !leaves_evidence {
        count_end(engine, envelope, &outcome);
        if let Some(records) = engine.records_of(&outcome)
            && let Err(ended) = records.try_add(EndedCall::new(context, &outcome))
        {
            return Closing::Committing(Box::pin(async move {
                records.add(ended).await;
                Box::new(CloseResult::Closed(outcome))
            }));
        }
        return Closing::Closed(outcome);
    }
    Closing::Committing(Box::pin(commit_end(engine, context, record, (outcome, drafts), ticket)))
}

/// Counts a call that has ended, and notes a success for the tool's status.
fn count_end(engine: &Engine, envelope: &CallEnvelope, outcome: &Outcome) {
    let runtime = &envelope.tool.runtime;
    runtime.meter.record_end(outcome.duration, outcome.error.as_ref().map(|error| error.kind));
    if outcome.is_success() {
        runtime.last_success.note(outcome.ended_at);
        if let Some(thread) = &envelope.call.thread {
            let key = StatusKey::thread(&envelope.tool.definition.name, &envelope.call.tenant, thread);
            engine.statuses.successes.note(key, outcome.ended_at);
        }
    }
}

/// Commits the end of a call that has something to commit.
async fn commit_end(
    engine: &Engine,
    context: CallContext,
    record: Option<Arc<OpenCall>>,
    (mut outcome, mut drafts): (Outcome, Drafts),
    ticket: &Ticket<'_>,
) -> Box<CloseResult> {
    let (envelope, services) = (context.envelope(), &engine.services);
    // Set before the commit: it is stored with the outcome, and a replay returns it.
    let changed = drafts.list.iter().filter(|draft| draft.text.is_some());
    outcome.durability = changed.map(|draft| services.state.durability(&draft.context)).max().unwrap_or_default();
    let commit_plan = CommitPlan::new(engine, envelope, record.as_deref());
    let mut recorded = true;
    let mut outcome = match commit_plan.commit_all(&outcome, &mut drafts).await {
        Ok(has_record) => {
            recorded = has_record;
            outcome
        }
        Err(CommitError::Failed(error)) if error.kind == ErrorKind::Interrupted => {
            commit_plan.recorded_outcome(outcome, error, ticket).await
        }
        Err(CommitError::Failed(error)) => commit_plan.close_without_state(outcome, error, &mut drafts, ticket).await,
        Err(CommitError::Rerun) => {
            // Other writers may go first while this call waits for a slot.
            drafts.release_locks();
            let slot = admission::reacquire_slot(services, envelope, context.deadline()).await;
            // Checked here, because a tool that never yields would never notice its deadline.
            let in_time = !envelope.call.is_cancelled() && services.clock.instant() < context.deadline();
            match slot {
                Ok(slot) if in_time => return Box::new(CloseResult::Rerun(Rerun { context, slot, record })),
                _ => {
                    let error = CallError::new(ErrorKind::StateConflict)
                        .operator("concurrent writes to the state kept conflicting until the call's deadline");
                    commit_plan.close_without_state(outcome, error, &mut drafts, ticket).await
                }
            }
        }
    };
    outcome.durability = commit_plan.reached(outcome.durability);
    for draft in &drafts.list {
        services.state.clean_up_after_call(&envelope.call.tenant, &draft.context, &envelope.tool.state).await;
    }
    count_end(engine, envelope, &outcome);
    if let (false, Some(records)) = (recorded, engine.records_of(&outcome)) {
        records.add(Box::new(EndedCall::new(context, &outcome))).await;
    }
    Box::new(CloseResult::Closed(outcome))
}

/// The states the tool has changed, and why they cannot be committed. Serializing them runs the tool author's code,
/// which may panic.
fn collect_drafts(context: &CallContext) -> (Drafts, Option<ToolError>) {
    if context.checkouts().is_untouched() {
        return (Drafts::default(), None);
    }
    let mut unsaved = None;
    let mut drafts = context.checkouts().take_drafts(|pending| {
        let encoded = catch_unwind(AssertUnwindSafe(|| pending.encode_changes()))
            .unwrap_or_else(|panic| Err(ToolError::operator_only(ErrorKind::Crashed, panic_text(panic))));
        encoded.unwrap_or_else(|error| {
            unsaved.get_or_insert(error);
            None
        })
    });
    let state = &context.services().state;
    let too_large = || drafts.list.iter().find_map(|draft| state.check_size(draft).err());
    let unsaved =
        unsaved.or_else(|| too_large().map(|error| ToolError::operator_only(error.kind(), error.to_string())));
    if unsaved.is_some() {
        // All states or none. The drafts stay in the list, because the call still goes into their history.
        drafts.list.iter_mut().for_each(|draft| draft.text = None);
    }
    (drafts, unsaved)
}

/// A tool's failure as the error that the caller sees.
pub(super) fn to_call_error(envelope: &CallEnvelope, failed: ToolError) -> CallError {
    let error = if failed.problems.is_empty() {
        CallError::from(failed)
    } else {
        validate::refused_by_tool(envelope, failed.problems)
    };
    error.truncate_texts(envelope.tool.limits.text)
}
