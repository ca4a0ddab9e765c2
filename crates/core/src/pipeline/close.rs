//! Door 14: state, record and outcome become true together.
//!
//! In: what the tool did. Out: the outcome, committed where it must be. The tool's result is kept even when its state
//! could not be: the world has changed, and the caller must know.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_core::future::BoxFuture;
use serde_json::Value;

use super::{Done, Way, attempts::panic_text, dependencies, ticket::Ticket, validate};
use crate::{
    backend::{Batch, Partition, StoreError, Table, Write},
    call::{Content, Effect, Outcome},
    clock::Timestamp,
    context::CallContext,
    engine::Engine,
    error::{CallError, ErrorKind, ToolError},
    executor::Reply,
    journal::CallRecord,
    registry::Base,
    statuses::{Successes, Whose},
};

/// The end of a call: there already, or as soon as it is committed. Not an async function: a plain call has nothing to
/// wait for, and would carry the size of the waiting all the same.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum Closing<'a> {
    Closed(Outcome),
    Committing(BoxFuture<'a, Outcome>),
}

pub(super) fn close<'a>(engine: &'a Engine, done: Done, ticket: &'a Ticket<'_>) -> Closing<'a> {
    let Done { context, record, result, effect, withheld, .. } = done;
    let way = context.way();
    let (reply, error, writes) = match (result, writes(&context), withheld) {
        // What the tool did stays done, and what it remembers of it too; only nobody sees what it said.
        (Ok(_), Ok(writes), Some(why)) => (Reply::default(), Some(*why), writes),
        (Ok(_), Err(unsaved), Some(why)) => {
            let both = format!("{}; {}", why.operator, unsaved.operator);
            (Reply::default(), Some(why.operator(both)), Vec::new())
        }
        // A failure may tell as much as a result. That the caller cancelled tells nothing.
        (Err(failed), _, Some(mut why)) if failed.kind != ErrorKind::Cancelled => {
            why.counts = explained(way, failed).counts;
            (Reply::default(), Some(*why), Vec::new())
        }
        (Ok(reply), Ok(writes), None) => (reply, None, writes),
        (Ok(reply), Err(unsaved), None) => (reply, Some(explained(way, unsaved)), Vec::new()),
        (Err(failed), ..) => (Reply::default(), Some(explained(way, failed)), Vec::new()),
    };
    let outcome = ticket.ended(effect, reply.output, reply.content, error);
    way.tool.desk.meter.ended(outcome.duration, outcome.error.as_ref().map(|error| error.kind));
    if outcome.is_success() {
        remember(&engine.statuses.successes, way, outcome.ended_at);
    }
    let proves = outcome.is_success() && way.base != Base::No;
    if record.is_none() && writes.is_empty() && !proves {
        return Closing::Closed(outcome);
    }
    Closing::Committing(Box::pin(settle(engine, context, record, (outcome, writes), ticket)))
}

/// Remembers that the tool did well, for those who ask about its status.
fn remember(successes: &Successes, way: &Way, at: Timestamp) {
    way.tool.desk.succeeded.note(at);
    if let Some(thread) = &way.call.thread {
        successes.note(Whose::thread(&way.tool.definition.name, &way.call.tenant, thread), at);
    }
}

/// Commits the end of a call that has something to commit.
async fn settle(
    engine: &Engine,
    context: CallContext,
    record: Option<Box<CallRecord>>,
    (outcome, writes): (Outcome, Vec<Write>),
    ticket: &Ticket<'_>,
) -> Outcome {
    let book = Book::of(engine, context.way(), record);
    match book.settle(&outcome, &writes).await {
        Ok(()) => outcome,
        Err(error) => book.without_state(outcome, error, ticket).await,
    }
}

/// The writes of the states the tool has changed. Writing them down is the author's code, and may panic.
fn writes(context: &CallContext) -> Result<Vec<Write>, ToolError> {
    catch_unwind(AssertUnwindSafe(|| context.desk().writes()))
        .unwrap_or_else(|panic| Err(ToolError::hidden(ErrorKind::Crashed, panic_text(panic))))
}

