//! Turns facts into the one word that people see, with its reason and the moment it changes by itself.
//!
//! In: a record, what else is known about the tool, the settings and the time. Out: a reading. Maintenance is said
//! before failed, failed before unavailable, and available only when nothing else is true. Reads only; a word can
//! only become better by itself, and `next_change` says when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Breaker, BreakerCause, OverrideStatus, Reason, StatusRecord, StatusSettings};
use crate::{timestamp::Timestamp, tool::ToolName};

/// The status of a tool, the best word first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// It may be used.
    Available,
    /// It is switched off, not connected, not implemented, or waits for another tool.
    Unavailable,
    /// It failed too often and is withheld for a while.
    Failed,
    /// An operator works on it.
    Maintenance,
}

/// Whether there is anything to call, as far as the record cannot know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Readiness {
    /// There is.
    #[default]
    Ready,
    /// There is, and the tools it waited for have succeeded in this thread.
    DependenciesMet,
    /// Other tools must succeed in this thread first.
    WaitingFor(Vec<ToolName>),
    /// Its owner switched it off.
    Disabled {
        /// Why, in the owner's words.
        message: Option<String>,
    },
    /// The service behind it is not connected.
    Disconnected,
    /// Nothing implements it.
    NoImplementation,
}

/// What a record says at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveStatus {
    /// The word.
    pub status: ToolStatus,
    /// Why.
    pub reason: Reason,
    /// Available, but the next call decides whether it stays so.
    pub probation: bool,
    /// When the word will change by itself; absent where only an event can change it.
    pub next_change: Option<Timestamp>,
}

/// What a record says at this moment.
#[must_use]
pub fn evaluate(
    facts: &StatusRecord,
    presence: &Readiness,
    settings: &StatusSettings,
    now: Timestamp,
) -> EffectiveStatus {
    let operator = facts.active_override(now);
    let reading = |status, reason, next_change| EffectiveStatus { status, reason, probation: false, next_change };
    if let Some(word) = operator.filter(|word| word.status == OverrideStatus::Maintenance) {
        let reason = Reason::Maintenance { message: word.reason.clone() };
        return reading(ToolStatus::Maintenance, reason, word.until);
    }
    if let Breaker::Open { until, cause, .. } = &facts.breaker
        && settings.enabled
        && facts.breaker.is_blocking(now)
    {
        return reading(ToolStatus::Failed, failed_reason(facts, cause), Some(*until));
    }
    let absent = not_ready_reason(presence);
    if let Some(word) = operator {
        let reason = Reason::SwitchedOff { message: word.reason.clone() };
        return reading(
            ToolStatus::Unavailable,
            reason,
            word.until.filter(|_| absent.is_none() && facts.disabled.is_none()),
        );
    }
    if let Some(switch) = &facts.disabled {
        return reading(ToolStatus::Unavailable, Reason::Disabled { message: switch.reason.clone() }, None);
    }
    if let Some(reason) = absent {
        return reading(ToolStatus::Unavailable, reason, None);
    }
    let probation = settings.enabled && facts.breaker.is_on_probation(now);
    let reason = if probation { Reason::OnProbation } else { available_reason(facts, presence) };
    EffectiveStatus { probation, ..reading(ToolStatus::Available, reason, None) }
}

/// What a thread sees: the worse of its own reading and everybody's.
#[must_use]
pub fn worst(thread: EffectiveStatus, shared: EffectiveStatus) -> EffectiveStatus {
    if thread.status != shared.status {
        return if thread.status > shared.status { thread } else { shared };
    }
    // Both must change before the word does; where one never will, neither does the word.
    let next_change = thread.next_change.zip(shared.next_change).map(|(one, other)| one.max(other));
    // The reason that explains more: a probation, and otherwise what happened in the thread itself.
    let told = if shared.probation && !thread.probation { shared } else { thread };
    EffectiveStatus { next_change, ..told }
}

fn failed_reason(facts: &StatusRecord, cause: &BreakerCause) -> Reason {
    match cause {
        BreakerCause::InARow => Reason::FailedInARow { times: facts.consecutive_failures },
        BreakerCause::TooOften { failed, total } => Reason::FailedTooOften { failed: *failed, total: *total },
        BreakerCause::ByHand { reason } => Reason::ForcedFailed { message: reason.clone() },
    }
}

fn not_ready_reason(presence: &Readiness) -> Option<Reason> {
    match presence {
        Readiness::Ready | Readiness::DependenciesMet => None,
        Readiness::WaitingFor(tools) => Some(Reason::WaitingFor { tools: tools.clone() }),
        Readiness::Disabled { message: words } => Some(Reason::Disabled { message: words.clone() }),
        Readiness::Disconnected => Some(Reason::Disconnected),
        Readiness::NoImplementation => Some(Reason::NoImplementation),
    }
}

fn available_reason(facts: &StatusRecord, presence: &Readiness) -> Reason {
    let failed = facts.last_failure.as_ref().map(|failure| failure.at);
    match (facts.consecutive_failures, facts.last_success) {
        (times @ 1.., _) => Reason::FailedRecently { times },
        (0, success) if success < failed => Reason::Recovered,
        (0, Some(_)) => Reason::Succeeded,
        (0, None) if *presence == Readiness::DependenciesMet => Reason::DependenciesMet,
        (0, None) => Reason::NeverRun,
    }
}

#[cfg(test)]
#[path = "evaluation_tests.rs"]
mod tests;
