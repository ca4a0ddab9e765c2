//! The journal, for people who look things up: which calls were made, and how each ended.
//!
//! In: a tenant, and which of its calls are wanted. Out: records. A foreign tenant sees nothing of them. What this node has
//! noted and not written yet is written first, so that there is one list.

use super::ToolHub;
use crate::{
    backend::{Scan, Scope, StoreError, Table},
    ids::{CallId, Tenant},
    journal::{CallPage, CallQuery, CallQueryError, CallRecord, JournalStats},
};

impl ToolHub {
    /// A page of a tenant's calls, the newest first. Open ones are among them.
    ///
    /// # Errors
    /// When the cursor is not one of the journal's, or the store does not answer.
    pub async fn calls(&self, tenant: &Tenant, query: &CallQuery) -> Result<CallPage, CallQueryError> {
        self.flush_plain().await;
        self.engine.journal.calls(tenant, query, self.now()).await
    }

    /// The record of a call. Calls with effects and calls with a key have one; read-only ones where a store was handed to
    /// the hub. Calls that were refused before their tool ran have none.
    ///
    /// # Errors
    /// When the store does not answer, or the record cannot be read.
    pub async fn call_record(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        self.flush_plain().await;
        let now = self.now();
        // The open ones first: a call that is closed in between is not missed.
        for table in [Table::Open, Table::Calls] {
            let scan = Scan::of(table, Scope::Tenant(tenant.clone())).prefix(call.to_string()).limit(1);
            let page = self.engine.services.store.scan(scan, now).await?;
            if let Some((key, _)) = page.rows.first() {
                return self.engine.journal.record(tenant, key.partition.thread(), call, now).await;
            }
        }
        Ok(None)
    }

    /// What became of the records of plain read-only calls on this hub.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.engine.journal.plain.as_ref().map_or_else(JournalStats::default, |plain| plain.stats())
    }

    /// Writes down what is noted of read-only calls.
    pub(super) async fn flush_plain(&self) {
        if let Some(plain) = &self.engine.journal.plain {
            plain.flush(&self.engine.runtime).await;
        }
    }
}
