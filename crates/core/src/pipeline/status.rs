//! Stages 3 and 10: the circuit breaker. Refuses calls of withheld tools, and reports each result to the tool's status.
//!
//! In: the records of `statuses`. Out: a refusal with reason and retry delay; at stage 10 the call's probe guard, which
//! holds the probe permit if the call is the half-open probe of a tool on probation. `status` decides the transitions.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;

use super::{Done, Found, Placed, admission, time_limit};
use crate::{
    execution::{CallEnvelope, CallSlot},
    link::Link,
    services::Services,
    statuses::{HealthVerdict, ProbeGuard, Statuses},
};
use toolhub_storage::clock;
use toolhub_types::{
    error::{CallError, ErrorKind},
    language::Language,
    outcome::Outcome,
    status::{Admission, Reason, StatusEvent},
};

/// How long a call waits for the result of another call's probe.
const PROBE_WAIT: Duration = Duration::from_secs(2);
/// How much longer than the call a probe permit is leased: a probing process that died does not block other calls for
/// long. Three timeouts of a slow store fit into it.
const PROBE_LEASE_MARGIN: Duration = Duration::from_secs(45);

/// Refuses a call of a withheld tool early, before it costs anything.
pub(super) fn pre_check(statuses: &Arc<Statuses>, found: &Found) -> Result<(), CallError> {
    match admit(statuses, &found.0) {
        Admission::Refuse { kind, reason, retry_after } => Err(withheld_error(&found.0, kind, &reason, retry_after)),
        Admission::Pass | Admission::Probe { .. } | Admission::WaitForProbe => Ok(()),
    }
}

/// Checks the tool's status again, now that the call holds a slot, and takes the probe permit of a tool on probation.
/// Returns a future only if some tool has a record.
pub(super) fn gate<'a>(
    statuses: &'a Arc<Statuses>,
    services: &'a Services,
    placed: &'a mut Placed,
) -> Option<BoxFuture<'a, Result<(), CallError>>> {
    if statuses.is_empty() && placed.envelope.tool.is_present() {
        return None;
    }
    Some(Box::pin(async move {
        let slot = std::mem::take(&mut placed.slot);
        let (probe_guard, slot) = acquire_probe_guard(statuses, services, &placed.envelope, slot).await?;
        (placed.slot, placed.probe_guard) = (slot, Some(Box::new(probe_guard)));
        Ok(())
    }))
}

async fn acquire_probe_guard(
    statuses: &Arc<Statuses>,
    services: &Services,
    envelope: &CallEnvelope,
    slot: CallSlot,
) -> Result<(ProbeGuard, CallSlot), CallError> {
    let wait_until = clock::deadline_after(services.clock.instant(), PROBE_WAIT);
    let mut slot = Some(slot);
    loop {
        let mut change = pin!(statuses.next_change());
        change.as_mut().enable();
        let guard = probe_guard(statuses, envelope);
        let admission = admit(statuses, envelope);
        // A refusal or another wait needs no slot. Reacquiring one takes time, so the status is checked again
        // afterwards.
        if slot.is_none() && matches!(admission, Admission::Pass | Admission::Probe { .. }) {
            let deadline = clock::deadline_after(services.clock.instant(), envelope.tool.limits.queue_timeout);
            slot = Some(admission::reacquire_slot(services, envelope, deadline).await?);
            continue;
        }
        match admission {
            Admission::Pass => return Ok((guard, slot.unwrap_or_default())),
            Admission::Refuse { kind, reason, retry_after } => {
                return Err(withheld_error(envelope, kind, &reason, retry_after));
            }
            Admission::Probe { thread, shared } => {
                let lease = time_limit(envelope).saturating_add(PROBE_LEASE_MARGIN);
                let event = StatusEvent::ProbeTaken { id: envelope.call.id, lease };
                if let Some(guard) = guard.acquire_probe_permits(event, thread, shared).await? {
                    return Ok((guard, slot.unwrap_or_default()));
                }
            }
            Admission::WaitForProbe => {}
        }
        let reconnect_deadline = envelope.tool.link.as_ref().and_then(Link::reconnect_deadline);
        let wait_until = reconnect_deadline.map_or(wait_until, |deadline| deadline.min(wait_until));
        let remaining = wait_until.saturating_duration_since(services.clock.instant());
        if remaining.is_zero() {
            return Err(match evaluate(statuses, envelope) {
                Admission::Refuse { kind, reason, retry_after } => withheld_error(envelope, kind, &reason, retry_after),
                _ => withheld_error(envelope, ErrorKind::ToolFailedStatus, &Reason::OnProbation, Some(PROBE_WAIT)),
            });
        }
        // Release the slot during the wait, so that a broken tool does not hold up other calls.
        slot = None;
        wait_for_change(tokio::time::timeout(remaining, change), envelope).await?;
    }
}

