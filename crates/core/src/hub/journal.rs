//! The journal, for people who look things up: which calls were made, and how each ended.
//!
//! In: a tenant, and which of its calls are wanted. Out: records. A foreign tenant sees nothing of them. What this node has
//! noted and not written yet is written first, so that there is one list.

use std::time::Duration;

use super::ToolHub;
use crate::{
    batched_records::JournalStats,
    journal::{CallPage, CallQuery, CallQueryError, CallRecord, RecentStats, with_live_status},
};
use toolhub_storage::backend::{Scan, Scope, StoreError, Table};
use toolhub_types::{
    ids::{CallId, Tenant},
    outcome::Status,
};

/// What became of the wish to cancel a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancellation {
    /// It was asked to stop, and will end soon.
    Requested,
    /// It had ended before, like this.
    AlreadyEnded(Status),
    /// It is open, and not run by this hub.
    OnOtherNode,
    /// The tenant has no such call.
    NotFound,
}

impl ToolHub {
    /// A page of a tenant's calls, the newest first. Those that have not ended are among them, as they stand.
    ///
    /// # Errors
    /// When the cursor is not one of the journal's, or the store does not answer.
    pub async fn calls(&self, tenant: &Tenant, query: &CallQuery) -> Result<CallPage, CallQueryError> {
        self.flush_batched_records().await;
        let here = self.engine.live_calls.of_tenant(tenant);
        let mut page = self.engine.journal.calls(tenant, query, &here, self.now()).await?;
        page.calls.iter_mut().for_each(|record| self.engine.services.redactor.redact(&mut record.arguments));
        Ok(page)
    }

    /// The record of a call. Calls with effects and calls with a key have one; read-only ones where a store was handed to
    /// the hub. Calls that were refused before their tool ran have none. One that has not ended is shown as it stands.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    pub async fn call_record(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        Ok(self.unredacted_record(tenant, call).await?.map(|mut record| {
            self.engine.services.redactor.redact(&mut record.arguments);
            record
        }))
    }

    /// The same with all that is secret, as long as the call is open.
    pub(super) async fn unredacted_record(
        &self,
        tenant: &Tenant,
        call: CallId,
    ) -> Result<Option<CallRecord>, StoreError> {
        self.flush_batched_records().await;
        // Before the journal is asked: one that ends in between is found there.
        let here = self.engine.live_calls.find(call).filter(|here| here.head.tenant == *tenant);
        let written = self.stored_record(tenant, call).await?;
        Ok(match (written, here) {
            (Some(record), here) => Some(with_live_status(record, here.as_deref())),
            (None, here) => here.and_then(|here| here.record()),
        })
    }

    /// Asks a call to stop. It still has an outcome: `cancelled`, or its result if it was faster. Calls that run in their
    /// caller's own task cannot be found; they are plain read-only ones.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn cancel_call(&self, tenant: &Tenant, call: CallId) -> Result<Cancellation, StoreError> {
        if let Some(here) = self.engine.live_calls.find(call).filter(|here| here.head.tenant == *tenant) {
            here.cancel.cancel();
            return Ok(Cancellation::Requested);
        }
        Ok(match self.call_record(tenant, call).await? {
            None => Cancellation::NotFound,
            Some(CallRecord { outcome: Some(outcome), .. }) => Cancellation::AlreadyEnded(outcome.status),
            Some(_) => Cancellation::OnOtherNode,
        })
    }

    async fn stored_record(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        let now = self.now();
        // The open ones first: a call that is closed in between is not missed.
        for table in [Table::OpenCalls, Table::Calls] {
            let scan = Scan::new(table, Scope::Tenant(tenant.clone())).prefix(call.to_string()).limit(1);
            let page = self.engine.services.store.scan(scan, now).await?;
            if let Some((key, _)) = page.rows.first() {
                return self.engine.journal.find_record(tenant, key.partition.thread(), call, now).await;
            }
        }
        Ok(None)
    }

    /// What a tool has done within the last so much time, whosever calls they were, as far as the journal knows; `None` where
    /// nobody knows the tool. The journal forgets: see [`calls_kept`](Self::calls_kept).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn recent_stats(&self, tool: &str, window: Duration) -> Result<Option<RecentStats>, StoreError> {
        let Some(tool) = self.get(tool) else { return Ok(None) };
        self.flush_batched_records().await;
        self.engine.journal.recent_stats(&tool.definition.name, window, self.now()).await.map(Some)
    }

    /// How long the journal keeps calls that have ended.
    #[must_use]
    pub fn call_retention(&self) -> Duration {
        self.engine.journal.retention
    }

    /// What became of the records of plain read-only calls on this hub.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.engine.batched_records.as_ref().map_or_else(JournalStats::default, |plain| plain.stats())
    }

    /// Writes down what is noted of read-only calls.
    pub(super) async fn flush_batched_records(&self) {
        if let Some(plain) = &self.engine.batched_records {
            plain.flush(&self.engine.runtime).await;
        }
    }
}
