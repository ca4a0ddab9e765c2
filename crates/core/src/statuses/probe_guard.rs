//! A call's standing with the tool's records: what it was admitted on, and what its result is told to.

use std::sync::Arc;

use super::{StatusKey, Statuses};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    error::{CountsAsFailure, ErrorKind, ToolError},
    ids::{CallId, Tenant, ThreadId, ThreadKey},
    status::{
        FailureContext, HealthSignal, StatusEvent, StatusRecord, ThreadFingerprint, counts_as_failure, failure_targets,
    },
    tool::ToolName,
};

/// How a call stands with the records of its tool. Dropped before its result was told, it gives its permits back.
pub(crate) struct ProbeGuard {
    statuses: Arc<Statuses>,
    /// The call, for the permits it holds; none for a result from elsewhere.
    call: Option<CallId>,
    shared: RecordRef,
    thread: Option<RecordRef>,
}

/// One record, as it was when the call was admitted.
struct RecordRef {
    key: StatusKey,
    /// None for a result from elsewhere: it speaks of the present.
    epoch: Option<u64>,
    is_probe: bool,
}

/// What an execution says about its tool.
pub(crate) enum Verdict {
    /// It did what it should.
    Success,
    /// It answered with a failure.
    Failed(FailureDetails),
    /// It answered in a way that does not speak against it.
    Uncounted,
    /// It was not reached, or cut off by the caller.
    Inconclusive,
}

/// How an execution failed.
pub(crate) struct FailureDetails {
    kind: ErrorKind,
    text: String,
    /// It failed while connecting.
    connecting: bool,
}

impl Verdict {
    pub(crate) fn from_result<T>(result: &Result<T, ToolError>, statuses: &Statuses) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(error) if error.kind().row().counts == CountsAsFailure::No => Self::Inconclusive,
            // Whoever did not wait long enough has heard nothing.
            Err(error) if error.kind() == ErrorKind::Timeout && error.counts == Some(false) => Self::Inconclusive,
            Err(error) if error.counts != Some(false) && counts_as_failure(error.kind(), &statuses.settings()) => {
                Self::Failed(FailureDetails {
                    kind: error.kind(),
                    text: error.to_string(),
                    connecting: error.connecting,
                })
            }
            Err(_) => Self::Uncounted,
        }
    }
}

impl ProbeGuard {
    /// The standing of a call that is admitted now.
    pub(crate) fn new(
        statuses: &Arc<Statuses>,
        call: CallId,
        tool: &ToolName,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
    ) -> Self {
        let epoch = |whose: &StatusKey| Some(statuses.facts(whose).map_or(0, |facts| facts.epoch));
        Self::build(statuses, Some(call), tool, thread.map(|thread| (tenant, thread)), epoch)
    }

    /// The standing of a call that was admitted when no tool had a record.
    pub(crate) fn new_unrecorded(
        statuses: &Arc<Statuses>,
        call: CallId,
        tool: &ToolName,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
    ) -> Self {
        Self::build(statuses, Some(call), tool, thread.map(|thread| (tenant, thread)), |_| Some(0))
    }

