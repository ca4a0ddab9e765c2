//! Builds and commits the batch that ends a call: record, state drafts, history and evidence.
//!
//! In: a call, its outcome and the drafts of its states. Out: the committed batch; or why nothing was committed, and
//! the outcome for the caller in that case. `state` resolves write conflicts of single drafts.

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
};

use futures_util::FutureExt;
use serde_json::Value;

use crate::{
    engine::Engine,
    execution::{CallEnvelope, Tool},
    journal::{CallRecord, OpenCall},
    pipeline::{attempts::panic_text, dependencies, interruption, ticket::Ticket},
};
use toolhub_state::{ConflictOutcome, Draft, Drafts, ExecutionHistory, HistoryEvent};
use toolhub_storage::backend::{Backend, Batch, Partition, RowVersion, StoreError, Table, Write};
use toolhub_types::{
    content::Content,
    effect::Effect,
    error::{CallError, ErrorKind},
    json::CompactJson,
    outcome::{Outcome, WriteDurability},
};

/// The call's record and what is needed to commit its end.
pub(super) struct CommitPlan<'a> {
    engine: &'a Engine,
    envelope: &'a CallEnvelope,
    record: CallRecord<CompactJson>,
    /// The row version of the opening record, if the call was opened.
    opening_version: Option<RowVersion>,
    /// Whether something was committed that too few replicas had in time.
    lacks_replicas: AtomicBool,
}

/// Why nothing was committed.
pub(super) enum CommitError {
    Failed(CallError),
    /// The tool may run again on the current states.
    Rerun,
}

impl<E: Into<CallError>> From<E> for CommitError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl<'a> CommitPlan<'a> {
    pub(super) fn new(engine: &'a Engine, envelope: &'a CallEnvelope, open: Option<&OpenCall>) -> Self {
        let opened = open.map(|open| open.row_version);
        let record = match open {
            Some(open) => open.record.clone(),
            None => {
                let (tool, arguments) = (envelope.tool.definition.name.clone(), envelope.call.arguments.clone());
                CallRecord::opened(&envelope.call, tool, arguments, engine.services.clock.now())
            }
        };
        Self { engine, envelope, record, opening_version: opened, lacks_replicas: AtomicBool::new(false) }
    }

    /// How durable the end of the call is, if its states are as durable as this.
    pub(super) fn reached(&self, states: WriteDurability) -> WriteDurability {
        if self.lacks_replicas.load(Ordering::Relaxed) { states.max(WriteDurability::Unreplicated) } else { states }
    }

    fn note_replicas(&self, lacks_replicas: bool) {
        self.lacks_replicas.fetch_or(lacks_replicas, Ordering::Relaxed);
    }

