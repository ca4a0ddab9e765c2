//! Derives the effective status of a tool, with its reason and the time of its next automatic change.
//!
//! In: a record, the readiness of the tool, the settings and the time. Out: an [`EffectiveStatus`]. Precedence: maintenance, failed,
//! unavailable, available. Does not change the record. Without an event a status can only improve, and `next_change` says when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Breaker, BreakerCause, OverrideStatus, Reason, StatusRecord, StatusSettings};
use crate::{timestamp::Timestamp, tool::ToolName};

/// The status of a tool, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// The tool may be used.
    Available,
    /// The tool is disabled, not connected, not implemented, or waits for another tool.
    Unavailable,
    /// The tool failed too often; its circuit breaker is open.
    Failed,
    /// An operator has put the tool in maintenance, or its definition waits for approval.
    Maintenance,
}

impl ToolStatus {
    /// The name in responses, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::Maintenance => "maintenance",
        }
    }
}

/// Whether the tool can be called, as far as the record does not know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The tool can be called and has no dependencies.
    #[default]
    Ready,
    /// The tool can be called, and its dependencies have succeeded in this thread.
    DependenciesMet,
    /// Other tools must succeed in this thread first.
    WaitingFor(Vec<ToolName>),
    /// The owner has disabled the tool.
    Disabled {
        /// The reason given by the owner.
        message: Option<String>,
    },
    /// The service behind the tool is not connected.
    Disconnected {
        /// Why not.
        message: Option<String>,
    },
    /// The tool's definition waits for the approval of a person.
    PendingApproval {
        /// How to review it.
        message: String,
    },
    /// The tool has no implementation.
    NoImplementation {
        /// The function of an older program that implemented it, if it is known.
        function: Option<String>,
    },
}

/// The status of a tool at a given time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveStatus {
    /// The status.
    pub status: ToolStatus,
    /// The reason.
    pub reason: Reason,
    /// Available on probation: the next call decides whether the breaker closes.
    pub probation: bool,
    /// When the status will change without an event; `None` if only an event can change it.
    pub next_change: Option<Timestamp>,
}

/// Derives the status of a record at `now`.
#[must_use]
pub fn evaluate(
    record: &StatusRecord,
    readiness: &Readiness,
    settings: &StatusSettings,
    now: Timestamp,
) -> EffectiveStatus {
    let active = record.active_override(now);
    let effective = |status, reason, next_change| EffectiveStatus { status, reason, probation: false, next_change };
    if let Some(maintenance) = active.filter(|active| active.status == OverrideStatus::Maintenance) {
        let reason = Reason::Maintenance { message: maintenance.reason.clone() };
        let is_pending = matches!(readiness, Readiness::PendingApproval { .. });
        return effective(ToolStatus::Maintenance, reason, maintenance.until.filter(|_| !is_pending));
    }
    if let Readiness::PendingApproval { message } = readiness {
        let reason = Reason::DefinitionPending { message: message.clone() };
        return effective(ToolStatus::Maintenance, reason, None);
    }
    if let Breaker::Open { until, cause, .. } = &record.breaker
        && settings.enabled
        && record.breaker.is_blocking(now)
    {
        return effective(ToolStatus::Failed, failed_reason(record, cause), Some(*until));
    }
    let not_ready = not_ready_reason(readiness);
    if let Some(unavailable) = active {
        let reason = Reason::SetUnavailable { message: unavailable.reason.clone() };
        return effective(
            ToolStatus::Unavailable,
            reason,
            unavailable.until.filter(|_| not_ready.is_none() && record.disabled.is_none()),
        );
    }
    if let Some(disabled) = &record.disabled {
        return effective(ToolStatus::Unavailable, Reason::Disabled { message: disabled.reason.clone() }, None);
    }
    if let Some(reason) = not_ready {
        return effective(ToolStatus::Unavailable, reason, None);
    }
    let probation = settings.enabled && record.breaker.is_on_probation(now);
    let results = (record.consecutive_failures, record.last_success, record.last_failure_time());
    let reason = if probation { Reason::OnProbation } else { available_reason(results, record.reset, readiness) };
    EffectiveStatus { probation, ..effective(ToolStatus::Available, reason, None) }
}

