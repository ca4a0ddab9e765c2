//! Doors 3 and 10, and the report: a tool that is withheld is not called, and every call tells how its tool did.
//!
//! In: what `statuses` knows. Out: a refusal with its reason and the time to wait; at its turn the call's standing, with
//! the permit where it is the probe of a tool on probation. What anything means is decided by `status`.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;

use super::{
    Done, Found, Placed,
    admission::{self},
    time_limit,
};
use crate::{
    execution::{CallEnvelope, CallSlot},
    services::Services,
    statuses::{ProbeGuard, Statuses, Verdict},
};
use toolhub_storage::clock;
use toolhub_types::{
    error::{CallError, ErrorKind},
    language::Language,
    outcome::Outcome,
    status::{Admission, Reason, StatusEvent},
};

/// How long a call waits for the answer of somebody else's probe.
const PROBE_WAIT: Duration = Duration::from_secs(2);
/// How much longer than the call a permit lasts: a prober that died blocks nobody for long.
/// Three waits for a slow store fit into it.
const PROBE_LEASE_MARGIN: Duration = Duration::from_secs(45);

/// Before anything else is looked at: is the tool withheld? Refused early, a call costs nothing.
pub(super) fn pre_check(statuses: &Arc<Statuses>, found: &Found) -> Result<(), CallError> {
    match admit(statuses, &found.0) {
        Admission::Refuse { kind, reason, retry_after } => Err(withheld_error(&found.0, kind, &reason, retry_after)),
        Admission::Pass | Admission::Probe { .. } | Admission::WaitForProbe => Ok(()),
    }
}

/// Now that it is the call's turn: may it still run, and is it the probe of a tool on probation?
/// Waits only where some tool has a record.
pub(super) fn gate<'a>(
    statuses: &'a Arc<Statuses>,
    services: &'a Services,
    placed: &'a mut Placed,
) -> Option<BoxFuture<'a, Result<(), CallError>>> {
    if statuses.is_empty() && placed.envelope.tool.disabled.is_none() {
        return None;
    }
    Some(Box::pin(async move {
        let slot = std::mem::take(&mut placed.slot);
        let (standing, slot) = acquire_probe_guard(statuses, services, &placed.envelope, slot).await?;
        (placed.slot, placed.probe_guard) = (slot, Some(Box::new(standing)));
        Ok(())
    }))
}

async fn acquire_probe_guard(
    statuses: &Arc<Statuses>,
    services: &Services,
    envelope: &CallEnvelope,
    slot: CallSlot,
) -> Result<(ProbeGuard, CallSlot), CallError> {
    let patience = clock::deadline_after(services.clock.instant(), PROBE_WAIT);
    let mut slot = Some(slot);
    loop {
        let mut news = pin!(statuses.next_change());
        news.as_mut().enable();
        let standing = probe_guard(statuses, envelope);
        let admission = admit(statuses, envelope);
        // To be turned away or to wait on takes no slot. Waiting for one takes time, and then it is looked again.
        if slot.is_none() && matches!(admission, Admission::Pass | Admission::Probe { .. }) {
            let in_time = clock::deadline_after(services.clock.instant(), envelope.tool.limits.queue_timeout);
            slot = Some(admission::reacquire_slot(services, envelope, in_time).await?);
            continue;
        }
        match admission {
            Admission::Pass => return Ok((standing, slot.unwrap_or_default())),
            Admission::Refuse { kind, reason, retry_after } => {
                return Err(withheld_error(envelope, kind, &reason, retry_after));
            }
            Admission::Probe { thread, shared } => {
                let lease = time_limit(envelope).saturating_add(PROBE_LEASE_MARGIN);
                let event = StatusEvent::ProbeTaken { id: envelope.call.id, lease };
                if let Some(standing) = standing.acquire_probe_permits(event, thread, shared).await? {
                    return Ok((standing, slot.unwrap_or_default()));
                }
            }
            Admission::WaitForProbe => {}
        }
        let left = patience.saturating_duration_since(services.clock.instant());
        if left.is_zero() {
            let kind = ErrorKind::ToolFailedStatus;
            return Err(withheld_error(envelope, kind, &Reason::OnProbation, Some(PROBE_WAIT)));
        }
        // Others can use the slot meanwhile; a broken tool must not slow down the rest.
        slot = None;
        wait_for_change(tokio::time::timeout(left, news), envelope).await?;
    }
}

/// Waits for news of the tool, or for the caller to give up.
async fn wait_for_change<T>(news: impl Future<Output = T>, envelope: &CallEnvelope) -> Result<(), CallError> {
    match &envelope.call.cancel {
        None => drop(news.await),
        Some(cancel) => {
            if cancel.run_until_cancelled(news).await.is_none() {
                return Err(CallError::new(ErrorKind::Cancelled));
            }
        }
    }
    Ok(())
}

fn admit(statuses: &Arc<Statuses>, envelope: &CallEnvelope) -> Admission {
    let (name, whose) = (&envelope.tool.definition.name, (&envelope.call.tenant, envelope.call.thread.as_ref()));
    match envelope.tool.presence_override() {
        None => statuses.admit(name, whose.0, whose.1),
        Some(absent) => statuses.admit_with_presence(name, whose, &absent),
    }
}

fn probe_guard(statuses: &Arc<Statuses>, envelope: &CallEnvelope) -> ProbeGuard {
    ProbeGuard::new(
        statuses,
        envelope.call.id,
        &envelope.tool.definition.name,
        &envelope.call.tenant,
        envelope.call.thread.as_ref(),
    )
}

fn withheld_error(
    envelope: &CallEnvelope,
    kind: ErrorKind,
    reason: &Reason,
    retry_after: Option<Duration>,
) -> CallError {
    let (name, why) = (&envelope.tool.definition.name, reason.text(Language::English));
    let mut error = CallError::new(kind).operator(format!("`{name}` is withheld: {why}"));
    error.retry_after = retry_after;
    error
}

/// What there is to tell about the tool once the call is closed; nothing for most calls.
pub(super) fn verdict(statuses: &Arc<Statuses>, done: &mut Done) -> Option<Box<(ProbeGuard, Verdict)>> {
    let verdict = Verdict::from_result(&done.result, statuses);
    let standing = match done.probe_guard.take() {
        Some(standing) => standing,
        // Admitted when no tool had a record; meanwhile one may.
        None if matches!(verdict, Verdict::Failed(..)) || !statuses.is_empty() || statuses.weighs_successes() => {
            let CallEnvelope { call, tool, .. } = done.context.envelope();
            let name = &tool.definition.name;
            Box::new(ProbeGuard::new_unrecorded(statuses, call.id, name, &call.tenant, call.thread.as_ref()))
        }
        None => return None,
    };
    (!standing.is_no_op(&verdict)).then(|| Box::new((*standing, verdict)))
}

/// Tells the tool's records how the call went, on a task of its own: a caller that goes away now must not cut it short.
pub(super) async fn report_verdict(
    runtime: &tokio::runtime::Handle,
    verdict: Box<(ProbeGuard, Verdict)>,
    outcome: Box<Outcome>,
) -> Box<Outcome> {
    let telling = runtime.spawn(async move {
        let (standing, verdict) = *verdict;
        // The call is closed and its outcome stands. If the store does not answer, the tool keeps the status it has.
        let _ = standing.report(verdict).await;
    });
    let _ = telling.await;
    outcome
}
