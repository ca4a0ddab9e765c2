//! Admission decision of the circuit breaker for one call.
//!
//! In: the thread's and the shared record, and the readiness of the tool. Out: pass, probe, wait for a probe, or a refusal
//! with its kind. The caller takes the probe lease (a compare-and-set of `StatusEvent::ProbeTaken` on each record
//! named), waits for a running probe, and asks again afterwards.

use std::time::Duration;

use super::{Readiness, Reason, StatusRecord, StatusSettings, ToolStatus, evaluate, worst};
use crate::{error::ErrorKind, timestamp::Timestamp};

/// The admission decision for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The call may run.
    Pass,
    /// The call may run as the probe, once it holds the probe lease of each record named here.
    Probe {
        /// The thread's record is on probation.
        thread: bool,
        /// The shared record is on probation.
        shared: bool,
    },
    /// Another call is probing; its result decides.
    WaitForProbe,
    /// The call may not run.
    Refuse {
        /// The kind of the refusal.
        kind: ErrorKind,
        /// The reason.
        reason: Reason,
        /// How long to wait before the next attempt, if known.
        retry_after: Option<Duration>,
    },
}

/// Decides about a call. For a call without a thread only the shared record matters.
#[must_use]
pub fn admit(
    thread: Option<&StatusRecord>,
    shared: &StatusRecord,
    readiness: &Readiness,
    settings: &StatusSettings,
    now: Timestamp,
) -> Admission {
    let shared_status = evaluate(shared, readiness, settings, now);
    let effective = match thread {
        Some(own) => worst(evaluate(own, readiness, settings, now), shared_status),
        None => shared_status,
    };
    if effective.status != ToolStatus::Available {
        let kind = refusal_kind(effective.status, &effective.reason);
        let retry_after = effective.next_change.map(|change| change.since(now));
        return Admission::Refuse { kind, reason: effective.reason, retry_after };
    }
    if !effective.probation {
        return Admission::Pass;
    }
    let is_probing =
        |record: &StatusRecord| record.breaker.is_on_probation(now) && record.breaker.has_active_probe(now);
    if is_probing(shared) || thread.is_some_and(is_probing) {
        return Admission::WaitForProbe;
    }
    Admission::Probe {
        thread: thread.is_some_and(|own| own.breaker.is_on_probation(now)),
        shared: shared.breaker.is_on_probation(now),
    }
}

fn refusal_kind(status: ToolStatus, reason: &Reason) -> ErrorKind {
    match (status, reason) {
        (ToolStatus::Maintenance, _) => ErrorKind::ToolMaintenance,
        (ToolStatus::Failed, _) => ErrorKind::ToolFailedStatus,
        (_, Reason::WaitingFor { .. }) => ErrorKind::DependencyNotMet,
        _ => ErrorKind::ToolUnavailable,
    }
}

#[cfg(test)]
mod tests;
