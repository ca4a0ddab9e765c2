//! What a call does to the states it took out.
//!
//! In: drafts of what a tool left, and how its call ended. Out: the writes that join the call's closing batch; and after a
//! conflict, drafts made of what is there now, as far as the tool's rules allow.

use serde_json::Value;

use super::{LAYOUT, StateManager, write::NewState};
use crate::state::{
    ContextId, Draft, HistoryEvent, LoadedContext, SessionState, StateCleanup, StateError, StateKind, StateRules,
    entry::state_id,
};
use toolhub_storage::backend::{Change, Durability, Expect, Row, RowVersion, StoreError, Table, Write, decode, encode};
use toolhub_types::{
    error::{CallError, ErrorKind},
    ids::Tenant,
    state_config::ConflictResolution,
    timestamp::Timestamp,
};

/// What the history is told about a call.
pub(crate) struct ExecutionHistory {
    pub(crate) started_at: Timestamp,
    /// What the tool was given.
    pub(crate) parameters: Value,
    pub(crate) end_event: HistoryEvent,
}

/// What became of a draft after a conflict.
pub(crate) enum ConflictOutcome {
    /// It can be committed.
    Ready,
    /// Only the tool itself can make it anew.
    Rerun,
    /// It cannot be committed.
    Refused(CallError),
}

impl StateManager {
    /// What a context holds, for a tool.
    pub(crate) async fn check_out(&self, tenant: &Tenant, context: &ContextId) -> Result<LoadedContext, StoreError> {
        let keys = [context.key(tenant, StateKind::Business), context.key(tenant, StateKind::Session)];
        let (sitting, rows) = self.load_in_session(&context.partition(tenant), &keys, self.now()).await?;
        let mut rows = rows.into_iter();
        Ok(LoadedContext { business: rows.next().flatten(), session: rows.next().flatten(), thread_session: sitting })
    }

    /// Lets the session of a context go on, now that a call uses it.
    ///
    /// # Errors
    /// When a call that may write would make one context more than the session may have.
    pub(crate) async fn record_use(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        found: &LoadedContext,
        writes: bool,
    ) -> Result<(), StateError> {
        let (partition, now) = (context.partition(tenant), self.now());
        if writes && found.business.is_none() && found.session.is_none() {
            // Asked before anything is done to the world; what is to be written is asked for again at the end.
            self.session_writes(&partition, found.thread_session, &[context.state().as_str()], now).await?;
        }
        Ok(self.touch_session(&partition, found.thread_session, now).await?)
    }

    /// What else a call writes that commits these drafts of one thread, so that the thread's session goes on.
    pub(crate) async fn session_writes_for_drafts(
        &self,
        tenant: &Tenant,
        drafts: &[&Draft],
        counted: bool,
        now: Timestamp,
    ) -> Result<Vec<Write>, StateError> {
        let written = drafts.iter().filter(|draft| counted || draft.text.is_some());
        let Some(first) = written.clone().next() else { return Ok(Vec::new()) };
        let unseen = written.filter(|draft| draft.loaded.business.is_none() || draft.loaded.session.is_none());
        let unseen: Vec<&str> = unseen.map(|draft| draft.context.state().as_str()).collect();
        self.session_writes(&first.context.partition(tenant), first.loaded.thread_session, &unseen, now).await
    }

    /// Whether a changed state is committed without being saved on purpose.
    pub(crate) fn auto_save(&self) -> bool {
        self.0.business.auto_save
    }

    /// What happens when somebody else wrote while a tool did.
    pub(crate) fn on_conflict(&self, rules: &StateRules) -> ConflictResolution {
        rules.on_conflict.or(self.0.business.conflict_resolution).unwrap_or(ConflictResolution::Reject)
    }

    /// Refuses a draft that is larger than allowed.
    pub(crate) fn check_size(&self, draft: &Draft) -> Result<(), StateError> {
        let most = self.0.business.max_state_size;
        match draft.text.as_ref().map(|text| text.len()) {
            Some(bytes) if bytes > most => Err(StateError::TooLarge { bytes, most }),
            _ => Ok(()),
        }
    }

