//! Links a call to the status records of its tool: holds its probe permits and reports its result.
//!
//! In: the records at admission, and the verdict of the execution. Out: status events. Dropping the guard without a
//! report returns the permits. `statuses.rs` stores the records.

use std::sync::Arc;

use super::{StatusKey, Statuses};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    error::{CountsAsFailure, ErrorKind, FailureScope, ToolError},
    ids::{CallId, Tenant, ThreadId, ThreadKey},
    status::{
        Breaker, FailureContext, HealthSignal, StatusEvent, StatusRecord, ThreadFingerprint, counts_as_failure,
        failure_targets,
    },
    tool::ToolName,
};

/// The link of a call to the records of its tool. Dropped without a report, it returns its probe permits.
pub(crate) struct ProbeGuard {
    statuses: Arc<Statuses>,
    /// The call, for the permits it holds; `None` for an external result.
    call: Option<CallId>,
    shared: RecordRef,
    thread: Option<RecordRef>,
}

/// One record, with its epoch at admission.
struct RecordRef {
    key: StatusKey,
    /// `None` for an external result, which applies to the current epoch.
    epoch: Option<u64>,
    is_probe: bool,
}

/// What an execution shows about the health of its tool.
pub(crate) enum HealthVerdict {
    /// The tool succeeded.
    Success,
    /// The tool failed.
    Failed(FailureDetails),
    /// An external call failed or was not answered. The hub did not see the tool, so that counts in the call's thread only:
    /// other threads and tenants must not lose a tool because of a worker that they do not use.
    FailedExternally(FailureDetails),
    /// The tool returned an error that does not count as a failure.
    Uncounted,
    /// The tool was not reached, or the caller cancelled the call.
    Inconclusive,
}

/// How an execution failed.
pub(crate) struct FailureDetails {
    kind: ErrorKind,
    text: String,
    /// Whether it failed while connecting.
    connecting: bool,
    of_thread: bool,
}

impl HealthVerdict {
    pub(crate) fn from_result<T>(result: &Result<T, ToolError>, statuses: &Statuses) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(error) if error.kind().row().counts == CountsAsFailure::No => Self::Inconclusive,
            // The caller's own timeout was too short to show anything about the tool.
            Err(error) if error.kind() == ErrorKind::Timeout && error.counts == Some(false) => Self::Inconclusive,
            Err(error) if error.counts != Some(false) && counts_as_failure(error.kind(), &statuses.settings()) => {
                Self::Failed(FailureDetails {
                    kind: error.kind(),
                    text: error.to_string(),
                    connecting: error.connecting,
                    of_thread: error.of_thread,
                })
            }
            Err(_) => Self::Uncounted,
        }
    }
}

impl HealthVerdict {
    /// The verdict of an external call with this one. A worker that may report failures of upstream services for all
    /// threads is believed.
    pub(crate) fn of_external_call(self) -> Self {
        match self {
            Self::Failed(failure) if failure.kind.row().scope != FailureScope::Shared => {
                Self::FailedExternally(failure)
            }
            verdict => verdict,
        }
    }
}

impl ProbeGuard {
    /// The guard of a call that is admitted now.
    pub(crate) fn new(
        statuses: &Arc<Statuses>,
        call: CallId,
        tool: &ToolName,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
    ) -> Self {
        let epoch = |key: &StatusKey| Some(statuses.facts(key).map_or(0, |facts| facts.epoch));
        Self::build(statuses, Some(call), tool, thread.map(|thread| (tenant, thread)), epoch)
    }

    /// The guard of a call that was admitted when no tool had a record.
    pub(crate) fn new_unrecorded(
        statuses: &Arc<Statuses>,
        call: CallId,
        tool: &ToolName,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
    ) -> Self {
        Self::build(statuses, Some(call), tool, thread.map(|thread| (tenant, thread)), |_| Some(0))
    }

