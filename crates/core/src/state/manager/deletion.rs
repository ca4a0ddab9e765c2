//! Forgetting: one kind of a context's state, or all of it.
//!
//! In: a context. Out: whether there was anything. A state goes together with its snapshots, expecting what was read, so
//! that a write made at the same moment is either gone with the rest or begins anew.

use super::{BATCH_SIZE, MAX_ATTEMPTS, StateCondition, StateManager};
use crate::state::{ContextId, StateError, StateKind, entry::state_id, versions};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, Scan, Scope, StoreError, Table, Write};
use toolhub_types::ids::Tenant;

impl StateManager {
    /// Forgets one kind of state, with its snapshots; says whether it was there. Its history stays.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete_state(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
    ) -> Result<bool, StateError> {
        self.delete_state_if(tenant, context, kind, StateCondition::Any).await
    }

    /// [`delete_state`](Self::delete_state) on a condition. Where there is nothing, nothing is expected either.
    ///
    /// # Errors
    /// As there; [`Conflict`](StateError::Conflict) when it is there and the condition does not hold.
    pub async fn delete_state_if(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        condition: StateCondition,
    ) -> Result<bool, StateError> {
        let check = |row: Option<&Row>| row.map_or(Ok(()), |row| condition.check(context, kind, Some(row)));
        if kind == StateKind::Connection {
            return self.delete_connection(tenant, context, check).await;
        }
        self.delete_kinds(tenant, context, &[kind], check).await
    }

    /// Forgets everything of a context: all kinds of state, snapshots and history. Says whether there was any state.
    ///
    /// # Errors
    /// When the store does not answer. What was removed until then stays removed; the states go first.
    pub async fn cleanup_context(&self, tenant: &Tenant, context: &ContextId) -> Result<bool, StateError> {
        let was_live = self.delete_connection(tenant, context, |_| Ok(())).await?;
        let was_there = self.delete_kinds(tenant, context, &StateKind::STORED, |_| Ok(())).await?;
        let scope = Scope::Partition(context.partition(tenant));
        let scan = Scan::new(Table::History, scope).prefix(context.prefix()).limit(BATCH_SIZE);
        loop {
            let now = self.now();
            let page = self.0.store.scan(scan.clone(), now).await?;
            let last = page.next.is_none();
            let mut batch = Batch::new(context.partition(tenant));
            batch.writes.extend(page.rows.into_iter().map(|(key, _)| unconditional_removal(Table::History, key.id)));
            if !batch.writes.is_empty() {
                self.0.store.commit(batch, now).await?;
            }
            if last {
                return Ok(was_there || was_live);
            }
        }
    }

    async fn delete_connection(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        check: impl FnOnce(Option<&Row>) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let was_there = self.load_row(tenant, context, StateKind::Connection, self.now()).await?.is_some();
        // What is not told any more is taken away without a question.
        self.0.connections.remove_if(tenant, context, |row| if was_there { check(row) } else { Ok(()) })?;
        Ok(was_there)
    }

    /// Removes these kinds at once, and the snapshots with the business state, unless `check` objects to the first of them.
    async fn delete_kinds(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kinds: &[StateKind],
        check: impl Fn(Option<&Row>) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let keys: Vec<_> = kinds.iter().map(|kind| context.key(tenant, *kind)).collect();
        let partition = context.partition(tenant);
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, rows) = self.load_in_session(&partition, &keys, now).await?;
            if session.is_ended() {
                return Ok(false);
            }
            let was_there = rows.iter().any(Option::is_some);
            check(rows.first().and_then(Option::as_ref))?;
            let mut batch = Batch::new(partition.clone());
            batch.writes.extend(self.session_writes(&partition, session, &[], now).await?);
            batch
                .writes
                .extend(kinds.iter().zip(&rows).map(|(kind, row)| expected_removal(context, *kind, row.as_ref())));
            if kinds.contains(&StateKind::Business) {
                let left = self.snapshot_ids(tenant, context, now).await?;
                batch.writes.extend(left.into_iter().map(|id| versions::write(id, Change::Remove)));
            }
            match self.0.store.commit(batch, now).await {
                Ok(_) => return Ok(was_there),
                Err(StoreError::Conflict { .. }) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
        let kind = kinds.first().copied().unwrap_or(StateKind::Business);
        Err(StateError::Conflict { state: state_id(context, kind), found: 0 })
    }
}

/// The write that removes a state as it was seen.
fn expected_removal(context: &ContextId, kind: StateKind, row: Option<&Row>) -> Write {
    Write {
        table: Table::State,
        id: context.row_id(kind),
        expect: row.map_or(Expect::Absent, |row| Expect::Same(row.version)),
        change: if row.is_some() { Change::Remove } else { Change::Keep },
        durability: Durability::PowerSafe,
    }
}

/// The write that removes a row, whatever it is like.
pub(super) fn unconditional_removal(table: Table, id: smol_str::SmolStr) -> Write {
    Write { table, id, expect: Expect::Any, change: Change::Remove, durability: Durability::KillSafe }
}
