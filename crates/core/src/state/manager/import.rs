//! Takes contexts in: the lines that `export` wrote, or somebody by hand.
//!
//! In: text. Out: how many contexts there are now as the text has them. All lines are checked before the first is taken
//! in, and each context is one batch: it is replaced whole, or stays as it was.

use std::collections::{BTreeMap, HashSet};

use smol_str::{SmolStr, format_smolstr};

use super::{MAX_ATTEMPTS, StateManager, deletion::unconditional_removal};
use crate::state::{
    ContextId, HistoryEntry, StateError, StateKind, data,
    entry::state_id,
    export_line::{ExportedContext, ExportedState},
    history, versions,
};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, StoreError, Table, Write};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

impl StateManager {
    /// Takes in what [`export`](Self::export) wrote, for this tenant; answers how many contexts were taken in.
    ///
    /// A context that is there already is replaced. Versions go on from the greater of the two, so that none is used
    /// twice. What has expired in the meantime is left out.
    ///
    /// # Errors
    /// [`Line`](StateError::Line) when a line is damaged, too large or names a context twice; then nothing was taken in.
    /// When the store does not answer; then the contexts before that one were, and taking the text in again does no harm.
    pub async fn import(&self, tenant: &Tenant, text: &str) -> Result<usize, StateError> {
        let mut all = Vec::new();
        let mut known = HashSet::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let wrong = |reason| StateError::InvalidLine { line, reason };
            let saved = ExportedContext::parse(text, self.0.business.max_state_size).map_err(wrong)?;
            if !known.insert(saved.context.clone()) {
                return Err(wrong(format!("the context `{}` is in the text twice", saved.context)));
            }
            all.push(saved);
        }
        let mut taken = 0;
        for saved in all {
            taken += usize::from(self.import_context(tenant, &saved).await?);
        }
        Ok(taken)
    }

    /// Replaces a context; says whether anything of it was left to take in.
    async fn import_context(&self, tenant: &Tenant, saved: &ExportedContext) -> Result<bool, StateError> {
        let context = &saved.context;
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
                    StateKind::Business => saved.business.as_ref(),
                    StateKind::Session => saved.session.as_ref(),
                    // What a tool derived from another state than the one that comes is of no use.
                    StateKind::Cache | StateKind::Connection => None,
                };
                self.add_state(&mut writes, context, kind, row.as_ref(), state.filter(|state| state.is_live(now)))?;
            }
            let business = saved.business.as_ref().filter(|state| state.is_live(now));
            if let Some(state) = business {
                self.add_snapshots(&mut writes, saved, rows.first().and_then(Option::as_ref), state, now)?;
            }
            self.add_entries(&mut writes, saved, now)?;
            let any =
                writes.0.values().any(|write| matches!(write.change, Change::Put { .. } | Change::Restore { .. }));
            if !any {
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
        Err(StateError::Conflict { state: state_id(context, StateKind::Business), found: 0 })
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
                let value = data::encode_imported(&state.data, self.0.business.max_state_size)?;
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
        saved: &ExportedContext,
        row: Option<&Row>,
        state: &ExportedState,
        now: Timestamp,
    ) -> Result<(), StateError> {
        // The version the state is about to have.
        let version = state.version.max(row.map_or(0, |row| row.version.number) + 1);
        let most = self.max_snapshots();
        let snapshots = saved.versions.iter().filter(|old| old.is_live(now)).map(|old| (old.version, old));
        // The present version comes last, and stands for itself.
        for (version, old) in
            snapshots.chain([(version, state)]).filter(|(it, _)| versions::is_retained(*it, version, most))
        {
            let value = data::encode_imported(&old.data, self.0.business.max_state_size)?;
            let put = Change::Put { value, schema: old.schema, expires: old.expires };
            writes.add(versions::write(versions::row_id(&saved.context, version), put));
        }
        Ok(())
    }

    fn add_entries(&self, writes: &mut WriteSet, saved: &ExportedContext, now: Timestamp) -> Result<(), StateError> {
        let beyond = saved.history.len().saturating_sub(self.0.business.max_history_size);
        let lives = |expires: Option<Timestamp>| expires.is_none_or(|at| at > now);
        for old in saved.history.iter().skip(beyond).filter(|old| lives(old.expires)) {
            let id = format_smolstr!("{}/{}", saved.context.state(), old.id);
            let entry = HistoryEntry { timestamp: old.entry.timestamp, event: old.entry.event.clone().sanitize() };
            writes.add(history::write(id, &entry, old.expires)?);
        }
        Ok(())
    }
}

/// Writes by row: a row that goes and comes again is written once.
#[derive(Default)]
struct WriteSet(BTreeMap<(Table, SmolStr), Write>);

impl WriteSet {
    fn add(&mut self, write: Write) {
        self.0.insert((write.table, write.id.clone()), write);
    }
}