/// Derives the status that a thread sees: the worse of its own record and the shared one. The reason takes both records into
/// account, so that it agrees with their counters.
#[must_use]
pub fn evaluate_in_thread(
    own: &StatusRecord,
    shared: &StatusRecord,
    readiness: &Readiness,
    settings: &StatusSettings,
    now: Timestamp,
) -> EffectiveStatus {
    let evaluate = |record| evaluate(record, readiness, settings, now);
    let effective = worst(evaluate(own), evaluate(shared));
    let failures = own.consecutive_failures.max(shared.consecutive_failures);
    let reason = match effective.reason {
        Reason::FailedInARow { .. } => Reason::FailedInARow { times: failures },
        reason if effective.status != ToolStatus::Available || effective.probation => reason,
        _ => {
            let last_failure = own.last_failure_time().max(shared.last_failure_time());
            let last_success = own.last_success.max(shared.last_success);
            available_reason((failures, last_success, last_failure), own.reset.or(shared.reset), readiness)
        }
    };
    EffectiveStatus { reason, ..effective }
}

/// The worse of the statuses of a thread's own record and the shared one.
#[must_use]
pub fn worst(thread: EffectiveStatus, shared: EffectiveStatus) -> EffectiveStatus {
    if thread.status != shared.status {
        return if thread.status > shared.status { thread } else { shared };
    }
    // Both must change before the combined status does; if one never will, neither does the combination.
    let next_change = thread.next_change.zip(shared.next_change).map(|(own, shared)| own.max(shared));
    // Prefer the reason that explains more: a probation, otherwise what happened in the thread itself.
    let explained = if shared.probation && !thread.probation { shared } else { thread };
    EffectiveStatus { next_change, ..explained }
}

fn failed_reason(record: &StatusRecord, cause: &BreakerCause) -> Reason {
    match cause {
        BreakerCause::InARow => Reason::FailedInARow { times: record.consecutive_failures },
        BreakerCause::TooOften { failed, total } => Reason::FailedTooOften { failed: *failed, total: *total },
        BreakerCause::ByHand { reason } => Reason::SetFailed { message: reason.clone() },
    }
}

fn not_ready_reason(readiness: &Readiness) -> Option<Reason> {
    match readiness {
        Readiness::Ready | Readiness::DependenciesMet => None,
        Readiness::WaitingFor(tools) => Some(Reason::WaitingFor { tools: tools.clone() }),
        Readiness::Disabled { message } => Some(Reason::Disabled { message: message.clone() }),
        Readiness::Disconnected { message } => Some(Reason::Disconnected { message: message.clone() }),
        Readiness::PendingApproval { message } => Some(Reason::DefinitionPending { message: message.clone() }),
        Readiness::NoImplementation { function } => Some(Reason::NoImplementation { function: function.clone() }),
    }
}

/// Why an available tool is available: its consecutive failures, last success and last failure say what happened last.
fn available_reason(
    (failures, last_success, last_failure): (u32, Option<Timestamp>, Option<Timestamp>),
    reset: Option<Timestamp>,
    readiness: &Readiness,
) -> Reason {
    match (failures, last_success) {
        (times @ 1.., _) => Reason::FailedRecently { times },
        (0, last_success) if last_success < last_failure => Reason::Recovered,
        (0, Some(_)) => Reason::Succeeded,
        (0, None) if reset.is_some() => Reason::Reset,
        (0, None) if *readiness == Readiness::DependenciesMet => Reason::DependenciesMet,
        (0, None) => Reason::NeverRun,
    }
}

#[cfg(test)]
mod tests;