/// The failure of a tool as its caller sees it.
pub(super) fn explained(way: &Way, failed: ToolError) -> CallError {
    let error = if failed.problems.is_empty() {
        CallError::from(failed)
    } else {
        validate::invalid(&way.tool.definition.name, failed.problems)
    };
    error.shortened(way.tool.limits.text)
}

/// The call's record and where it goes.
struct Book<'a> {
    engine: &'a Engine,
    way: &'a Way,
    record: CallRecord,
    opened: bool,
}

impl<'a> Book<'a> {
    fn of(engine: &'a Engine, way: &'a Way, record: Option<Box<CallRecord>>) -> Self {
        let opened = record.is_some();
        let record = match record {
            Some(record) => *record,
            None => CallRecord::opened(&way.call, &way.tool.definition.name, engine.services.clock.now()),
        };
        Self { engine, way, record, opened }
    }

    /// Commits the end with the evidence of it. Another call of the thread may leave evidence at the same moment; both
    /// count, so whoever comes second looks again.
    async fn settle(&self, outcome: &Outcome, writes: &[Write]) -> Result<(), StoreError> {
        loop {
            let mut all = writes.to_vec();
            let proof = if outcome.is_success() {
                dependencies::prove(self.engine, self.way).await?
            } else {
                Default::default()
            };
            all.extend(proof.write.clone());
            if all.is_empty() && !self.opened {
                return Ok(());
            }
            match self.commit(outcome, all).await {
                Err(StoreError::Conflict { table: Table::Evidence, .. }) => {}
                Ok(()) => {
                    dependencies::tell(self.engine, self.way, &proof);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn commit(&self, outcome: &Outcome, writes: Vec<Write>) -> Result<(), StoreError> {
        let (journal, now) = (&self.engine.journal, self.engine.services.clock.now());
        let record = self.record.clone().closed(outcome.clone());
        let close = if self.opened { journal.close(&record, now)? } else { journal.open(&record, now)? };
        let call = &self.way.call;
        let mut batch = Batch::on(Partition::of_call(call.tenant.clone(), call.thread.as_ref(), call.id)).with(close);
        batch.writes.extend(writes);
        journal.store.commit(batch, now).await.map(|_| ())
    }

    /// The state could not be committed. The call still ends, with its result and the reason.
    async fn without_state(&self, outcome: Outcome, error: StoreError, ticket: &Ticket<'_>) -> Outcome {
        // The store answers, so the end can still be written down; only not with everything it was to be written with.
        let answers =
            !matches!(&error, StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::Fenced { .. });
        let failed = failed(outcome, error.into(), ticket);
        if answers && let Err(error) = self.commit(&failed, Vec::new()).await {
            return self::failed(failed, error.into(), ticket);
        }
        failed
    }
}

fn failed(outcome: Outcome, error: CallError, ticket: &Ticket<'_>) -> Outcome {
    // An error the tool itself raised says more than ours. Whatever it is, a tool that has done its work must not be
    // asked to do it again.
    let mut error = outcome.error.unwrap_or(error);
    error.retryable &= outcome.effect == Effect::None;
    let (effect, output, content): (Effect, Value, Vec<Content>) = (outcome.effect, outcome.output, outcome.content);
    ticket.ended(effect, output, content, Some(error))
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Conflict { table: Table::State, .. } => ErrorKind::StateConflict,
            StoreError::Damaged { table: Table::State, .. } => ErrorKind::StateUnreadable,
            StoreError::Conflict { .. } | StoreError::Damaged { .. } => ErrorKind::Internal,
            StoreError::Refused(_) => ErrorKind::Internal,
            StoreError::Fenced { .. } | StoreError::Unavailable(_) | StoreError::Unknown(_) => {
                ErrorKind::StoreUnavailable
            }
        };
        Self::new(kind).operator(error.to_string())
    }
}
