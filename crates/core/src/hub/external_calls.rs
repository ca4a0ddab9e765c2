//! Calls whose work somebody outside does, and calls somebody else waits for.
//!
//! In: a tenant, a call, and perhaps its result. Out: that the call has ended with it, or why not; or the record of a call,
//! when it has ended.

use std::{pin::pin, time::Duration};

use futures_util::future::select;
use serde_json::Value;

use super::ToolHub;
use crate::{call::ReportError, journal::CallRecord};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    error::{ErrorKind, ToolError},
    ids::{CallId, Tenant},
};

/// How often a call is looked at that runs elsewhere.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl ToolHub {
    /// What somebody outside needs to do the work of a call: its arguments as they are, what is secret included. `None` where no
    /// such call of the tenant waits here for its [result](Self::report_call).
    #[must_use]
    pub fn external_arguments(&self, tenant: &Tenant, call: CallId) -> Option<Value> {
        self.engine.live_calls.find(call).filter(|here| here.head.tenant == *tenant)?.external_arguments()
    }

    /// Tells the result of a call whose work was done [outside](super::CallRequest::external). The call ends as if its tool had
    /// returned this, and has ended, in the journal too, when this is answered.
    ///
    /// # Errors
    /// When there is no such call, it takes no result, or not any more; or the store does not answer.
    pub async fn report_external_result(
        &self,
        tenant: &Tenant,
        call: CallId,
        result: Result<Value, ToolError>,
    ) -> Result<(), ReportError> {
        let Some(here) = self.engine.live_calls.find(call).filter(|here| here.head.tenant == *tenant) else {
            return Err(match self.call_record(tenant, call).await? {
                None => ReportError::NotFound,
                Some(CallRecord { outcome: None, .. }) => ReportError::OnOtherNode,
                Some(CallRecord { external_until: None, .. }) => ReportError::NotExternal,
                Some(_) => ReportError::Late,
            });
        };
        here.report(result)?;
        here.wait_ended().await;
        // Another node may have taken this one for dead, and have ended the call before.
        let end = self.call_record(tenant, call).await.ok().flatten().and_then(|record| record.outcome);
        match end.is_some_and(|end| end.error_kind() == Some(ErrorKind::Interrupted)) {
            true => Err(ReportError::Late),
            false => Ok(()),
        }
    }

    /// Waits for the end of a call that runs here or elsewhere, and answers its record; `None` where the journal has no such call
    /// of the tenant, as with one that was refused before it came to its turn. If the hub goes down and leaves the call
    /// to the next start, the record is answered as it stands.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn wait_for_call(&self, tenant: &Tenant, call: CallId) -> Result<Option<CallRecord>, StoreError> {
        loop {
            if let Some(here) = self.engine.live_calls.find(call).filter(|here| here.head.tenant == *tenant) {
                here.wait_ended().await;
            }
            let record = self.call_record(tenant, call).await?;
            let open = record.as_ref().is_some_and(|record| record.outcome.is_none());
            if !open || (self.engine.is_shutting_down() && !self.engine.live_calls.contains(call)) {
                return Ok(record);
            }
            let (rest, leaving) = (pin!(tokio::time::sleep(POLL_INTERVAL)), pin!(self.engine.shutdown.requested()));
            select(rest, leaving).await;
        }
    }
}
