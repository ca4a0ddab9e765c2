//! Decides whether one call may pass, now.
//!
//! In: the two records a call meets and what else is known of the tool. Out: pass, probe first, wait, or a refusal
//! with its kind. Decides only: the caller takes the permit (a compare-and-set of `Event::ProbeTaken` on each record
//! named), waits for the probe, and asks again afterwards.

use std::time::Duration;

use super::{Readiness, Reason, StatusRecord, StatusSettings, ToolStatus, evaluate, worst};
use crate::{error::ErrorKind, timestamp::Timestamp};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may run.
    Pass,
    /// It may run as the probe, once it has the permit of each record named here.
    Probe {
        /// The thread's own record is on probation.
        thread: bool,
        /// Everybody's record is on probation.
        shared: bool,
    },
    /// Another call is probing; its answer decides.
    WaitForProbe,
    /// It may not run.
    Refuse {
        /// The kind of the refusal.
        kind: ErrorKind,
        /// Why.
        reason: Reason,
        /// When asking again may help, where that is known.
        retry_after: Option<Duration>,
    },
}

/// Whether a call may pass. A call without a thread meets only the shared record.
#[must_use]
pub fn admit(
    thread: Option<&StatusRecord>,
    shared: &StatusRecord,
    presence: &Readiness,
    settings: &StatusSettings,
    now: Timestamp,
) -> Admission {
    let everybody = evaluate(shared, presence, settings, now);
    let reading = match thread {
        Some(own) => worst(evaluate(own, presence, settings, now), everybody),
        None => everybody,
    };
    if reading.status != ToolStatus::Available {
        let kind = refusal_kind(reading.status, &reading.reason);
        let retry_after = reading.next_change.map(|change| change.since(now));
        return Admission::Refuse { kind, reason: reading.reason, retry_after };
    }
    if !reading.probation {
        return Admission::Pass;
    }
    let probed = |facts: &StatusRecord| facts.breaker.is_on_probation(now) && facts.breaker.has_active_probe(now);
    if probed(shared) || thread.is_some_and(probed) {
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
#[path = "gate_tests.rs"]
mod tests;
