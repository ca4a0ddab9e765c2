//! Turns the drafts of a call into writes, and resolves their conflicts.
//!
//! In: the drafts a tool left, and how its call ended. Out: the writes that join the call's closing batch; after a
//! conflict, drafts rebased on the current state, as far as the tool's rules allow.

use serde_json::{Map, Value, json};

use super::{LAYOUT, StateManager, write::NewState};
use crate::{
    ContextId, Draft, HistoryEvent, LoadedContext, StateCleanup, StateError, StateKind, StateSettings, entry::state_id,
};
use toolhub_storage::backend::{Change, Durability, Expect, Row, RowVersion, StoreError, Table, Write, decode, encode};
use toolhub_types::{
    error::{CallError, ErrorKind},
    ids::Tenant,
    state_config::ConflictResolution,
    timestamp::Timestamp,
};

/// What the history records of a call.
pub struct ExecutionHistory {
    /// When the tool started.
    pub started_at: Timestamp,
    /// The arguments of the tool, redacted.
    pub parameters: Value,
    /// How it ended.
    pub end_event: HistoryEvent,
}
toolhub_storage::brief_debug!("ExecutionHistory" ExecutionHistory);

/// The result of resolving a conflict.
pub enum ConflictOutcome {
    /// The draft can be committed.
    Ready,
    /// The tool must run again to produce a new draft.
    Rerun,
    /// The draft cannot be committed.
    Refused(CallError),
}
toolhub_storage::brief_debug!("ConflictOutcome" ConflictOutcome);

impl StateManager {
    /// Loads a context for a tool.
    #[doc(hidden)]
    pub async fn check_out(&self, tenant: &Tenant, context: &ContextId) -> Result<LoadedContext, StoreError> {
        let keys = [context.key(tenant, StateKind::Business), context.key(tenant, StateKind::Session)];
        let (thread_session, rows) = self.load_in_session(&context.partition(tenant), &keys, self.now()).await?;
        let mut rows = rows.into_iter();
        Ok(LoadedContext { business: rows.next().flatten(), session: rows.next().flatten(), thread_session })
    }

    /// Extends the session of a context that a call uses.
    ///
    /// # Errors
    /// When a call that may write would exceed the session's limit of contexts.
    #[doc(hidden)]
    pub async fn record_use(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        loaded: &LoadedContext,
        writes: bool,
    ) -> Result<(), StateError> {
        let (partition, now) = (context.partition(tenant), self.now());
        if writes && loaded.business.is_none() && loaded.session.is_none() {
            // Check the limit before the tool has side effects; the writes are computed again at the end of the call.
            self.session_writes(&partition, loaded.thread_session, &[context.state().as_str()], now).await?;
        }
        Ok(self.touch_session(&partition, loaded.thread_session, now).await?)
    }