    /// Commits the end of the call with its states and its evidence. Another call of the thread may leave evidence
    /// concurrently; both count, so a conflict there reloads the evidence and commits again. On a conflict of a state,
    /// `state` decides whether the draft can be rebased. Returns whether the call has its record: a read that left no
    /// new evidence has none yet.
    pub(super) async fn commit_all(&self, outcome: &Outcome, drafts: &mut Drafts) -> Result<bool, CommitError> {
        let history = self.history_entry(outcome);
        let separate = self.commit_separate_states(drafts, history.as_ref()).await?;
        loop {
            let mut writes = self.writes(drafts, history.as_ref()).await?;
            let evidence = if outcome.is_success() {
                dependencies::evidence_update(self.engine, self.envelope).await?
            } else {
                Default::default()
            };
            writes.extend(evidence.write.clone());
            if writes.is_empty() && self.opening_version.is_none() {
                return Ok(false);
            }
            match self.commit(outcome, writes).await {
                Err(StoreError::Conflict { table: Table::Evidence, .. }) => {}
                Err(StoreError::Conflict { table: Table::State, .. }) => match self.rebase_drafts(drafts).await {
                    Err(CommitError::Rerun) if separate > 0 => return Err(partial_commit_error().into()),
                    rebased => rebased?,
                },
                Ok(()) => {
                    dependencies::announce(self.engine, self.envelope, &evidence);
                    return Ok(true);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Commits the states that lie outside the call's partition, because all threads share them or another store holds
    /// them, first and one by one. Returns how many were committed. If the process dies before the end of the call is
    /// committed too, these states are still correct and the call stays open.
    async fn commit_separate_states(
        &self,
        drafts: &mut Drafts,
        history: Option<&ExecutionHistory>,
    ) -> Result<usize, CommitError> {
        let (state, tenant) = (&self.engine.services.state, &self.envelope.call.tenant);
        let separate = drafts.list.iter_mut().filter(|draft| !self.commits_with_call(draft));
        let mut committed = 0;
        for draft in separate {
            loop {
                let now = self.engine.services.clock.now();
                let mut batch = Batch::new(draft.context.partition(tenant));
                batch.writes = state.draft_writes(tenant, draft, &self.envelope.tool.state, history, now).await?;
                let stamp = batch.stamp;
                match state.store_router().commit(batch, now).await {
                    Ok(_) => {
                        self.note_replicas(state.lacks_replicas(&draft.context, stamp));
                        break;
                    }
                    Err(StoreError::Conflict { .. }) => match self.rebase_draft(draft).await {
                        // Another state of the tool already contains this execution, so a rerun would apply it twice.
                        Err(CommitError::Rerun) if committed > 0 => return Err(partial_commit_error().into()),
                        rebased => rebased?,
                    },
                    Err(error) => return Err(error.into()),
                }
            }
            committed += usize::from(draft.text.is_some());
        }
        Ok(committed)
    }

    /// The state and session writes that are committed with the end of the call.
    async fn writes(&self, drafts: &Drafts, history: Option<&ExecutionHistory>) -> Result<Vec<Write>, CommitError> {
        let (services, tenant) = (&self.engine.services, &self.envelope.call.tenant);
        let (state, now) = (&services.state, services.clock.now());
        let drafts: Vec<&Draft> = drafts.list.iter().filter(|draft| self.commits_with_call(draft)).collect();
        let mut writes = Vec::new();
        for draft in &drafts {
            writes.extend(state.draft_writes(tenant, draft, &self.envelope.tool.state, history, now).await?);
        }
        writes.extend(state.session_writes_for_drafts(tenant, &drafts, history.is_some(), now).await?);
        Ok(writes)
    }

    async fn rebase_drafts(&self, drafts: &mut Drafts) -> Result<(), CommitError> {
        for draft in &mut drafts.list {
            if self.commits_with_call(draft) {
                self.rebase_draft(draft).await?;
            }
        }
        Ok(())
    }

    /// Whether a state is committed together with the end of the call.
    fn commits_with_call(&self, draft: &Draft) -> bool {
        let router = self.engine.services.state.store_router();
        draft.context.partition(&self.envelope.call.tenant) == self.partition()
            && router.is_in_hub_store(draft.context.state().as_str())
    }

    async fn rebase_draft(&self, draft: &mut Draft) -> Result<(), CommitError> {
        let state = &self.engine.services.state;
        // An in-memory store never yields; let the conflicting calls finish.
        tokio::task::yield_now().await;
        // Closures and merge functions are the tool author's code, which may panic.
        let resolving =
            AssertUnwindSafe(state.resolve_conflict(&self.envelope.call.tenant, draft, &self.envelope.tool.state));
        let resolved = resolving.catch_unwind().await.unwrap_or_else(|panic| {
            let text =
                format!("the state was written concurrently, and merging the changes failed: {}", panic_text(panic));
            Ok(ConflictOutcome::Refused(CallError::new(ErrorKind::StateConflict).operator(text)))
        });
        match resolved? {
            ConflictOutcome::Ready => Ok(()),
            ConflictOutcome::Rerun => Err(CommitError::Rerun),
            ConflictOutcome::Refused(error) => Err(CommitError::Failed(error)),
        }
    }

    /// The entry for the history of the call's states; none for a read-only tool.
    fn history_entry(&self, outcome: &Outcome) -> Option<ExecutionHistory> {
        let Tool { definition, .. } = &*self.envelope.tool;
        if definition.annotations.read_only {
            return None;
        }
        let end = match &outcome.error {
            None => HistoryEvent::success(&outcome.output),
            Some(error) => HistoryEvent::error(error),
        };
        let parameters = self.engine.services.state.redact_parameters(&self.envelope.call.arguments.to_value());
        Some(ExecutionHistory { started_at: outcome.started_at + outcome.queued, parameters, end_event: end })
    }

    fn partition(&self) -> Partition {
        let call = &self.envelope.call;
        Partition::for_call(call.tenant.clone(), call.thread.as_ref(), call.id)
    }

    async fn commit(&self, outcome: &Outcome, writes: Vec<Write>) -> Result<(), StoreError> {
        let (journal, now) = (&self.engine.journal, self.engine.services.clock.now());
        let record = self.record.clone().closed(outcome.clone(), &self.engine.services.redactor);
        let mut batch = Batch::new(self.partition());
        journal.close(&mut batch, &record, self.opening_version, now)?;
        batch.writes.extend(writes);
        let stamp = batch.stamp;
        journal.store.commit(batch, now).await?;
        self.note_replicas(journal.store.lacks_replicas(stamp));
        Ok(())
    }

    /// Another node has closed the call already, or has taken it over, because this node's lease had expired. The outcome in the journal is
    /// the valid one.
    pub(super) async fn recorded_outcome(&self, outcome: Outcome, error: CallError, ticket: &Ticket<'_>) -> Outcome {
        let recorded = match &self.envelope.tracker {
            Some(tracker) => interruption::outcome_elsewhere(self.engine, tracker).await,
            None => None,
        };
        recorded.unwrap_or_else(|| failed_outcome(outcome, error, ticket))
    }

    /// Closes the call after its state could not be committed: with its result, and with that error.
    pub(super) async fn close_without_state(
        &self,
        outcome: Outcome,
        error: CallError,
        drafts: &mut Drafts,
        ticket: &Ticket<'_>,
    ) -> Outcome {
        let store_available = error.kind != ErrorKind::StoreUnavailable;
        let failed = failed_outcome(outcome, error, ticket);
        if !store_available {
            return self.mark_unwritten(failed);
        }
        // The store answers, so the record and the history can still be written, only without the states.
        drafts.list.iter_mut().for_each(|draft| draft.text = None);
        let entry = self.history_entry(&failed);
        let writes = self.writes(drafts, entry.as_ref()).await.unwrap_or_default();
        let history = writes.into_iter().filter(|write| write.table == Table::History).collect();
        match self.commit(&failed, history).await.map_err(CallError::from) {
            Ok(()) => failed,
            Err(error) if error.kind == ErrorKind::Interrupted => self.recorded_outcome(failed, error, ticket).await,
            Err(error) => {
                // The record may get another outcome: that the store did not answer says more than why the state was not committed.
                let earlier = failed.error.as_ref().map(|first| first.operator.as_str()).unwrap_or_default();
                let operator = format!("{earlier}; {}", error.operator);
                let unwritten = Outcome { error: None, ..failed };
                self.mark_unwritten(failed_outcome(unwritten, error.operator(operator), ticket))
            }
        }
    }

    /// Hands the outcome to the journal, which closes the open record once the store answers.
    fn mark_unwritten(&self, outcome: Outcome) -> Outcome {
        if self.opening_version.is_some() {
            self.engine.journal.note_unwritten(&outcome);
        }
        outcome
    }
}

fn partial_commit_error() -> CallError {
    let text =
        "one of the states was written concurrently; another one is committed already, so the tool cannot run again";
    CallError::new(ErrorKind::StateConflict).operator(text)
}

fn failed_outcome(outcome: Outcome, error: CallError, ticket: &Ticket<'_>) -> Outcome {
    // An earlier error says more than the failed commit, so it stays first; the operator text names both. A tool whose
    // effect has happened must not be retried, whatever the error.
    let mut error = match outcome.error {
        None => error,
        Some(first) => {
            let combined = format!("{}; {}", first.operator, error.operator);
            first.operator(combined)
        }
    };
    error.retryable &= outcome.effect == Effect::None;
    let (effect, output, content): (Effect, Value, Vec<Content>) = (outcome.effect, outcome.output, outcome.content);
    ticket.outcome(effect, output, content, Some(error))
}