    /// The guard of an execution outside the hub.
    pub(crate) fn for_external_result(
        statuses: &Arc<Statuses>,
        tool: &ToolName,
        thread: Option<(&Tenant, &ThreadId)>,
    ) -> Self {
        Self::build(statuses, None, tool, thread, |_| None)
    }

    fn build(
        statuses: &Arc<Statuses>,
        call: Option<CallId>,
        tool: &ToolName,
        thread: Option<(&Tenant, &ThreadId)>,
        epoch: impl Fn(&StatusKey) -> Option<u64>,
    ) -> Self {
        let record_ref = |key: StatusKey| RecordRef { epoch: epoch(&key), key, is_probe: false };
        let thread = thread.map(|(tenant, thread)| record_ref(StatusKey::thread(tool, tenant, thread)));
        Self { statuses: statuses.clone(), call, shared: record_ref(StatusKey::shared(tool)), thread }
    }

    /// Acquires the probe permits; returns the guard if it got all of them. Runs in a separate task: the store may
    /// commit a permit after the caller stopped waiting, and then the guard must still be there to return it.
    pub(crate) async fn acquire_probe_permits(
        mut self,
        event: StatusEvent,
        thread: bool,
        shared: bool,
    ) -> Result<Option<Self>, StoreError> {
        let runtime = self.statuses.runtime.clone();
        let task =
            runtime.spawn(async move { self.acquire(&event, thread, shared).await.map(|all| all.then_some(self)) });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the async runtime has stopped".into())))
    }

