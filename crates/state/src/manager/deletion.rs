//! Deletes one kind of a context's state, or the whole context.
//!
//! In: a context. Out: whether there was anything to delete. A state and its snapshots are removed in one batch that
//! expects the rows as read, so that a concurrent write is either deleted with them or starts a new state.

use super::{BATCH_SIZE, MAX_ATTEMPTS, StateCondition, StateManager};
use crate::{ContextId, StateError, StateKind, entry::state_id, versions};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, Scan, Scope, StoreError, Table, Write};
use toolhub_types::ids::Tenant;

impl StateManager {
    /// Deletes one kind of state with its snapshots; returns whether it existed. Its history stays.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_state(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
    ) -> Result<bool, StateError> {
        self.delete_state_if(tenant, context, kind, StateCondition::Any).await
    }

    /// [`delete_state`](Self::delete_state) on a condition, which is not checked when the state does not exist.
    ///
    /// # Errors
    /// As there; [`Conflict`](StateError::Conflict) when the state exists and the condition does not hold.
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

    /// Deletes a context: all kinds of state, snapshots and history. Returns whether there was any state.
    ///
    /// # Errors
    /// When the store fails. Rows removed before the failure stay removed; the states are removed first.
    pub async fn cleanup_context(&self, tenant: &Tenant, context: &ContextId) -> Result<bool, StateError> {
        let had_connection = self.delete_connection(tenant, context, |_| Ok(())).await?;
        let had_state = self.delete_kinds(tenant, context, &StateKind::STORED, |_| Ok(())).await?;
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
                return Ok(had_state || had_connection);
            }
        }
    }

    async fn delete_connection(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        check: impl FnOnce(Option<&Row>) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let existed = self.load_row(tenant, context, StateKind::Connection, self.now()).await?.is_some();
        // A row that has expired or belongs to an ended session is removed without a check.
        self.0.connections.remove_if(tenant, context, |row| if existed { check(row) } else { Ok(()) })?;
        Ok(existed)
    }

    /// Removes these kinds in one batch, the snapshots with the business state, unless `check` refuses the first kind.
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
            let existed = rows.iter().any(Option::is_some);
            check(rows.first().and_then(Option::as_ref))?;
            let mut batch = Batch::new(partition.clone());
            batch.writes.extend(self.session_writes(&partition, session, &[], now).await?);
            batch
                .writes
                .extend(kinds.iter().zip(&rows).map(|(kind, row)| expected_removal(context, *kind, row.as_ref())));
            if kinds.contains(&StateKind::Business) {
                let snapshots = self.snapshot_ids(tenant, context, now).await?;
                batch.writes.extend(snapshots.into_iter().map(|id| versions::write(id, Change::Remove)));
            }
            match self.0.store.commit(batch, now).await {
                Ok(_) => return Ok(existed),
                Err(StoreError::Conflict { .. }) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
        let kind = kinds.first().copied().unwrap_or(StateKind::Business);
        Err(StateError::Conflict { state: state_id(context, kind), found: 0, expected: None })
    }
}

/// The write that removes a state if it is still the row that was read.
fn expected_removal(context: &ContextId, kind: StateKind, row: Option<&Row>) -> Write {
    Write {
        table: Table::State,
        id: context.row_id(kind),
        expect: row.map_or(Expect::Absent, |row| Expect::Same(row.version)),
        change: if row.is_some() { Change::Remove } else { Change::Keep },
        durability: Durability::PowerSafe,
    }
}

/// The write that removes a row without a precondition.
pub(super) fn unconditional_removal(table: Table, id: smol_str::SmolStr) -> Write {
    Write { table, id, expect: Expect::Any, change: Change::Remove, durability: Durability::KillSafe }
}
