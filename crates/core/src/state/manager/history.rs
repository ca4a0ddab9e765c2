//! What states were like, and what happened to them.
//!
//! In: a context. Out: its snapshots and its history, the oldest first. Readers see at most as many as are to be kept;
//! what is beyond is removed now and then, so that not every write pays for it.

use super::{BATCH_SIZE, MAX_ATTEMPTS, StateManager, deletion::unconditional_removal};
use crate::state::{
    ContextId, HistoryEntry, HistoryEvent, StateError, StateKind, StateVersion, entry, history, sessions, versions,
};
use toolhub_storage::backend::{Batch, Scan, Scope, StoreError, Table};
use toolhub_types::ids::Tenant;

impl StateManager {
    /// Notes something that happened to a context. Parameters and updates lose their secrets first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn add_history(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        what: HistoryEvent,
    ) -> Result<(), StateError> {
        if self.0.business.max_history_size == 0 {
            return Ok(());
        }
        let (partition, what) = (context.partition(tenant), what.sanitize());
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, _) = self.load_in_session(&partition, &[], now).await?;
            let joined = self.session_writes(&partition, session, &[], now).await?;
            let note = self.0.sequence.note(context, what.clone(), now, None)?;
            let mut batch = Batch::new(partition.clone()).with(note);
            batch.writes.extend(joined);
            match self.0.store.commit(batch, now).await {
                Err(error) if sessions::is_conflict(&error) => tokio::task::yield_now().await,
                done => {
                    done?;
                    self.maybe_trim_history(tenant, context).await;
                    return Ok(());
                }
            }
        }
        Err(StateError::Conflict { state: entry::state_id(context, StateKind::Business), found: 0 })
    }

    /// The last things that happened to a context, at most `limit`, the oldest first.
    ///
    /// # Errors
    /// When the store does not answer. An entry that cannot be read is passed over.
    pub async fn history(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, StateError> {
        let limit = limit.min(self.0.business.max_history_size);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (partition, now) = (context.partition(tenant), self.now());
        let (session, _) = self.load_in_session(&partition, &[], now).await?;
        if session.is_ended() {
            return Ok(Vec::new());
        }
        self.touch_session(&partition, session, now).await?;
        let page = self.0.store.scan(newest_first_scan(tenant, context, Table::History, limit), now).await?;
        let read = |(key, row): &(toolhub_storage::backend::RowKey, _)| {
            history::read(&key.id, row).inspect_err(StoreError::log_skipped).ok()
        };
        Ok(page.rows.iter().rev().filter_map(read).collect())
    }

    /// The snapshots of a context's business state, the oldest first; the last one is the state as it is.
    ///
    /// # Errors
    /// When the store does not answer, or what it holds is no JSON.
    pub async fn versions(&self, tenant: &Tenant, context: &ContextId) -> Result<Vec<StateVersion>, StateError> {
        let (most, now) = (self.max_snapshots(), self.now());
        let Some(row) = self.load_row(tenant, context, StateKind::Business, now).await? else { return Ok(Vec::new()) };
        if most == 0 {
            return Ok(Vec::new());
        }
        // Snapshots left from an earlier life may stand before those that count.
        let mut scan = newest_first_scan(tenant, context, Table::Versions, most);
        let mut found = Vec::new();
        loop {
            let page = self.0.store.scan(scan.clone(), now).await?;
            for (key, snapshot) in page.rows {
                let version = key.id.rsplit('/').next().and_then(|digits| digits.parse().ok());
                let Some(version) = version else { continue };
                if versions::is_retained(version, row.version.number, most) {
                    let data = entry::read_data(context, StateKind::Business, &snapshot)?;
                    found.push(StateVersion { version, data, created: snapshot.updated });
                }
            }
            match page.next {
                Some(next) if found.len() < most => scan.after = Some(next),
                _ => break,
            }
        }
        found.reverse();
        Ok(found)
    }

    /// Removes what is beyond the history's limit, often enough that little of it ever lies there. Should it fail, the
    /// next one has more to do.
    pub(super) async fn maybe_trim_history(&self, tenant: &Tenant, context: &ContextId) {
        let kept = self.0.business.max_history_size;
        if kept > 0 && fastrand::usize(..(kept / 4).clamp(1, 256)) == 0 {
            let _ = self.trim_history(tenant, context).await;
        }
    }

    async fn trim_history(&self, tenant: &Tenant, context: &ContextId) -> Result<(), StoreError> {
        let now = self.now();
        let mut scan = newest_first_scan(tenant, context, Table::History, self.0.business.max_history_size);
        let mut next = self.0.store.scan(scan.clone(), now).await?.next;
        scan.limit = BATCH_SIZE;
        while next.is_some() {
            scan.after = next;
            let page = self.0.store.scan(scan.clone(), now).await?;
            let mut batch = Batch::new(context.partition(tenant));
            batch.writes.extend(page.rows.into_iter().map(|(key, _)| unconditional_removal(Table::History, key.id)));
            if !batch.writes.is_empty() {
                self.0.store.commit(batch, now).await?;
            }
            next = page.next;
        }
        Ok(())
    }
}

/// A scan over a context's rows, the last first.
pub(super) fn newest_first_scan(tenant: &Tenant, context: &ContextId, table: Table, limit: usize) -> Scan {
    let scan = Scan::new(table, Scope::Partition(context.partition(tenant))).prefix(context.prefix()).limit(limit);
    Scan { descending: true, ..scan }
}