    /// The standing of an execution that somebody else made.
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
        let stake = |whose: StatusKey| RecordRef { epoch: epoch(&whose), key: whose, is_probe: false };
        let thread = thread.map(|(tenant, thread)| stake(StatusKey::thread(tool, tenant, thread)));
        Self { statuses: statuses.clone(), call, shared: stake(StatusKey::shared(tool)), thread }
    }

    /// Takes the permits to probe; answers itself if it got all it asked for. On a task of its own: a store may write a
    /// permit down although nobody waits for its answer any more, and then somebody must be there to give it back.
    pub(crate) async fn acquire_probe_permits(
        mut self,
        event: StatusEvent,
        thread: bool,
        shared: bool,
    ) -> Result<Option<Self>, StoreError> {
        let runtime = self.statuses.runtime.clone();
        let taking =
            runtime.spawn(async move { self.acquire(&event, thread, shared).await.map(|all| all.then_some(self)) });
        taking.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its runtime has stopped".into())))
    }

    /// Says whether it got all permits it asked for. What it got it gives back when dropped.
    async fn acquire(&mut self, event: &StatusEvent, thread: bool, shared: bool) -> Result<bool, StoreError> {
        let Self { statuses, call, .. } = self;
        let wanted = [(shared, Some(&mut self.shared)), (thread, self.thread.as_mut())];
        for stake in wanted.into_iter().filter_map(|(wanted, stake)| stake.filter(|_| wanted)) {
            // Said before it is known: if the store's answer is lost, the permit may have been taken all the same, and giving
            // back one that somebody else holds does nothing.
            stake.is_probe = true;
            let facts = statuses.apply(&stake.key, event).await?;
            stake.is_probe = call.is_some_and(|call| facts.is_probe_held_by(call));
            stake.epoch = Some(facts.epoch);
            if !stake.is_probe {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether telling the verdict would change nothing worth writing down.
    pub(crate) fn is_no_op(&self, verdict: &Verdict) -> bool {
        let settings = self.statuses.settings();
        let rests =
            |stake: &RecordRef| self.statuses.facts(&stake.key).unwrap_or_default().is_unchanged_by_success(&settings);
        let calm = matches!(verdict, Verdict::Success | Verdict::Uncounted | Verdict::Inconclusive);
        calm && !self.is_probe() && rests(&self.shared) && self.thread.as_ref().is_none_or(rests)
    }

    /// Whether its call is the probe of a record.
    pub(crate) fn is_probe(&self) -> bool {
        self.shared.is_probe || self.thread.as_ref().is_some_and(|stake| stake.is_probe)
    }

    /// Tells the records what the call says about its tool. Without an answer, dropping this gives the permits back.
    pub(crate) async fn report(mut self, verdict: Verdict) -> Result<(), StoreError> {
        let (thread, shared) = match verdict {
            Verdict::Inconclusive => return Ok(()),
            Verdict::Success => (HealthSignal::Success, HealthSignal::Success),
            Verdict::Uncounted => (HealthSignal::Uncounted, HealthSignal::Uncounted),
            Verdict::Failed(failing) => self.attribute_failure(failing).await?,
        };
        let statuses = self.statuses.clone();
        let stakes = [(Some(&mut self.shared), shared), (self.thread.as_mut(), thread)];
        for (stake, answer) in stakes {
            let Some(stake) = stake else { continue };
            // A success of a tool nobody has a record of is not worth one, unless successes are weighed too.
            if answer != HealthSignal::Success || statuses.weighs_successes() || statuses.facts(&stake.key).is_some() {
                statuses.apply(&stake.key, &StatusEvent::CallEnded { signal: answer, epoch: stake.epoch }).await?;
            }
            stake.is_probe = false;
        }
        Ok(())
    }

    /// What a failure means for the thread's record and for everybody's.
    async fn attribute_failure(&self, failing: FailureDetails) -> Result<(HealthSignal, HealthSignal), StoreError> {
        let FailureDetails { kind, text, connecting } = failing;
        let sufferer = self.thread.as_ref().and_then(|stake| stake.key.owner());
        let sufferer = sufferer.map(|ThreadKey { tenant, thread }| ThreadFingerprint::new(tenant, thread));
        let mut shared = self.statuses.facts(&self.shared.key).unwrap_or_default();
        if let (ErrorKind::Timeout, Some(by)) = (kind, sufferer.clone()) {
            shared = self.statuses.apply(&self.shared.key, &StatusEvent::TimedOut { by }).await?;
        }
        // A result from elsewhere speaks of the present: where a record is on probation, it is as good as a probe.
        let tries = |stake: &RecordRef| {
            let facts = self.statuses.facts(&stake.key).unwrap_or_default();
            stake.is_probe || (self.call.is_none() && facts.breaker.is_on_probation(self.statuses.clock.now()))
        };
        let circumstances = FailureContext {
            thread: sufferer,
            connecting,
            probes_thread: self.thread.as_ref().is_some_and(tries),
            probes_shared: tries(&self.shared),
        };
        let counting = failure_targets(kind, &circumstances, &shared as &StatusRecord, &self.statuses.settings());
        let answer = |counts| {
            if counts { HealthSignal::Failure { kind, text: text.clone() } } else { HealthSignal::Uncounted }
        };
        Ok((answer(counting.thread), answer(counting.shared)))
    }
}

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        for stake in [Some(&self.shared), self.thread.as_ref()].into_iter().flatten().filter(|stake| stake.is_probe) {
            if let Some(call) = self.call {
                self.statuses.return_probe_permit(stake.key.clone(), call);
            }
        }
    }
}