    /// Everything that becomes true together with the end of a call.
    pub(crate) async fn draft_writes(
        &self,
        tenant: &Tenant,
        draft: &Draft,
        rules: &StateRules,
        told: Option<&ExecutionHistory>,
        now: Timestamp,
    ) -> Result<Vec<Write>, StateError> {
        let Draft { context, loaded: found, text, pending: parked } = draft;
        let seen = found.business.as_ref().map(|row| row.version);
        if rules.cleanup == StateCleanup::AfterCall {
            return Ok(seen.map(|seen| removal(context, seen)).into_iter().collect());
        }
        let kept = found.business.as_ref().and_then(|row| row.expires);
        // Where states have a time to live, each call begins it anew; otherwise it stays as somebody set it.
        let expires = if self.0.config.ttl.is_some() { self.expiry(None, now)? } else { kept };
        let mut writes = Vec::new();
        let keeps_history = self.0.business.max_history_size > 0;
        if let Some(told) = told.filter(|_| keeps_history) {
            let began = HistoryEvent::ExecutionStart { parameters: told.parameters.clone() };
            writes.push(self.0.sequence.note(context, began, told.started_at, expires)?);
        }
        if let Some(text) = text {
            let next = NewState { text: text.clone(), schema: parked.layout(), expires, patch: None };
            let batch = self.build_batch(tenant, context, StateKind::Business, seen, next, now).await?;
            writes.extend(batch.writes);
        }
        if let Some(told) = told {
            if keeps_history {
                writes.push(self.0.sequence.note(context, told.end_event.clone(), now, expires)?);
            }
            writes.push(self.usage_write(context, found.session.as_ref(), expires, now)?);
        }
        Ok(writes)
    }

    /// One more call has used the context.
    fn usage_write(
        &self,
        context: &ContextId,
        found: Option<&Row>,
        expires: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Write, StateError> {
        let id = context.row_id(StateKind::Session);
        let known = found.and_then(|row| decode::<SessionState>(Table::State, &id, LAYOUT, row).ok());
        let mut session = known.map_or(SessionState { created: now, ..SessionState::default() }, |(known, _)| known);
        (session.last_activity, session.calls) = (now, session.calls.saturating_add(1));
        let value = encode(Table::State, &id, &session)?;
        let change = Change::Put { value, schema: LAYOUT, expires };
        let expect = found.map_or(Expect::Absent, |row| Expect::Same(row.version));
        Ok(Write { table: Table::State, id, expect, change, durability: Durability::KillSafe })
    }

    /// Makes a draft anew after somebody else wrote.
    pub(crate) async fn resolve_conflict(
        &self,
        tenant: &Tenant,
        draft: &mut Draft,
        rules: &StateRules,
    ) -> Result<ConflictOutcome, StoreError> {
        let theirs = self.check_out(tenant, &draft.context).await?;
        let seen = |found: &LoadedContext| found.business.as_ref().map(|row| row.version);
        let same = seen(&theirs) == seen(&draft.loaded);
        let Some(mine) = draft.text.as_ref().filter(|_| !same) else {
            draft.loaded = theirs;
            return Ok(ConflictOutcome::Ready);
        };
        let text = match (self.on_conflict(rules), &theirs.business) {
            (ConflictResolution::LastWriteWins, _) => Ok(mine.to_vec()),
            (ConflictResolution::Reject, _) => Err(conflict(draft, &theirs, "")),
            (ConflictResolution::Retry, now) => match draft.pending.reapply(now.as_ref()) {
                Ok(Some(text)) => Ok(text),
                Ok(None) if rules.rerunnable => return Ok(ConflictOutcome::Rerun),
                Ok(None) => Err(conflict(
                    draft,
                    &theirs,
                    "; it was not changed by `update` alone, and the tool is not declared `rerunnable`",
                )),
                Err(error) => Err(error.into()),
            },
            (ConflictResolution::Merge, None) => Err(conflict(draft, &theirs, "")),
            (ConflictResolution::Merge, Some(now)) => draft
                .pending
                .merge(draft.loaded.business.as_ref(), mine, now)
                .map_err(|why| conflict(draft, &theirs, &format!("; the changes do not go together: {why}"))),
        };
        match text {
            Err(error) => Ok(ConflictOutcome::Refused(error)),
            Ok(text) => {
                (draft.text, draft.loaded) = (Some(text.into()), theirs);
                Ok(self
                    .check_size(draft)
                    .map_or_else(|error| ConflictOutcome::Refused(error.into()), |()| ConflictOutcome::Ready))
            }
        }
    }

    /// Tidies up behind a call that has ended.
    pub(crate) async fn clean_up_after_call(&self, tenant: &Tenant, context: &ContextId, rules: &StateRules) {
        if rules.cleanup == StateCleanup::AfterCall {
            // Nothing hangs on it: the state itself is gone already.
            let _ = self.cleanup_context(tenant, context).await;
        } else {
            self.maybe_trim_history(tenant, context).await;
        }
    }
}

fn removal(context: &ContextId, seen: RowVersion) -> Write {
    Write {
        table: Table::State,
        id: context.row_id(StateKind::Business),
        expect: Expect::Same(seen),
        change: Change::Remove,
        durability: Durability::PowerSafe,
    }
}

fn conflict(draft: &Draft, theirs: &LoadedContext, why: &str) -> CallError {
    let state = state_id(&draft.context, StateKind::Business);
    let text = match &theirs.business {
        None => format!("the state `{state}` is gone: it was deleted or has expired during the call{why}"),
        Some(row) => {
            let version = row.version.number;
            format!("the state `{state}` has version {version} now: somebody else wrote it during the call{why}")
        }
    };
    CallError::new(ErrorKind::StateConflict).operator(text)
}
