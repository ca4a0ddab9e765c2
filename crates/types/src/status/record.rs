//! The stored status record of a tool: one shared record per tool, and one per thread.
//!
//! Plain data stored by a backend. `machine.rs` changes it, `evaluation.rs` derives a status from it. Nothing
//! derived is stored: a tool is on probation if its breaker is open and the cool-down is over, whether or not a timer
//! has run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RollingWindow, StatusSettings, ThreadFingerprint, interval};
use crate::{error::ErrorKind, ids::CallId, timestamp::Timestamp};

/// The record of a tool. The default is a tool that never ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusRecord {
    /// The operator's override, independent of results.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub operator_override: Option<Override>,
    /// Set while the tool is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// The circuit breaker.
    pub breaker: Breaker,
    /// Incremented whenever the breaker opens or closes, a probe is taken or the record is cleared. A call remembers the
    /// epoch it was admitted in; its result changes the breaker only if the epoch is still the same.
    pub epoch: u64,
    /// Counted failures since the last success.
    pub consecutive_failures: u32,
    /// Recent results, if a rolling window is configured.
    #[serde(skip_serializing_if = "RollingWindow::is_empty")]
    pub recent: RollingWindow,
    /// Up to two threads that timed out since the last success; with two, timeouts count in the shared record too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timed_out: Vec<ThreadFingerprint>,
    /// The time of the last success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// The last counted failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// The time of the last reset. Earlier successes in the journal do not count for the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<Timestamp>,
    /// The time of the last change of this record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
}

/// A counted failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolFailure")]
pub struct Failure {
    /// The time of the failure.
    pub at: Timestamp,
    /// The error kind.
    pub kind: ErrorKind,
    /// The text for operators.
    pub text: String,
}

/// An operator's override of a tool's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// The status.
    pub status: OverrideStatus,
    /// The operator's reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// When it expires. Wall-clock time, because that is what the operator meant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Timestamp>,
}

/// Marks a tool as disabled. Independent of an operator's override, which may be set and removed meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disabled {
    /// The reason given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The statuses that an operator can set until further notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverrideStatus {
    /// The tool is in maintenance.
    Maintenance,
    /// The tool is unavailable.
    Unavailable,
}

/// The circuit breaker of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Breaker {
    /// Calls pass.
    #[default]
    Closed,
    /// Calls are refused until `until`; from then on (half-open) one call at a time may probe.
    Open {
        /// When it opened.
        since: Timestamp,
        /// When probation begins.
        until: Timestamp,
        /// How often it opened without closing in between; each time doubles the cool-down.
        openings: u32,
        /// Why it opened.
        cause: BreakerCause,
        /// The lease of the probing call.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        probe: Option<ProbeLease>,
    },
}

/// Why a breaker opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BreakerCause {
    /// Too many consecutive failures, or a failed probe.
    InARow,
    /// Too many failures in the rolling window.
    TooOften {
        /// The number of failures.
        failed: u64,
        /// The number of calls.
        total: u64,
    },
    /// An operator set the status to failed.
    ByHand {
        /// The operator's reason.
        reason: Option<String>,
    },
}

/// The exclusive right to make the probing call. It expires, so that a probe that died does not block others for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeLease {
    /// The call that holds it.
    pub id: CallId,
    /// When it was taken.
    pub taken: Timestamp,
    /// When it expires and another call may take it.
    pub lease_until: Timestamp,
}

impl StatusRecord {
    /// The operator's override, unless it has expired.
    #[must_use]
    pub fn active_override(&self, now: Timestamp) -> Option<&Override> {
        self.operator_override.as_ref().filter(|active| active.until.is_none_or(|until| now < until))
    }

    /// When the status last changed by a change of the record or with time.
    #[must_use]
    pub fn last_changed(&self, now: Timestamp) -> Option<Timestamp> {
        let probation = match &self.breaker {
            Breaker::Open { until, .. } if self.breaker.is_on_probation(now) => Some(*until),
            Breaker::Open { .. } | Breaker::Closed => None,
        };
        let expired = self.operator_override.as_ref().and_then(|active| active.until);
        let with_time = [probation, expired].into_iter().flatten().filter(|at| *at <= now).max();
        self.updated.max(with_time)
    }

    /// Whether this call holds the probe lease. After a compare-and-set it tells a call whether it won the lease.
    #[must_use]
    pub fn is_probe_held_by(&self, call: CallId) -> bool {
        matches!(&self.breaker, Breaker::Open { probe: Some(lease), .. } if lease.id == call)
    }

    /// The time of the last counted failure.
    #[must_use]
    pub fn last_failure_time(&self) -> Option<Timestamp> {
        self.last_failure.as_ref().map(|failure| failure.at)
    }

    /// Whether a success would change only `last_success`, so that writing it can be deferred.
    #[must_use]
    pub fn is_unchanged_by_success(&self, settings: &StatusSettings) -> bool {
        self.breaker == Breaker::Closed
            && self.consecutive_failures == 0
            && self.timed_out.is_empty()
            && !settings.tracks_failure_rate()
    }
}

impl Breaker {
    /// Whether the breaker refuses calls at `now`.
    #[must_use]
    pub fn is_blocking(&self, now: Timestamp) -> bool {
        matches!(self, Self::Open { since, until, .. } if interval::contains(*since, *until, now))
    }

    /// Whether the cool-down is over and a probe may decide (half-open).
    #[must_use]
    pub fn is_on_probation(&self, now: Timestamp) -> bool {
        *self != Self::Closed && !self.is_blocking(now)
    }

    /// Whether the clock was set back so far that the cool-down lies in the future. It blocks nothing now, but would once
    /// the clock gets there; a caller that sees this applies `StatusEvent::CoolDownEnded`, which ends it for good.
    #[must_use]
    pub fn is_in_future(&self, now: Timestamp) -> bool {
        matches!(self, Self::Open { since, until, .. } if since < until && now < *until) && !self.is_blocking(now)
    }

    /// Whether a probe lease is active at `now`.
    #[must_use]
    pub fn has_active_probe(&self, now: Timestamp) -> bool {
        matches!(self, Self::Open { probe: Some(lease), .. }
            if interval::contains(lease.taken, lease.lease_until, now))
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
        let record = StatusRecord {
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
            reset: Some(at),
            updated: Some(at),
            ..StatusRecord::default()
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<StatusRecord>(&text).unwrap(), record);
    }
}
