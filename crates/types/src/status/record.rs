//! What is stored about a tool: one record shared by all, and one for each thread.
//!
//! Plain data that goes through a backend. `machine.rs` makes new facts of old ones, `word.rs` reads them. Nothing
//! here is derived: a tool on probation is one whose breaker is open and whose time is over, and no timer must have
//! run for that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RollingWindow, StatusSettings, ThreadFingerprint, span};
use crate::{error::ErrorKind, ids::CallId, timestamp::Timestamp};

/// The record of a tool. The default is a tool that never ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusRecord {
    /// An operator's word, which holds whatever the tool does.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub operator_override: Option<Override>,
    /// Somebody has disabled the tool, until it is enabled again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Whether the tool is withheld because it failed.
    pub breaker: Breaker,
    /// Grows whenever the breaker turns, a probe is taken or the record is cleared. A call remembers the epoch it was
    /// admitted in; its result moves the breaker only if nothing turned in between.
    pub epoch: u64,
    /// How many counted failures there were since the last success.
    pub consecutive_failures: u32,
    /// The results of late, where a rolling window is set.
    #[serde(skip_serializing_if = "RollingWindow::is_empty")]
    pub recent: RollingWindow,
    /// Up to two threads that timed out since the last success; two make it everybody's problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timed_out: Vec<ThreadFingerprint>,
    /// When the tool last succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// The last counted failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// When anything here last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
}

/// A counted failure, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolFailure")]
pub struct Failure {
    /// When.
    pub at: Timestamp,
    /// What went wrong.
    pub kind: ErrorKind,
    /// The line for operators.
    pub text: String,
}

/// An operator's word about a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Which word.
    pub status: OverrideStatus,
    /// Why, in the operator's words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// When it ends by itself. A moment on the wall clock, because that is what the operator meant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Timestamp>,
}

/// That a tool is disabled. Beside an operator's word, which may come and go meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disabled {
    /// Why, in the words of whoever did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The two words that hold until they are taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverrideStatus {
    /// Somebody works on it.
    Maintenance,
    /// Somebody switched it off.
    Unavailable,
}

/// Whether calls flow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Breaker {
    /// They do.
    #[default]
    Closed,
    /// They do not until a moment; from then on one call at a time may try.
    Open {
        /// When it opened.
        since: Timestamp,
        /// When probation begins.
        until: Timestamp,
        /// How often in a row it opened; each time doubles the wait.
        openings: u32,
        /// Why it opened.
        cause: BreakerCause,
        /// The one call that may try.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        probe: Option<ProbeLease>,
    },
}

/// Why a breaker opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BreakerCause {
    /// Too many failures in a row, or a failed probe.
    InARow,
    /// Too many failures in the rolling window.
    TooOften {
        /// How many failed.
        failed: u64,
        /// Of how many.
        total: u64,
    },
    /// An operator said so.
    ByHand {
        /// Why, in the operator's words.
        reason: Option<String>,
    },
}

/// The right to make the probing call. It ends by itself, so that a prober that died blocks nobody for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeLease {
    /// The call that has it.
    pub id: CallId,
    /// When it was taken.
    pub taken: Timestamp,
    /// When another call may take it.
    pub lease_until: Timestamp,
}

impl StatusRecord {
    /// The operator's word, unless its end has come.
    #[must_use]
    pub fn active_override(&self, now: Timestamp) -> Option<&Override> {
        self.operator_override.as_ref().filter(|order| order.until.is_none_or(|until| now < until))
    }

    /// Whether this call holds the permit: the answer to "was I the one who took it?" after a compare-and-set.
    #[must_use]
    pub fn is_probe_held_by(&self, call: CallId) -> bool {
        matches!(&self.breaker, Breaker::Open { probe: Some(permit), .. } if permit.id == call)
    }

    /// Whether a success would change nothing here but its time, so that it need not be written at once.
    #[must_use]
    pub fn is_unchanged_by_success(&self, settings: &StatusSettings) -> bool {
        let sampled = settings.enabled && settings.failure_window.is_some();
        self.breaker == Breaker::Closed && self.consecutive_failures == 0 && self.timed_out.is_empty() && !sampled
    }
}

impl Breaker {
    /// Whether the tool is withheld at this moment.
    #[must_use]
    pub fn is_blocking(&self, now: Timestamp) -> bool {
        matches!(self, Self::Open { since, until, .. } if span::contains(*since, *until, now))
    }

    /// Whether the time is over and a probe may decide.
    #[must_use]
    pub fn is_on_probation(&self, now: Timestamp) -> bool {
        *self != Self::Closed && !self.is_blocking(now)
    }

    /// Whether a clock was set back so far that the wait seems to lie ahead. It withholds nothing now, but would when
    /// the clock gets there; whoever notices tells the record `Event::CoolDownEnded`, and it is over for good.
    #[must_use]
    pub fn is_in_future(&self, now: Timestamp) -> bool {
        matches!(self, Self::Open { since, until, .. } if since < until && now < *until) && !self.is_blocking(now)
    }

    /// Whether a call is probing at this moment.
    #[must_use]
    pub fn has_active_probe(&self, now: Timestamp) -> bool {
        matches!(self, Self::Open { probe: Some(permit), .. }
            if span::contains(permit.taken, permit.lease_until, now))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_that_never_ran_is_an_empty_record_at_rest() {
        let fresh = StatusRecord::default();
        assert_eq!(serde_json::from_value::<StatusRecord>(json!({})).unwrap(), fresh);
        assert!(fresh.is_unchanged_by_success(&StatusSettings::default()));
        assert!(
            !fresh.breaker.is_blocking(Timestamp::default()) && !fresh.breaker.is_on_probation(Timestamp::default())
        );
    }

    #[test]
    fn a_full_record_survives_a_round_trip() {
        let at = Timestamp::from_millis(1_000);
        let facts = StatusRecord {
            operator_override: Some(Override {
                status: OverrideStatus::Maintenance,
                reason: Some("disk".into()),
                until: Some(at),
            }),
            breaker: Breaker::Open {
                since: at,
                until: at,
                openings: 2,
                cause: BreakerCause::TooOften { failed: 3, total: 4 },
                probe: Some(ProbeLease { id: CallId::mint(at), taken: at, lease_until: at }),
            },
            epoch: 7,
            consecutive_failures: 3,
            last_success: Some(at),
            last_failure: Some(Failure { at, kind: ErrorKind::Timeout, text: "slow".into() }),
            updated: Some(at),
            ..StatusRecord::default()
        };
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<StatusRecord>(&text).unwrap(), facts);
    }
}
