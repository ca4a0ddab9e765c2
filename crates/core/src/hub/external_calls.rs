//! Externally executed calls: hands out their arguments, accepts their results, and waits for the end of any call.
//!
//! In: a tenant, a call id, and for a report its result. Out: that the call ended with it, or a `ReportError`; the record of a
//! call that has ended.

use std::pin::pin;

use futures_util::{StreamExt, future::select, stream::BoxStream};
use serde_json::Value;
use smol_str::SmolStr;

use super::{ToolHub, requests::POLL_INTERVALS};
use crate::{call::ReportError, engine::Engine, journal::CallRecord};
use toolhub_storage::backend::{StoreError, Table, WatchEvent};
use toolhub_types::{
    error::ToolError,
    ids::{CallId, Tenant},
};

impl ToolHub {
    /// The arguments of an external call, with secrets, for the program that executes it. `None` if no such call of the tenant
    /// waits on this node for its [result](Self::report_external_result).
    #[must_use]
    pub fn external_arguments(&self, tenant: &Tenant, call: CallId) -> Option<Value> {
        self.engine.live_calls.find(call).filter(|live| live.head.tenant == *tenant)?.external_arguments()
    }

    /// Reports the result of an [external](super::CallRequest::external) call, on whichever node it runs. The call ends as if its tool had returned this;
    /// its end is in the journal when this returns.
    ///
    /// # Errors
    /// When there is no such call, it is not external, has not started or has already ended; or the store does not answer.
    pub async fn report_external_result(
        &self,
        tenant: &Tenant,
        call: CallId,
        result: Result<Value, ToolError>,
    ) -> Result<(), ReportError> {
        if let Some(live) = self.engine.live_calls.find(call).filter(|live| live.head.tenant == *tenant) {
            return self.report_here(&live, result).await;
        }
        match self.call_record(tenant, call).await? {
            None => Err(ReportError::NotFound),
            Some(CallRecord { outcome: None, thread, .. }) if !self.has_exclusive_store() => {
                self.report_elsewhere(tenant, call, thread.as_ref(), result).await
            }
            Some(CallRecord { outcome: None, .. }) => Err(ReportError::Early),
            Some(CallRecord { external_until: None, .. }) => Err(ReportError::NotExternal),
            Some(_) => Err(ReportError::Late),
        }
    }

    /// Waits until a call on this or another node has ended, and returns its record; `None` if the journal has no such call of
    /// the tenant, for example because it was refused before it was scheduled. If the hub shuts down and leaves the call to
    /// the next start, returns the open record.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn wait_for_call(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        let Engine { live_calls, shutdown, .. } = &*self.engine;
        // Before the record is read, so that its end is not missed. Closing a call removes its open row.
        let mut closed = self.row_removals(Table::OpenCalls, call.into());
        let (mut delay, longest) = POLL_INTERVALS;
        let mut thread = None;
        loop {
            if let Some(live) = live_calls.find(call).filter(|live| live.head.tenant == *tenant) {
                live.wait_ended().await;
            }
            let record = match &thread {
                None => self.call_record(tenant, call).await?,
                // By key: where the call is needs to be found only once.
                Some(thread) => self.call_record_in(tenant, Option::as_ref(thread), call).await?,
            };
            let is_open = record.as_ref().is_some_and(|record| record.outcome.is_none());
            if !is_open || (self.engine.is_shutting_down() && !live_calls.contains(call)) {
                return Ok(record);
            }
            thread = record.map(|record| record.thread);
            let changed = pin!(tokio::time::timeout(delay, closed.next()));
            select(changed, pin!(shutdown.requested())).await;
            delay = (2 * delay).min(longest);
        }
    }

    /// Yields whenever a row with this id may have been removed.
    fn row_removals(&self, table: Table, id: SmolStr) -> BoxStream<'static, ()> {
        let changes = self.engine.services.store.watch(table);
        let removed = move |change: WatchEvent| {
            let is_removed = match change {
                WatchEvent::Row(key, version) => key.id == id && version.is_none(),
                WatchEvent::Lagged => true,
            };
            std::future::ready(is_removed.then_some(()))
        };
        // A watch that has ended must not make the wait a busy one.
        changes.filter_map(removed).chain(futures_util::stream::pending()).boxed()
    }
}
