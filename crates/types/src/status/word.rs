//! Turns facts into the one word that people see, with its reason and the moment it changes by itself.
//!
//! In: a record, what else is known about the tool, the settings and the time. Out: a reading. Maintenance is said
//! before failed, failed before unavailable, and available only when nothing else is true. Reads only; a word can
//! only become better by itself, and `next_change` says when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Breaker, Cause, Facts, Hold, Reason, StatusSettings};
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
pub enum Presence {
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
        words: Option<String>,
    },
    /// The service behind it is not connected.
    Disconnected,
    /// Nothing implements it.
    NoImplementation,
}

/// What a record says at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
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
pub fn read(facts: &Facts, presence: &Presence, settings: &StatusSettings, now: Timestamp) -> Reading {
    let operator = facts.operator_at(now);
    let reading = |status, reason, next_change| Reading { status, reason, probation: false, next_change };
    if let Some(word) = operator.filter(|word| word.status == Hold::Maintenance) {
        let reason = Reason::Maintenance { words: word.reason.clone() };
        return reading(ToolStatus::Maintenance, reason, word.until);
    }
    if let Breaker::Open { until, cause, .. } = &facts.breaker
        && settings.enabled
        && facts.breaker.withholds(now)
    {
        return reading(ToolStatus::Failed, why_failed(facts, cause), Some(*until));
    }
    let absent = why_absent(presence);
    if let Some(word) = operator {
        let reason = Reason::SwitchedOff { words: word.reason.clone() };
        return reading(
            ToolStatus::Unavailable,
            reason,
            word.until.filter(|_| absent.is_none() && facts.disabled.is_none()),
        );
    }
    if let Some(switch) = &facts.disabled {
        return reading(ToolStatus::Unavailable, Reason::Disabled { words: switch.reason.clone() }, None);
    }
    if let Some(reason) = absent {
        return reading(ToolStatus::Unavailable, reason, None);
    }
    let probation = settings.enabled && facts.breaker.on_probation(now);
    let reason = if probation { Reason::OnProbation } else { why_available(facts, presence) };
    Reading { probation, ..reading(ToolStatus::Available, reason, None) }
}

/// What a thread sees: the worse of its own reading and everybody's.
#[must_use]
pub fn worse(thread: Reading, shared: Reading) -> Reading {
    if thread.status != shared.status {
        return if thread.status > shared.status { thread } else { shared };
    }
    // Both must change before the word does; where one never will, neither does the word.
    let next_change = thread.next_change.zip(shared.next_change).map(|(one, other)| one.max(other));
    // The reason that explains more: a probation, and otherwise what happened in the thread itself.
    let told = if shared.probation && !thread.probation { shared } else { thread };
    Reading { next_change, ..told }
}

fn why_failed(facts: &Facts, cause: &Cause) -> Reason {
    match cause {
        Cause::InARow => Reason::FailedInARow { times: facts.consecutive_failures },
        Cause::TooOften { failed, total } => Reason::FailedTooOften { failed: *failed, total: *total },
        Cause::ByHand { reason } => Reason::FailedByHand { words: reason.clone() },
    }
}

fn why_absent(presence: &Presence) -> Option<Reason> {
    match presence {
        Presence::Ready | Presence::DependenciesMet => None,
        Presence::WaitingFor(tools) => Some(Reason::WaitingFor { tools: tools.clone() }),
        Presence::Disabled { words } => Some(Reason::Disabled { words: words.clone() }),
        Presence::Disconnected => Some(Reason::Disconnected),
        Presence::NoImplementation => Some(Reason::NoImplementation),
    }
}

fn why_available(facts: &Facts, presence: &Presence) -> Reason {
    let failed = facts.last_failure.as_ref().map(|failure| failure.at);
    match (facts.consecutive_failures, facts.last_success) {
        (times @ 1.., _) => Reason::FailedLately { times },
        (0, success) if success < failed => Reason::Recovered,
        (0, Some(_)) => Reason::Succeeded,
        (0, None) if *presence == Presence::DependenciesMet => Reason::DependenciesMet,
        (0, None) => Reason::NeverRun,
    }
}

#[cfg(test)]
#[path = "word_tests.rs"]
mod tests;
