//! What is committed with the end of a call, and what becomes of it when that is not possible.
//!
//! In: a call, how it ended and what its tool left of its states. Out: the batch of all that, committed; or why it is not,
//! and the outcome the caller is given then.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use serde_json::Value;

use crate::{
    engine::Engine,
    execution::{CallEnvelope, Tool},
    journal::{CallRecord, OpenCall},
    pipeline::{attempts::panic_text, dependencies, ticket::Ticket},
    state::{ConflictOutcome, Draft, Drafts, ExecutionHistory, HistoryEvent},
};
use toolhub_storage::backend::{Backend, Batch, Partition, RowVersion, StoreError, Table, Write};
use toolhub_types::{
    content::Content,
    effect::Effect,
    error::{CallError, ErrorKind},
    outcome::Outcome,
};

/// The call's record and where it goes.
pub(super) struct CommitPlan<'a> {
    engine: &'a Engine,
    envelope: &'a CallEnvelope,
    record: CallRecord,
    /// The writing that opened it, if it was opened.
    opening_version: Option<RowVersion>,
}

/// Why nothing was committed.
pub(super) enum CommitError {
    Failed(CallError),
    /// The tool may run once more with the states as they are now.
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
        Self { engine, envelope, record, opening_version: opened }
    }

    /// Commits the end with the states and the evidence of it. Another call of the thread may leave evidence at the same
    /// moment; both count, so whoever comes second looks again. Somebody else may have written a state; whether it can be
    /// written all the same is decided by `state`. Says whether the call has its record: a read that proved nothing new has none yet.
    pub(super) async fn commit_all(&self, outcome: &Outcome, drafts: &mut Drafts) -> Result<bool, CommitError> {
        let told = self.history_entry(outcome);
        let elsewhere = self.commit_separate_states(drafts, told.as_ref()).await?;
        loop {
            let mut all = self.writes(drafts, told.as_ref()).await?;
            let proof = if outcome.is_success() {
                dependencies::evidence_update(self.engine, self.envelope).await?
            } else {
                Default::default()
            };
            all.extend(proof.write.clone());
            if all.is_empty() && self.opening_version.is_none() {
                return Ok(false);
            }
            match self.commit(outcome, all).await {
                Err(StoreError::Conflict { table: Table::Evidence, .. }) => {}
                Err(StoreError::Conflict { table: Table::State, .. }) => match self.rebase_drafts(drafts).await {
                    Err(CommitError::Rerun) if elsewhere > 0 => return Err(partial_commit_error().into()),
                    renewed => renewed?,
                },
                Ok(()) => {
                    dependencies::emit_newly_available(self.engine, self.envelope, &proof);
                    return Ok(true);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// States that do not lie with the call's records, because all threads share them or another store keeps them, are
    /// committed first, one by one; says how many were. If the process dies before the end of the call is written down
    /// too, what its tool remembers is true, and the call stays open.
    async fn commit_separate_states(
        &self,
        drafts: &mut Drafts,
        told: Option<&ExecutionHistory>,
    ) -> Result<usize, CommitError> {
        let (state, tenant) = (&self.engine.services.state, &self.envelope.call.tenant);
        let elsewhere = drafts.list.iter_mut().filter(|draft| !self.commits_with_call(draft));
        let mut already = 0;
        for draft in elsewhere {
            loop {
                let now = self.engine.services.clock.now();
                let mut batch = Batch::new(draft.context.partition(tenant));
                batch.writes = state.draft_writes(tenant, draft, &self.envelope.tool.state, told, now).await?;
                match state.store_router().commit(batch, now).await {
                    Ok(_) => break,
                    Err(StoreError::Conflict { .. }) => match self.rebase_draft(draft).await {
                        // What another state of the tool remembers of this run is written.
                        Err(CommitError::Rerun) if already > 0 => return Err(partial_commit_error().into()),
                        renewed => renewed?,
                    },
                    Err(error) => return Err(error.into()),
                }
            }
            already += usize::from(draft.text.is_some());
        }
        Ok(already)
    }

    /// What is written with the end of the call.
    async fn writes(&self, drafts: &Drafts, told: Option<&ExecutionHistory>) -> Result<Vec<Write>, CommitError> {
        let (services, tenant) = (&self.engine.services, &self.envelope.call.tenant);
        let (state, now) = (&services.state, services.clock.now());
        let drafts: Vec<&Draft> = drafts.list.iter().filter(|draft| self.commits_with_call(draft)).collect();
        let mut all = Vec::new();
        for draft in &drafts {
            all.extend(state.draft_writes(tenant, draft, &self.envelope.tool.state, told, now).await?);
        }
        all.extend(state.session_writes_for_drafts(tenant, &drafts, told.is_some(), now).await?);
        Ok(all)
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
        let homes = self.engine.services.state.store_router();
        draft.context.partition(&self.envelope.call.tenant) == self.partition()
            && homes.is_in_hub_store(draft.context.state().as_str())
    }

    async fn rebase_draft(&self, draft: &mut Draft) -> Result<(), CommitError> {
        let state = &self.engine.services.state;
        // A store in memory answers without a pause; let the others finish.
        tokio::task::yield_now().await;
        // Closures and merging are the author's code, and may panic.
        let renewing =
            AssertUnwindSafe(state.resolve_conflict(&self.envelope.call.tenant, draft, &self.envelope.tool.state));
        let renewed = renewing.catch_unwind().await.unwrap_or_else(|panic| {
            let text = format!(
                "somebody else wrote the state, and putting the changes together failed: {}",
                panic_text(panic)
            );
            Ok(ConflictOutcome::Refused(CallError::new(ErrorKind::StateConflict).operator(text)))
        });
        match renewed? {
            ConflictOutcome::Ready => Ok(()),
            ConflictOutcome::Rerun => Err(CommitError::Rerun),
            ConflictOutcome::Refused(error) => Err(CommitError::Failed(error)),
        }
    }

    /// What the history of its states is told about the call. Whoever only reads leaves no trace there.
    fn history_entry(&self, outcome: &Outcome) -> Option<ExecutionHistory> {
        let Tool { definition, .. } = &*self.envelope.tool;
        if definition.annotations.read_only {
            return None;
        }
        let end = match &outcome.error {
            None => HistoryEvent::success(&outcome.output),
            Some(error) => HistoryEvent::error(error),
        };
        let mut parameters = self.envelope.call.arguments.clone();
        self.engine.services.redactor.redact(&mut parameters);
        let parameters = HistoryEvent::redact_parameters(&parameters);
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
        batch.writes = journal.close(&record, self.opening_version, now)?;
        batch.writes.extend(writes);
        journal.store.commit(batch, now).await.map(|_| ())
    }

    /// Somebody has closed the call already, because this node was not heard of for too long. What stands in the journal
    /// is how it ended.
    pub(super) async fn recorded_outcome(&self, outcome: Outcome, error: CallError, ticket: &Ticket<'_>) -> Outcome {
        let (journal, call, now) = (&self.engine.journal, &self.envelope.call, self.engine.services.clock.now());
        let record = journal.find_record(&call.tenant, call.thread.as_ref(), call.id, now).await;
        let recorded = record.ok().flatten().and_then(|record| record.outcome);
        recorded.unwrap_or_else(|| failed_outcome(outcome, error, ticket))
    }

    /// The state could not be committed. The call still ends, with its result and the reason.
    pub(super) async fn close_without_state(
        &self,
        outcome: Outcome,
        error: CallError,
        drafts: &mut Drafts,
        ticket: &Ticket<'_>,
    ) -> Outcome {
        // The store answers, so the end can still be written down; only not with everything it was to be written with.
        let answers = error.kind != ErrorKind::StoreUnavailable;
        let failed = failed_outcome(outcome, error, ticket);
        if !answers {
            return self.mark_unwritten(failed);
        }
        drafts.list.iter_mut().for_each(|draft| draft.text = None);
        let told = self.history_entry(&failed);
        let history = self.writes(drafts, told.as_ref()).await.unwrap_or_default();
        let noted = history.into_iter().filter(|write| write.table == Table::History).collect();
        match self.commit(&failed, noted).await {
            Ok(()) => failed,
            Err(error) => self.mark_unwritten(self::failed_outcome(failed, error.into(), ticket)),
        }
    }

    /// The call stays open for now.
    fn mark_unwritten(&self, outcome: Outcome) -> Outcome {
        if self.opening_version.is_some() {
            self.engine.journal.note_unwritten(&outcome);
        }
        outcome
    }
}

fn partial_commit_error() -> CallError {
    let text =
        "somebody else wrote one of the states; another one is committed already, so the tool cannot run once more";
    CallError::new(ErrorKind::StateConflict).operator(text)
}

fn failed_outcome(outcome: Outcome, error: CallError, ticket: &Ticket<'_>) -> Outcome {
    // An error there was before says more than ours; that something is lost is told all the same. Whatever it is, a tool
    // that has done its work must not be asked to do it again.
    let mut error = match outcome.error {
        None => error,
        Some(first) => {
            let both = format!("{}; {}", first.operator, error.operator);
            first.operator(both)
        }
    };
    error.retryable &= outcome.effect == Effect::None;
    let (effect, output, content): (Effect, Value, Vec<Content>) = (outcome.effect, outcome.output, outcome.content);
    ticket.outcome(effect, output, content, Some(error))
}
