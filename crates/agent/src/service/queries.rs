//! Queries and management of runs and conversations: read, cancel, delete.

use std::collections::HashMap;

use toolhub_core::{
    CancellationToken, Status, ThreadError,
    backend::StoreError,
    ids::{RunId, Tenant, ThreadId, ThreadKey},
};

use super::{AgentService, CONTENTION_DELAY, Inner};
use crate::{
    message::Message,
    record::{RunRecord, RunStatus},
    run_store::StoredMessage,
};

/// The result of a request to cancel a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunCancellation {
    /// Cancellation is requested; the run will end soon.
    Requested,
    /// The run had already ended with this status.
    Ended(RunStatus),
    /// The tenant has no such run.
    NotFound,
}

impl AgentService {
    /// The current record of a run.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        let live = active_runs.find(tenant, run).map(|active| active.record_rx.borrow().clone());
        let record = match live {
            Some(record) => Some(record),
            None => run_store.run(tenant, run, hub.now()).await?,
        };
        match record {
            Some(record) => self.refresh_calls(tenant, record).await.map(Some),
            None => Ok(None),
        }
    }

    /// The open run of a thread, whichever process drives it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn open_run(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Option<RunId>, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        if let Some(active) = self.0.active_runs.get(&thread_key) {
            return Ok(Some(active.run));
        }
        let checkout = self.0.run_store.checkout(&thread_key, self.0.hub.now()).await?;
        Ok(checkout.map(|checkout| checkout.open_run.run.id))
    }

    /// The open runs of these threads, whichever process drives them.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn open_runs(
        &self,
        tenant: &Tenant,
        threads: &[ThreadId],
    ) -> Result<HashMap<ThreadId, RunId>, StoreError> {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        let keys: Vec<ThreadKey> = threads.iter().map(|thread| ThreadKey::new(tenant, thread)).collect();
        let mut found = run_store.open_runs(&keys, hub.now()).await?;
        for key in keys {
            if let Some(active) = active_runs.get(&key) {
                found.insert(key.thread, active.run);
            }
        }
        Ok(found)
    }

    /// The runs of a thread, the newest first: at most `limit`, those before `before`. The list ends early at 4 MiB of runs;
    /// the last run is followed by an empty list.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn runs(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        limit: usize,
        before: Option<RunId>,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let mut runs = Vec::new();
        for record in self.0.run_store.runs(&thread_key, limit, before, self.0.hub.now()).await? {
            runs.push(self.refresh_calls(tenant, record).await?);
        }
        Ok(runs)
    }

    /// The runs of all threads of a tenant, the newest first; after this run of that thread, if given.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tenant_runs(
        &self,
        tenant: &Tenant,
        limit: usize,
        before: Option<(RunId, ThreadId)>,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let mut runs = Vec::new();
        for record in self.0.run_store.tenant_runs(tenant, limit, before, self.0.hub.now()).await? {
            runs.push(self.refresh_calls(tenant, record).await?);
        }
        Ok(runs)
    }

    /// Requests cancellation of a run and its calls. The run still ends on its own: as cancelled, or with its result if
    /// that came first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn cancel(&self, tenant: &Tenant, run: RunId) -> Result<RunCancellation, StoreError> {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        loop {
            if let Some(active) = active_runs.find(tenant, run) {
                active.cancel.cancel();
                return Ok(RunCancellation::Requested);
            }
            let Some(record) = run_store.run(tenant, run, hub.now()).await? else {
                return Ok(RunCancellation::NotFound);
            };
            if record.status.is_end() {
                return Ok(RunCancellation::Ended(record.status));
            }
            let thread_key = ThreadKey { tenant: tenant.clone(), thread: record.thread };
            if let Some(permit) = active_runs.try_acquire(&thread_key) {
                // If no process drives it, resume it with a cancelled token, which brings it to a clean end.
                let cancel = CancellationToken::new();
                cancel.cancel();
                if self.resume_open_run(permit, &thread_key, cancel).await? || hub.has_exclusive_store() {
                    return Ok(RunCancellation::Requested);
                }
                return self.cancel_elsewhere(&thread_key, run).await;
            }
            if active_runs.get(&thread_key).is_some_and(|active| active.run != run) {
                return Ok(RunCancellation::Requested);
            }
            // The holder of the permit is just starting or has just ended.
            tokio::time::sleep(CONTENTION_DELAY).await;
        }
    }

    /// Messages of a conversation, the oldest first: at most `limit`, those after the number `after`. Secrets in the
    /// arguments of calls are redacted here, but not for the model.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        limit: usize,
        after: Option<u64>,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let mut messages = self.0.run_store.messages(&thread_key, limit, after, self.0.hub.now()).await?;
        for stored in &mut messages {
            if let Message::Assistant { calls, .. } = &mut stored.message {
                for call in calls {
                    self.0.hub.redact(&mut call.arguments);
                    if let Some(text) = &mut call.malformed {
                        self.0.hub.redact_text(text);
                    }
                    // Opaque data for the provider only.
                    call.extra = None;
                }
            }
        }
        Ok(messages)
    }

    /// Deletes a thread with all its data, and cancels its open run. Returns whether there was such a thread.
    ///
    /// # Errors
    /// When calls run in it, or the store does not answer.
    pub async fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Result<bool, ThreadError> {
        let Inner { hub, active_runs, .. } = &*self.0;
        let deleted = hub.delete_thread(tenant, thread).await?;
        // Otherwise its run would notice only after the next model reply.
        if let Some(active) = active_runs.get(&ThreadKey::new(tenant, thread)) {
            active.cancel.cancel();
        }
        Ok(deleted)
    }

    /// Updates the calls of an open run from the hub: only the hub knows whether they wait.
    pub(super) async fn refresh_calls(&self, tenant: &Tenant, mut record: RunRecord) -> Result<RunRecord, StoreError> {
        if record.status.is_end() {
            return Ok(record);
        }
        let mut is_waiting = false;
        for call in record.calls.iter_mut().filter(|call| !call.status.is_terminal()) {
            if let Some(current) = self.0.hub.call_record_in(tenant, Some(&record.thread), call.id).await? {
                (call.status, call.approval) =
                    (current.status, current.approval.filter(|_| !current.status.is_terminal()));
            }
            call.arguments = self.0.hub.external_arguments(tenant, call.id);
            is_waiting |= call.status == Status::AwaitingApproval || call.arguments.is_some();
        }
        record.status = if is_waiting { RunStatus::Waiting } else { RunStatus::Running };
        Ok(record)
    }
}
