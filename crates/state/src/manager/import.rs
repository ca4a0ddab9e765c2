//! Imports contexts from JSON Lines that `export` wrote or that were written by hand.
//!
//! In: text. Out: the number of imported contexts. All lines are validated before the first is imported, and each
//! context is one batch: it is replaced as a whole or not at all.

use std::collections::{BTreeMap, HashSet};

use smol_str::{SmolStr, format_smolstr};

use super::{MAX_ATTEMPTS, StateManager, deletion::unconditional_removal, limits::AppliedLimits};
use crate::{
    ContextId, HistoryEntry, StateError, StateKind, data,
    entry::state_id,
    export_line::{ExportedContext, ExportedState},
    history, versions,
};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, StoreError, Table, Write};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

impl StateManager {
    /// Imports what [`export`](Self::export) wrote, for this tenant; returns the number of imported contexts.
    ///
    /// An existing context is replaced. Versions continue from the greater of the two, so that none is used twice.
    /// Expired states are omitted.
    ///
    /// # Errors
    /// [`InvalidLine`](StateError::InvalidLine) when a line is damaged, too large or repeats a context; then nothing
    /// was imported. When the store fails; then the contexts before that one were imported, and the import can be
    /// repeated.
    pub async fn import(&self, tenant: &Tenant, text: &str) -> Result<usize, StateError> {
        let mut all = Vec::new();
        let mut contexts = HashSet::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let invalid = |reason| StateError::InvalidLine { line, reason };
            let exported =
                ExportedContext::parse(text, |context| self.limits(context).max_state_size).map_err(invalid)?;
            if !contexts.insert(exported.context.clone()) {
                return Err(invalid(format!("duplicate context `{}`", exported.context)));
            }
            all.push(exported);
        }
        let mut imported = 0;
        for exported in all {
            imported += usize::from(self.import_context(tenant, &exported).await?);
        }
        Ok(imported)
    }

    /// Replaces a context; returns whether anything of it had not expired.
    async fn import_context(&self, tenant: &Tenant, exported: &ExportedContext) -> Result<bool, StateError> {
        let context = &exported.context;
        let (partition, keys) = (context.partition(tenant), StateKind::STORED.map(|kind| context.key(tenant, kind)));
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, rows) = self.load_in_session(&partition, &keys, now).await?;
            let mut writes = WriteSet::default();
            for table in [Table::Versions, Table::History] {
                let old = self.all_rows(tenant, context, table, now).await?;
                old.into_iter().for_each(|(id, _)| writes.add(unconditional_removal(table, id)));
            }
            for (kind, row) in StateKind::STORED.into_iter().zip(&rows) {
                let state = match kind {
                    StateKind::Business => exported.business.as_ref(),
                    StateKind::Session => exported.session.as_ref(),
                    // Cached data was derived from the replaced state and is stale.
                    StateKind::Cache | StateKind::Connection => None,
                };
                self.add_state(&mut writes, context, kind, row.as_ref(), state.filter(|state| state.is_live(now)))?;
            }
            let business = exported.business.as_ref().filter(|state| state.is_live(now));
            if let Some(state) = business {
                self.add_snapshots(&mut writes, exported, rows.first().and_then(Option::as_ref), state, now)?;
            }
            self.add_entries(&mut writes, exported, now)?;
            let has_data =
                writes.0.values().any(|write| matches!(write.change, Change::Put { .. } | Change::Restore { .. }));
            if !has_data {
                return Ok(false);
            }
            let unseen = [context.state().as_str()];
            let unseen = if rows.iter().any(Option::is_some) { &[] } else { &unseen[..] };
            let mut batch = Batch { writes: writes.0.into_values().collect(), ..Batch::new(partition.clone()) };
            batch.writes.extend(self.session_writes(&partition, session, unseen, now).await?);
            match self.0.store.commit(batch, now).await {
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict { .. }) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(StateError::Conflict { state: state_id(context, StateKind::Business), found: 0, expected: None })
    }

    fn add_state(
        &self,
        writes: &mut WriteSet,
        context: &ContextId,
        kind: StateKind,
        row: Option<&Row>,
        state: Option<&ExportedState>,
    ) -> Result<(), StateError> {
        let change = match state {
            Some(state) => {
                let value = data::encode_imported(&state.data, self.limits(context).max_state_size)?;
                let ExportedState { schema, expires, version, .. } = *state;
                Change::Restore { value, schema, expires, version }
            }
            None if row.is_some() => Change::Remove,
            None => Change::Keep,
        };
        let expect = row.map_or(Expect::Absent, |row| Expect::Same(row.version));
        let durability = Durability::PowerSafe;
        writes.add(Write { table: Table::State, id: context.row_id(kind), expect, change, durability });
        Ok(())
    }

    fn add_snapshots(
        &self,
        writes: &mut WriteSet,
        exported: &ExportedContext,
        row: Option<&Row>,
        state: &ExportedState,
        now: Timestamp,
    ) -> Result<(), StateError> {
        // The version the imported state will get.
        let version = state.version.max(row.map_or(0, |row| row.version.number) + 1);
        let AppliedLimits { max_snapshots: limit, max_state_size, .. } = self.limits(&exported.context);
        let snapshots = exported.versions.iter().filter(|old| old.is_live(now)).map(|old| (old.version, old));
        // The current version comes last; it is stored as its own snapshot.
        for (version, old) in
            snapshots.chain([(version, state)]).filter(|(number, _)| versions::is_retained(*number, version, limit))
        {
            let value = data::encode_imported(&old.data, max_state_size)?;
            let put = Change::Put { value, schema: old.schema, expires: old.expires };
            writes.add(versions::write(versions::row_id(&exported.context, version), put));
        }
        Ok(())
    }

    fn add_entries(&self, writes: &mut WriteSet, exported: &ExportedContext, now: Timestamp) -> Result<(), StateError> {
        let excess = exported.history.len().saturating_sub(self.limits(&exported.context).max_history_size);
        let is_live = |expires: Option<Timestamp>| expires.is_none_or(|at| at > now);
        for old in exported.history.iter().skip(excess).filter(|old| is_live(old.expires)) {
            let id = format_smolstr!("{}/{}", exported.context.state(), old.id);
            let entry = HistoryEntry {
                timestamp: old.entry.timestamp,
                event: self.0.history.sanitize(old.entry.event.clone()),
            };
            writes.add(history::write(id, &entry, old.expires)?);
        }
        Ok(())
    }
}

/// Writes by row: a put replaces an earlier removal of the same row.
#[derive(Default)]
struct WriteSet(BTreeMap<(Table, SmolStr), Write>);

impl WriteSet {
    fn add(&mut self, write: Write) {
        self.0.insert((write.table, write.id.clone()), write);
    }
}