    /// Returns whether it got all requested permits. The guard returns those it got on drop.
    async fn acquire(&mut self, event: &StatusEvent, thread: bool, shared: bool) -> Result<bool, StoreError> {
        let Self { statuses, call, .. } = self;
        let records = [(shared, Some(&mut self.shared)), (thread, self.thread.as_mut())];
        for record in records.into_iter().filter_map(|(requested, record)| record.filter(|_| requested)) {
            // Set before the write: if the store's response is lost, the permit may be taken nevertheless, and
            // returning one that another call holds has no effect.
            record.is_probe = true;
            let facts = statuses.apply(&record.key, event).await?;
            record.is_probe = call.is_some_and(|call| facts.is_probe_held_by(call));
            record.epoch = Some(facts.epoch);
            if !record.is_probe {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether reporting the verdict would change no record.
    pub(crate) fn is_no_op(&self, verdict: &HealthVerdict) -> bool {
        let settings = self.statuses.settings();
        let is_unchanged = |record: &RecordRef| {
            self.statuses.facts(&record.key).unwrap_or_default().is_unchanged_by_success(&settings)
        };
        let is_no_failure =
            matches!(verdict, HealthVerdict::Success | HealthVerdict::Uncounted | HealthVerdict::Inconclusive);
        is_no_failure && !self.is_probe() && is_unchanged(&self.shared) && self.thread.as_ref().is_none_or(is_unchanged)
    }

    /// Whether its call is the probe of a record.
    pub(crate) fn is_probe(&self) -> bool {
        self.shared.is_probe || self.thread.as_ref().is_some_and(|record| record.is_probe)
    }

    /// Reports the verdict to the records. If the store fails, dropping the guard returns the permits.
    pub(crate) async fn report(mut self, verdict: HealthVerdict) -> Result<(), StoreError> {
        let (thread, shared) = match verdict {
            HealthVerdict::Inconclusive => return Ok(()),
            HealthVerdict::FailedExternally(failure) => return self.report_to_thread(failure).await,
            HealthVerdict::Success => (HealthSignal::Success, HealthSignal::Success),
            HealthVerdict::Uncounted => (HealthSignal::Uncounted, HealthSignal::Uncounted),
            HealthVerdict::Failed(failure) => self.attribute_failure(failure).await?,
        };
        let concerns = [self.concerns_shared(&shared), self.concerns_own(&thread)];
        let statuses = self.statuses.clone();
        let records = [(Some(&mut self.shared), shared), (self.thread.as_mut(), thread)];
        for ((record, signal), is_concerned) in records.into_iter().zip(concerns) {
            let Some(record) = record else { continue };
            if is_concerned {
                statuses.apply(&record.key, &StatusEvent::CallEnded { signal, epoch: record.epoch }).await?;
            }
            record.is_probe = false;
        }
        Ok(())
    }

    /// Reports a failure to the thread's record only. Dropping the guard returns a shared permit: its probe shows nothing.
    async fn report_to_thread(&mut self, failure: FailureDetails) -> Result<(), StoreError> {
        let FailureDetails { kind, text, .. } = failure;
        if let Some(record) = &mut self.thread {
            let signal = HealthSignal::Failure { kind, text };
            self.statuses.apply(&record.key, &StatusEvent::CallEnded { signal, epoch: record.epoch }).await?;
            record.is_probe = false;
        }
        Ok(())
    }

    /// Whether a signal goes to the record of the result's own scope: the thread's, or the shared one without a thread. A success
    /// creates no record, unless successes count for the failure rate, or it was reported from outside: that one is not in the
    /// journal.
    fn concerns_own(&self, signal: &HealthSignal) -> bool {
        let own = self.thread.as_ref().unwrap_or(&self.shared);
        *signal != HealthSignal::Success
            || self.call.is_none()
            || self.statuses.tracks_failure_rate()
            || self.statuses.facts(&own.key).is_some()
    }

    /// Whether a signal goes to the shared record. From a thread it does only if it changes what counts there: other threads and
    /// tenants see that record. A report from outside must not end a shared probation either, because no probe was made.
    fn concerns_shared(&self, signal: &HealthSignal) -> bool {
        if self.thread.is_none() {
            return self.concerns_own(signal);
        }
        let facts = self.statuses.facts(&self.shared.key).unwrap_or_default();
        let may_change = self.call.is_some() || facts.breaker == Breaker::Closed;
        match signal {
            HealthSignal::Failure { .. } => true,
            HealthSignal::Success => may_change && !facts.is_unchanged_by_success(&self.statuses.settings()),
            HealthSignal::Uncounted => may_change,
        }
    }

    /// Decides whether a failure counts for the thread's record and for the shared one.
    async fn attribute_failure(&self, failure: FailureDetails) -> Result<(HealthSignal, HealthSignal), StoreError> {
        let FailureDetails { kind, text, connecting, of_thread } = failure;
        let owner = self.thread.as_ref().and_then(|record| record.key.owner());
        let fingerprint = owner.map(|ThreadKey { tenant, thread }| ThreadFingerprint::new(tenant, thread));
        let mut shared = self.statuses.facts(&self.shared.key).unwrap_or_default();
        if let (ErrorKind::Timeout, Some(by)) = (kind, fingerprint.clone()) {
            shared = self.statuses.apply(&self.shared.key, &StatusEvent::TimedOut { by }).await?;
        }
        // An external result is always current: for a record on probation it counts like a probe.
        let is_probing = |record: &RecordRef| {
            let facts = self.statuses.facts(&record.key).unwrap_or_default();
            record.is_probe || (self.call.is_none() && facts.breaker.is_on_probation(self.statuses.clock.now()))
        };
        let context = FailureContext {
            thread: fingerprint,
            connecting,
            of_thread,
            probes_thread: self.thread.as_ref().is_some_and(is_probing),
            probes_shared: is_probing(&self.shared),
        };
        let targets = failure_targets(kind, &context, &shared as &StatusRecord, &self.statuses.settings());
        let signal = |counts| {
            if counts { HealthSignal::Failure { kind, text: text.clone() } } else { HealthSignal::Uncounted }
        };
        Ok((signal(targets.thread), signal(targets.shared)))
    }
}

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        let records = [Some(&self.shared), self.thread.as_ref()].into_iter().flatten();
        for record in records.filter(|record| record.is_probe) {
            if let Some(call) = self.call {
                self.statuses.return_probe_permit(record.key.clone(), call);
            }
        }
    }
}