    /// The writes that extend the thread's session when a call commits these drafts.
    #[doc(hidden)]
    pub async fn session_writes_for_drafts(
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

    /// How a conflict with a concurrent write is resolved.
    #[doc(hidden)]
    pub fn on_conflict(&self, rules: &StateSettings) -> ConflictResolution {
        rules.on_conflict.or(self.0.business.conflict_resolution).unwrap_or(ConflictResolution::Reject)
    }

    /// Refuses a draft that exceeds the size limit.
    #[doc(hidden)]
    pub fn check_size(&self, draft: &Draft) -> Result<(), StateError> {
        let limit = self.limits(&draft.context).max_state_size;
        match draft.text.as_ref().map(|text| text.len()) {
            Some(bytes) if bytes > limit => Err(StateError::TooLarge { bytes, limit }),
            _ => Ok(()),
        }
    }

    /// All writes of a draft that are committed together with the end of its call.
    #[doc(hidden)]
    pub async fn draft_writes(
        &self,
        tenant: &Tenant,
        draft: &Draft,
        rules: &StateSettings,
        execution: Option<&ExecutionHistory>,
        now: Timestamp,
    ) -> Result<Vec<Write>, StateError> {
        let Draft { context, loaded, text, pending } = draft;
        let row_version = loaded.business.as_ref().map(|row| row.version);
        if rules.cleanup == StateCleanup::AfterCall {
            return Ok(row_version.map(|row_version| removal(context, row_version)).into_iter().collect());
        }
        let current_expiry = loaded.business.as_ref().and_then(|row| row.expires);
        // A configured time to live restarts with each call; without one the state keeps its expiry.
        let limits = self.limits(context);
        let expires = if limits.ttl.is_some() { limits.expiry(None, now)? } else { current_expiry };
        let mut writes = Vec::new();
        let has_history = limits.max_history_size > 0;
        if let Some(execution) = execution.filter(|_| has_history) {
            let start_event = HistoryEvent::ExecutionStart { parameters: execution.parameters.clone() };
            writes.push(self.0.history.note(context, start_event, execution.started_at, expires)?);
        }
        if let Some(text) = text {
            let next = NewState { text: text.clone(), schema: pending.layout(), expires, patch: None };
            let batch = self.build_batch(tenant, context, StateKind::Business, row_version, next, now).await?;
            writes.extend(batch.writes);
        }
        if let Some(execution) = execution {
            if has_history {
                writes.push(self.0.history.note(context, execution.end_event.clone(), now, expires)?);
            }
            writes.push(self.usage_write(context, loaded.session.as_ref(), expires, now)?);
        }
        Ok(writes)
    }

    /// The write that counts one more call in the usage of the context.
    fn usage_write(
        &self,
        context: &ContextId,
        row: Option<&Row>,
        expires: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Write, StateError> {
        let id = context.row_id(StateKind::Session);
        // Others may have added members, which stay.
        let stored = row.and_then(|row| decode::<Map<String, Value>>(Table::State, &id, LAYOUT, row).ok());
        let mut session = stored.map(|(stored, _)| stored).unwrap_or_default();
        let calls = session.get("calls").and_then(Value::as_u64).unwrap_or(0);
        session.entry("created").or_insert_with(|| json!(now));
        session.insert("lastActivity".into(), json!(now));
        session.insert("calls".into(), json!(calls.saturating_add(1)));
        let value = encode(Table::State, &id, &session)?;
        let change = Change::Put { value, schema: LAYOUT, expires };
        let expect = row.map_or(Expect::Absent, |row| Expect::Same(row.version));
        Ok(Write { table: Table::State, id, expect, change, durability: Durability::KillSafe })
    }

    /// Rebases a draft on the current state after a concurrent write.
    #[doc(hidden)]
    pub async fn resolve_conflict(
        &self,
        tenant: &Tenant,
        draft: &mut Draft,
        rules: &StateSettings,
    ) -> Result<ConflictOutcome, StoreError> {
        let theirs = self.check_out(tenant, &draft.context).await?;
        let business_version = |loaded: &LoadedContext| loaded.business.as_ref().map(|row| row.version);
        let is_unchanged = business_version(&theirs) == business_version(&draft.loaded);
        let Some(mine) = draft.text.as_ref().filter(|_| !is_unchanged) else {
            draft.loaded = theirs;
            return Ok(ConflictOutcome::Ready);
        };
        let text = match (self.on_conflict(rules), &theirs.business) {
            (ConflictResolution::LastWriteWins, _) => Ok(mine.to_vec()),
            (ConflictResolution::Reject, _) => Err(conflict(draft, &theirs, "")),
            (ConflictResolution::Retry, current) => match draft.pending.reapply(current.as_ref()) {
                Ok(Some(text)) => Ok(text),
                Ok(None) if rules.rerunnable => return Ok(ConflictOutcome::Rerun),
                Ok(None) => Err(conflict(
                    draft,
                    &theirs,
                    "; the change was not made by `update` alone and cannot be reapplied, and the tool is not declared \
                     `rerunnable`",
                )),
                Err(error) => Err(error.into()),
            },
            (ConflictResolution::Merge, None) => Err(conflict(draft, &theirs, "")),
            (ConflictResolution::Merge, Some(current)) => draft
                .pending
                .merge(draft.loaded.business.as_ref(), mine, current)
                .map_err(|reason| conflict(draft, &theirs, &format!("; the changes cannot be merged: {reason}"))),
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

    /// Cleans up after a call that has ended.
    #[doc(hidden)]
    pub async fn clean_up_after_call(&self, tenant: &Tenant, context: &ContextId, rules: &StateSettings) {
        if rules.cleanup == StateCleanup::AfterCall {
            // A failure is harmless: the call's closing batch has removed the state itself.
            let _ = self.cleanup_context(tenant, context).await;
        } else {
            self.maybe_trim_history(tenant, context).await;
        }
    }
}

fn removal(context: &ContextId, row_version: RowVersion) -> Write {
    Write {
        table: Table::State,
        id: context.row_id(StateKind::Business),
        expect: Expect::Same(row_version),
        change: Change::Remove,
        durability: Durability::PowerSafe,
    }
}

fn conflict(draft: &Draft, theirs: &LoadedContext, reason: &str) -> CallError {
    let state = state_id(&draft.context, StateKind::Business);
    let text = match &theirs.business {
        None => format!("the state `{state}` was deleted or expired during the call{reason}"),
        Some(row) => {
            let version = row.version.number;
            format!("the state `{state}` has version {version}: a concurrent write changed it during the call{reason}")
        }
    };
    CallError::new(ErrorKind::StateConflict).operator(text)
}
