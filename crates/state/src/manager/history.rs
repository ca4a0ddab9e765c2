//! Reads and trims the snapshots and the history of a context.
//!
//! In: a context. Out: its snapshots and its history, oldest first. Readers never see more entries than the configured
//! limit; the excess is removed by a random fraction of the writes, so that not every write pays for it.

use serde_json::Value;

use super::{BATCH_SIZE, MAX_ATTEMPTS, StateManager, deletion::unconditional_removal};
use crate::{
    ContextId, HistoryCursor, HistoryEntry, HistoryEvent, StateError, StateKind, StateVersion, entry, history,
    sessions, versions,
};
use toolhub_storage::backend::{Batch, Cursor, RowKey, Scan, Scope, StoreError, Table};
use toolhub_types::{
    ids::Tenant,
    page_budget::{LIST_PAGE_BYTES, PageBudget},
};

impl StateManager {
    /// Adds an event to the history of a context, redacted.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn add_history(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        event: HistoryEvent,
    ) -> Result<(), StateError> {
        if self.limits(context).max_history_size == 0 {
            return Ok(());
        }
        let (partition, event) = (context.partition(tenant), self.0.history.sanitize(event));
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, _) = self.load_in_session(&partition, &[], now).await?;
            let session_writes = self.session_writes(&partition, session, &[], now).await?;
            let note = self.0.history.note(context, event.clone(), now, None)?;
            let mut batch = Batch::new(partition.clone()).with(note);
            batch.writes.extend(session_writes);
            match self.0.store.commit(batch, now).await {
                Err(error) if sessions::is_conflict(&error) => tokio::task::yield_now().await,
                result => {
                    result?;
                    self.maybe_trim_history(tenant, context).await;
                    return Ok(());
                }
            }
        }
        Err(StateError::Conflict { state: entry::state_id(context, StateKind::Business), found: 0, expected: None })
    }

    /// The newest history entries of a context, at most `limit`, oldest first.
    ///
    /// # Errors
    /// When the store fails. An entry that cannot be read is skipped.
    pub async fn history(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, StateError> {
        let limit = limit.min(self.limits(context).max_history_size);
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

    /// A page of the history of a context, newest first, and the cursor of the next page. A page ends after `limit` entries, and
    /// earlier if its entries are large.
    ///
    /// # Errors
    /// When the store fails. An entry that cannot be read is skipped.
    pub async fn history_page(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        after: Option<HistoryCursor>,
        limit: usize,
    ) -> Result<(Vec<HistoryEntry>, Option<HistoryCursor>), StateError> {
        let mut cursor = after.unwrap_or_default();
        let limit = limit.min(self.limits(context).max_history_size.saturating_sub(cursor.listed));
        let (partition, now) = (context.partition(tenant), self.now());
        let (session, _) = self.load_in_session(&partition, &[], now).await?;
        if limit == 0 || session.is_ended() {
            return Ok((Vec::new(), None));
        }
        self.touch_session(&partition, session, now).await?;
        let scan = newest_first_scan(tenant, context, Table::History, limit).max_bytes(LIST_PAGE_BYTES);
        let last = Some(cursor.row.clone()).filter(|row| !row.is_empty());
        let after = last.map(|id| Cursor(RowKey { partition, table: Table::History, id }));
        let page = self.0.store.scan(Scan { after, ..scan }, now).await?;
        let (mut entries, mut budget, found) = (Vec::new(), PageBudget::default(), page.rows.len());
        let mut listed = 0;
        for (key, row) in page.rows {
            if budget.is_spent() {
                break;
            }
            budget.spend(&row.value);
            entries.extend(history::read(&key.id, &row).inspect_err(StoreError::log_skipped));
            (listed, cursor.row) = (listed + 1, key.id);
        }
        cursor.listed += listed;
        let has_more = listed < found || (page.next.is_some() && cursor.listed < self.limits(context).max_history_size);
        Ok((entries, has_more.then_some(cursor)))
    }

    /// The snapshots of a context's business state, oldest first; the last one is the current state.
    ///
    /// # Errors
    /// When the store fails, or a stored value is not JSON.
    pub async fn versions(&self, tenant: &Tenant, context: &ContextId) -> Result<Vec<StateVersion>, StateError> {
        let (mut versions, mut before) = (Vec::<StateVersion>::new(), None);
        loop {
            let (page, has_more) = self.versions_page(tenant, context, before).await?;
            before = page.last().map(|version| version.version);
            versions.extend(page);
            if !has_more {
                versions.reverse();
                return Ok(versions);
            }
        }
    }

    /// A page of the snapshots before a version, newest first, and whether there are more. A page ends early if they are large.
    ///
    /// # Errors
    /// When the store fails, or a stored value is not JSON.
    pub async fn versions_page(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        before: Option<u64>,
    ) -> Result<(Vec<StateVersion>, bool), StateError> {
        let (limit, now) = (self.limits(context).max_snapshots, self.now());
        let (mut found, mut budget) = (Vec::new(), PageBudget::default());
        let Some(row) = self.load_row(tenant, context, StateKind::Business, now).await? else {
            return Ok((found, false));
        };
        // Snapshots of a deleted predecessor may come before the valid ones.
        let mut scan = newest_first_scan(tenant, context, Table::Versions, limit.max(1)).max_bytes(LIST_PAGE_BYTES);
        loop {
            let page = self.0.store.scan(scan.clone(), now).await?;
            for (key, snapshot) in page.rows {
                let version = key.id.rsplit('/').next().and_then(|digits| digits.parse().ok());
                let Some(version) = version else { continue };
                if !versions::is_retained(version, row.version.number, limit)
                    || before.is_some_and(|end| version >= end)
                {
                    continue;
                }
                if budget.is_spent() {
                    return Ok((found, true));
                }
                budget.spend(&snapshot.value);
                let data = entry::read_data(context, StateKind::Business, &snapshot)?;
                found.push(StateVersion { version, data, created: snapshot.updated });
            }
            match page.next {
                Some(next) if found.len() < limit => scan.after = Some(next),
                _ => return Ok((found, false)),
            }
        }
    }

    /// The arguments of a tool, redacted and truncated for the history.
    #[doc(hidden)]
    pub fn redact_parameters(&self, arguments: &Value) -> Value {
        self.0.history.redact_parameters(arguments)
    }

    /// Trims the history with a probability that keeps the excess small. After a failure the next trim removes more.
    pub(super) async fn maybe_trim_history(&self, tenant: &Tenant, context: &ContextId) {
        let limit = self.limits(context).max_history_size;
        if limit > 0 && fastrand::usize(..(limit / 4).clamp(1, 256)) == 0 {
            let _ = self.trim_history(tenant, context).await;
        }
    }

    async fn trim_history(&self, tenant: &Tenant, context: &ContextId) -> Result<(), StoreError> {
        let now = self.now();
        let mut scan = newest_first_scan(tenant, context, Table::History, self.limits(context).max_history_size);
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

/// A scan over a context's rows, newest first.
pub(super) fn newest_first_scan(tenant: &Tenant, context: &ContextId, table: Table, limit: usize) -> Scan {
    let scan = Scan::new(table, Scope::Partition(context.partition(tenant))).prefix(context.prefix()).limit(limit);
    Scan { descending: true, ..scan }
}
