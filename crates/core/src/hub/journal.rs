//! Journal queries: call records, cancellation and recent statistics.
//!
//! In: a tenant and a query or a call id. Out: records with secrets redacted, of this tenant only. Batched records of this node
//! are flushed first, so that a query sees every call that has ended.

use std::time::Duration;

use smol_str::SmolStr;

use super::ToolHub;
use crate::{
    batched_records::JournalStats,
    journal::{CallPage, CallQuery, CallQueryError, CallRecord, CallTracker, RecentStats, with_live_status},
};
use toolhub_storage::backend::{Scan, Scope, StoreError, Table};
use toolhub_types::{
    ids::{CallId, Tenant, ThreadId},
    outcome::Status,
};

/// Result of a request to cancel a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancellation {
    /// The call was signalled to stop, and will end soon.
    Requested,
    /// The call had already ended, with this status.
    AlreadyEnded(Status),
    /// The call is open, but no node of this store runs it: its outcome is still to be written, or it waits for the next start.
    NotRunning,
    /// The tenant has no such call.
    NotFound,
}

impl ToolHub {
    /// A page of a tenant's calls, newest first. Includes open calls with their live status.
    ///
    /// # Errors
    /// When the cursor is not valid, or the store does not answer.
    pub async fn calls(&self, tenant: &Tenant, query: &CallQuery) -> Result<CallPage, CallQueryError> {
        self.flush_batched_records().await;
        let live = self.engine.live_calls.of_tenant(tenant);
        let mut page = self.engine.journal.calls(tenant, query, &live, self.now()).await?;
        page.calls.iter_mut().for_each(|record| self.engine.services.redactor.redact(&mut record.arguments));
        Ok(page)
    }

    /// The record of a call. Calls with effects and calls with an idempotency key have one, read-only calls only if the hub
    /// was given a store. Calls that were refused before their tool ran have none. An open call has its live status.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    pub async fn call_record(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        Ok(self.unredacted_record(tenant, call).await?.map(|mut record| {
            self.engine.services.redactor.redact(&mut record.arguments);
            record
        }))
    }

    /// The same for a call of this thread, or of none; by key, so it can be repeated often.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    #[doc(hidden)]
    pub async fn call_record_in(
        &self,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        call: CallId,
    ) -> Result<Option<CallRecord>, StoreError> {
        self.flush_batched_records().await;
        let live = self.engine.live_calls.find(call).filter(|live| live.head.tenant == *tenant);
        let stored = self.engine.journal.find_record(tenant, thread, call, self.now()).await?;
        Ok(Self::merged(stored, live.as_deref()).map(|mut record| {
            self.engine.services.redactor.redact(&mut record.arguments);
            record
        }))
    }

    /// The other node that runs an open call of this thread, or of none, as the journal says.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    #[doc(hidden)]
    pub async fn node_of_call(
        &self,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        call: CallId,
    ) -> Result<Option<SmolStr>, StoreError> {
        let stored = self.engine.journal.find_record(tenant, thread, call, self.now()).await?;
        let node = stored.and_then(|record| record.opening).map(|opening| opening.node);
        Ok(node.filter(|node| node != self.node_id()))
    }

    /// The record of a call, with its secrets while the call is open.
    pub(super) async fn unredacted_record(
        &self,
        tenant: &Tenant,
        call: CallId,
    ) -> Result<Option<CallRecord>, StoreError> {
        self.flush_batched_records().await;
        // Looked up before the journal is read: a call that ends in between is found there.
        let live = self.engine.live_calls.find(call).filter(|live| live.head.tenant == *tenant);
        let stored = self.stored_record(tenant, call).await?;
        Ok(Self::merged(stored, live.as_deref()))
    }

    /// What the journal has of a call, with what is known of it while it runs here.
    fn merged(stored: Option<CallRecord>, live: Option<&CallTracker>) -> Option<CallRecord> {
        match stored {
            Some(record) => Some(with_live_status(record, live)),
            None => live.and_then(CallTracker::record),
        }
    }

    /// Cancels a call, on whichever node it runs. It still has an outcome: `cancelled`, or its result if that was complete first. Plain read-only calls,
    /// which run in their caller's task, are not found.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn cancel_call(&self, tenant: &Tenant, call: CallId) -> Result<Cancellation, StoreError> {
        if let Some(live) = self.engine.live_calls.find(call).filter(|live| live.head.tenant == *tenant) {
            live.cancel.cancel();
            return Ok(Cancellation::Requested);
        }
        Ok(match self.call_record(tenant, call).await? {
            None => Cancellation::NotFound,
            Some(CallRecord { outcome: Some(outcome), .. }) => Cancellation::AlreadyEnded(outcome.status),
            Some(_) if self.has_exclusive_store() => Cancellation::NotRunning,
            Some(record) => {
                self.cancel_elsewhere(tenant, &record).await?;
                Cancellation::Requested
            }
        })
    }

    async fn stored_record(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        let now = self.now();
        // Open calls first, so that a call that is closed in between is not missed.
        for table in [Table::OpenCalls, Table::Calls] {
            let scan = Scan::new(table, Scope::Tenant(tenant.clone())).prefix(call.to_string()).limit(1);
            let page = self.engine.services.store.scan(scan, now).await?;
            if let Some((key, _)) = page.rows.first() {
                return self.engine.journal.find_record(tenant, key.partition.thread(), call, now).await;
            }
        }
        Ok(None)
    }

    /// Statistics of a tool's calls within the last `window`, of all tenants, from the journal; `None` if the tool is not
    /// registered. Reaches back no further than [`call_retention`](Self::call_retention).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn recent_stats(&self, tool: &str, window: Duration) -> Result<Option<RecentStats>, StoreError> {
        let Some(tool) = self.get(tool) else { return Ok(None) };
        self.flush_batched_records().await;
        self.engine.journal.recent_stats(&tool.definition.name, window, self.now()).await.map(Some)
    }

    /// How long the journal keeps ended calls.
    #[must_use]
    pub fn call_retention(&self) -> Duration {
        self.engine.journal.retention
    }

    /// How many records of plain read-only calls this hub has written and dropped.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.engine.batched_records.as_ref().map_or_else(JournalStats::default, |records| records.stats())
    }

    /// Flushes the buffered records of plain read-only calls.
    pub(super) async fn flush_batched_records(&self) {
        if let Some(records) = &self.engine.batched_records {
            records.flush(&self.engine.runtime).await;
        }
    }
}