/// Waits for a status change or for the caller's cancellation.
async fn wait_for_change<T>(change: impl Future<Output = T>, envelope: &CallEnvelope) -> Result<(), CallError> {
    match &envelope.call.cancel {
        None => drop(change.await),
        Some(cancel) => {
            if cancel.run_until_cancelled(change).await.is_none() {
                return Err(CallError::new(ErrorKind::Cancelled));
            }
        }
    }
    Ok(())
}

/// Like [`evaluate`], but a call of a tool whose service was just lost waits for it to come back.
fn admit(statuses: &Arc<Statuses>, envelope: &CallEnvelope) -> Admission {
    let admission = evaluate(statuses, envelope);
    if let Admission::Refuse { reason: Reason::Disconnected { .. }, .. } = admission {
        let deadline = envelope.tool.link.as_ref().and_then(Link::reconnect_deadline);
        if deadline.is_none_or(|deadline| envelope.tool.services.clock.instant() < deadline) {
            return Admission::WaitForProbe;
        }
    }
    admission
}

fn evaluate(statuses: &Arc<Statuses>, envelope: &CallEnvelope) -> Admission {
    let (name, scope) = (&envelope.tool.definition.name, (&envelope.call.tenant, envelope.call.thread.as_ref()));
    match envelope.tool.presence_override() {
        None => statuses.admit(name, scope.0, scope.1),
        Some(presence) => statuses.admit_with_presence(name, scope, &presence),
    }
}

fn probe_guard(statuses: &Arc<Statuses>, envelope: &CallEnvelope) -> ProbeGuard {
    ProbeGuard::new(
        statuses,
        envelope.call.id,
        &envelope.tool.definition.name,
        &envelope.call.tenant,
        envelope.call.named_thread(),
    )
}

fn withheld_error(
    envelope: &CallEnvelope,
    kind: ErrorKind,
    reason: &Reason,
    retry_after: Option<Duration>,
) -> CallError {
    let (name, is_probing) = (&envelope.tool.definition.name, *reason == Reason::OnProbation);
    let (reason, now) = (reason.text(Language::English), envelope.tool.services.clock.now());
    let text = match (kind, retry_after) {
        // The reason begins with the word.
        (ErrorKind::ToolMaintenance, _) => format!("`{name}` is {reason}"),
        (ErrorKind::ToolUnavailable, _) => format!("`{name}` is unavailable: {reason}"),
        (_, Some(time)) if !is_probing => format!("`{name}` is withheld until {}: {reason}", now + time),
        _ => format!("`{name}` is withheld: {reason}"),
    };
    let mut error = CallError::new(kind).operator(text);
    error.retry_after = retry_after;
    error
}

/// The report for the tool's status once the call is closed; none for most calls.
pub(super) fn verdict(statuses: &Arc<Statuses>, done: &mut Done) -> Option<Box<(ProbeGuard, HealthVerdict)>> {
    let verdict = HealthVerdict::from_result(&done.result, statuses);
    let is_external = done.context.envelope().call.external.is_some();
    let verdict = if is_external { verdict.of_external_call() } else { verdict };
    let probe_guard = match done.probe_guard.take() {
        Some(probe_guard) => probe_guard,
        // No tool had a record when the call was admitted; by now one may have.
        None if matches!(verdict, HealthVerdict::Failed(..) | HealthVerdict::FailedExternally(..))
            || !statuses.is_empty()
            || statuses.tracks_failure_rate() =>
        {
            let CallEnvelope { call, tool, .. } = done.context.envelope();
            let name = &tool.definition.name;
            Box::new(ProbeGuard::new_unrecorded(statuses, call.id, name, &call.tenant, call.named_thread()))
        }
        None => return None,
    };
    (!probe_guard.is_no_op(&verdict)).then(|| Box::new((*probe_guard, verdict)))
}

/// Reports the result to the tool's status, on a task of its own, so that a caller that is dropped now does not abort
/// it.
pub(super) async fn report_verdict(
    runtime: &tokio::runtime::Handle,
    verdict: Box<(ProbeGuard, HealthVerdict)>,
    outcome: Box<Outcome>,
) -> Box<Outcome> {
    let reporting = runtime.spawn(async move {
        let (probe_guard, verdict) = *verdict;
        // The call is closed and its outcome is final. If the store does not answer, the tool keeps its current status.
        let _ = probe_guard.report(verdict).await;
    });
    let _ = reporting.await;
    outcome
}
