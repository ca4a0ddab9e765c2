//! The status machine: applies an event to a record (circuit breaker, operator overrides, probe leases).
//!
//! In: a record, an event, the settings, the time and a random number. Out: the new record; an equal
//! one if the event changes nothing. `scope.rs` decides in which record a failure counts, and `gate.rs`
//! whether a call may pass.
//!
//! Two invariants. A result changes the breaker only if it belongs to the current epoch: a call that started
//! before the breaker opened says nothing about the tool on probation. And taking the probe lease changes the
//! record, so that of many callers with a compare-and-set exactly one becomes the probe.

use std::time::Duration;

use super::{
    Breaker, BreakerCause, Disabled, Failure, Override, OverrideStatus, ProbeLease, StatusRecord, StatusSettings,
    ThreadFingerprint, ToolStatus, interval,
};
use crate::{error::ErrorKind, ids::CallId, timestamp::Timestamp};

/// The largest part by which jitter shortens a repeated cool-down, so that many tools do not return at the same time.
const MAX_JITTER: f64 = 0.2;

/// The stored length of a failure's operator text, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// An event that changes the record of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum StatusEvent {
    /// A call ended with a result of the tool.
    CallEnded {
        /// What the result means for this record.
        signal: HealthSignal,
        /// The record's epoch when the call was admitted (for a probe: after it took the lease). `None` for an externally
        /// reported result, which always belongs to the current epoch.
        epoch: Option<u64>,
    },
    /// A call requests the probe lease. [`StatusRecord::is_probe_held_by`] says whether it got it.
    ProbeTaken {
        /// The call.
        id: CallId,
        /// How long the lease holds without a result.
        lease: Duration,
    },
    /// The probe ended without a result of the tool: refused, cancelled, never sent.
    ProbeReleased {
        /// The call.
        id: CallId,
    },
    /// A thread timed out. Apply it to the shared record before `failure_targets` decides where the timeout counts.
    TimedOut {
        /// The thread.
        by: ThreadFingerprint,
    },
    /// A reconnect or a health check found the tool healthy, without a call.
    Healthy,
    /// The tool was disabled.
    Disabled(Disabled),
    /// The tool was enabled again. Nothing else changes.
    Enabled,
    /// An operator set the status to maintenance or unavailable.
    Overridden(Override),
    /// An operator set the status to failed.
    ForcedFailed {
        /// The operator's reason.
        reason: Option<String>,
        /// When probation begins. Default: after `failure_duration`.
        until: Option<Timestamp>,
    },
    /// An operator set the status to available: removes the override and closes the breaker. The last results stay.
    ForcedAvailable,
    /// Probation begins now. The reset of a thread applies this to the shared record; it is also applied to a record whose
    /// cool-down lies in the future because the clock was set back ([`Breaker::is_in_future`]).
    CoolDownEnded,
    /// The record is cleared; only the time of the reset stays.
    Reset,
    /// A saved record replaces this one.
    Restored(Box<StatusRecord>),
}

/// What the result of a call means for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthSignal {
    /// The tool succeeded.
    Success,
    /// The tool failed in a way that counts in this record.
    Failure {
        /// The error kind.
        kind: ErrorKind,
        /// The text for operators.
        text: String,
    },
    /// The tool responded in a way that does not count in this record. It neither counts as a failure nor resets consecutive
    /// failures, but it closes the breaker of a tool on probation, because the tool responds.
    Uncounted,
}

impl StatusEvent {
    /// The event of an operator who sets a status.
    #[must_use]
    pub fn from_operator(status: ToolStatus, reason: Option<String>, until: Option<Timestamp>) -> Self {
        match status {
            ToolStatus::Available => Self::ForcedAvailable,
            ToolStatus::Failed => Self::ForcedFailed { reason, until },
            ToolStatus::Maintenance => {
                Self::Overridden(Override { status: OverrideStatus::Maintenance, reason, until })
            }
            ToolStatus::Unavailable => {
                Self::Overridden(Override { status: OverrideStatus::Unavailable, reason, until })
            }
        }
    }
}

/// The record after an event. `jitter` is a random number from 0 to 1; it shortens repeated cool-downs.
#[must_use]
pub fn apply(
    record: &StatusRecord,
    event: &StatusEvent,
    settings: &StatusSettings,
    now: Timestamp,
    jitter: f64,
) -> StatusRecord {
    let mut next = record.clone();
    match event {
        StatusEvent::CallEnded { signal, epoch } => {
            next.record_last_times(signal, now);
            let is_current = epoch.is_none_or(|epoch| epoch == record.epoch);
            if is_current {
                next.update_breaker(signal, settings, now, jitter);
            }
        }
        StatusEvent::ProbeTaken { id, lease } => next.take_probe(*id, *lease, settings, now),
        StatusEvent::ProbeReleased { id } => next.release_probe(*id),
        StatusEvent::TimedOut { by } if settings.enabled => by.add_to(&mut next.timed_out),
        StatusEvent::Healthy if settings.enabled => next.close_unless_forced(),
        StatusEvent::TimedOut { .. } | StatusEvent::Healthy => {}
        StatusEvent::Disabled(disabled) => next.disabled = Some(disabled.clone()),
        StatusEvent::Enabled => next.disabled = None,
        StatusEvent::Overridden(operator_override) => next.operator_override = Some(operator_override.clone()),
        StatusEvent::ForcedFailed { reason, until } => {
            let until = until.unwrap_or_else(|| interval::end_after(now, settings.failure_duration));
            next.open(now, until, 1, BreakerCause::ByHand { reason: reason.clone() });
        }
        StatusEvent::ForcedAvailable => {
            next.operator_override = None;
            next.close();
        }
        StatusEvent::CoolDownEnded => next.end_cool_down(now),
        // The epoch survives a reset and grows: a call that is still running must not count afterwards.
        // A disabled tool stays disabled: that is a setting, not a failure.
        StatusEvent::Reset => {
            let (epoch, disabled) = (record.epoch.wrapping_add(1), record.disabled.clone());
            next = StatusRecord { epoch, disabled, reset: Some(now), ..StatusRecord::default() };
        }
        StatusEvent::Restored(saved) => {
            // A saved lease was not taken on this record; drop it.
            let mut saved = (**saved).clone();
            if let Breaker::Open { probe, .. } = &mut saved.breaker {
                *probe = None;
            }
            // Keep this record's epoch: a saved one could collide with the epoch of a call that is still running.
            let (epoch, disabled) = (record.epoch.wrapping_add(1), record.disabled.clone());
            next = StatusRecord { epoch, disabled, ..saved };
        }
    }
    if next != *record {
        next.updated = Some(now);
    }
    next
}

impl StatusRecord {
    /// Records the time of the last success or failure, even if the result is of an old epoch or counting is off.
    fn record_last_times(&mut self, signal: &HealthSignal, now: Timestamp) {
        match signal {
            HealthSignal::Success => self.last_success = Some(now),
            HealthSignal::Failure { kind, text } => {
                let text = text.chars().take(MAX_TEXT_CHARS).collect();
                self.last_failure = Some(Failure { at: now, kind: *kind, text });
            }
            HealthSignal::Uncounted => {}
        }
    }

    fn update_breaker(&mut self, signal: &HealthSignal, settings: &StatusSettings, now: Timestamp, jitter: f64) {
        match &self.breaker {
            Breaker::Closed => self.count_result(signal, settings, now),
            // The lease is checked before the time: a clock set back while the probe ran must not void its result.
            Breaker::Open { probe, openings, .. } if probe.is_some() || self.breaker.is_on_probation(now) => {
                let openings = openings.saturating_add(1);
                match signal {
                    _ if !settings.enabled => {}
                    HealthSignal::Success | HealthSignal::Uncounted => self.close(),
                    HealthSignal::Failure { .. } => {
                        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                        let until = interval::end_after(now, backoff(openings, settings, jitter));
                        self.open(now, until, openings, BreakerCause::InARow);
                    }
                }
            }
            Breaker::Open { .. } => {}
        }
    }

    fn count_result(&mut self, signal: &HealthSignal, settings: &StatusSettings, now: Timestamp) {
        let failed = match signal {
            HealthSignal::Uncounted => return,
            HealthSignal::Success => {
                // Also while counting is off: a success resets consecutive failures.
                self.consecutive_failures = 0;
                self.timed_out.clear();
                false
            }
            HealthSignal::Failure { .. } => true,
        };
        if !settings.enabled {
            return;
        }
        if let Some(window) = &settings.failure_window {
            self.recent.add(failed, window.window, now);
        }
        if failed {
            self.consecutive_failures = self.consecutive_failures.saturating_add(1);
            if let Some(cause) = self.cause_to_open(settings) {
                self.open(now, interval::end_after(now, settings.failure_duration), 1, cause);
            }
        }
    }

    fn cause_to_open(&self, settings: &StatusSettings) -> Option<BreakerCause> {
        if self.consecutive_failures >= settings.failure_threshold.max(1) {
            return Some(BreakerCause::InARow);
        }
        let window = settings.failure_window?;
        let (failed, total) = self.recent.failed_and_total();
        let has_minimum = total >= u64::from(window.minimum_calls);
        (has_minimum && failed as f64 >= window.failure_rate * total as f64)
            .then_some(BreakerCause::TooOften { failed, total })
    }

    fn open(&mut self, since: Timestamp, until: Timestamp, openings: u32, cause: BreakerCause) {
        self.breaker = Breaker::Open { since, until, openings, cause, probe: None };
        self.recent = super::RollingWindow::default();
        self.bump_epoch();
    }

    fn close(&mut self) {
        self.breaker = Breaker::Closed;
        self.consecutive_failures = 0;
        self.recent = super::RollingWindow::default();
        self.timed_out.clear();
        self.bump_epoch();
    }

    fn bump_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn take_probe(&mut self, id: CallId, lease: Duration, settings: &StatusSettings, now: Timestamp) {
        let is_free = settings.enabled && self.breaker.is_on_probation(now) && !self.breaker.has_active_probe(now);
        if let (true, Breaker::Open { probe, .. }) = (is_free, &mut self.breaker) {
            *probe = Some(ProbeLease { id, taken: now, lease_until: interval::end_after(now, lease) });
            // A probe whose lease expired may still end; its result now belongs to an old epoch.
            self.bump_epoch();
        }
    }

    fn release_probe(&mut self, id: CallId) {
        if self.is_probe_held_by(id)
            && let Breaker::Open { probe, .. } = &mut self.breaker
        {
            *probe = None;
        }
    }

    /// Closes the breaker after a health check. An operator who set `failed` knows more than a health check does, so only a
    /// call can close that breaker.
    fn close_unless_forced(&mut self) {
        if matches!(&self.breaker, Breaker::Open { cause, .. } if !matches!(cause, BreakerCause::ByHand { .. })) {
            self.close();
        }
    }

    fn end_cool_down(&mut self, now: Timestamp) {
        if let Breaker::Open { since, until, .. } = &mut self.breaker
            && now < *until
        {
            // An empty interval, so that a clock set back does not reactivate the cool-down.
            (*since, *until) = (now, now);
        }
    }
}

/// The cool-down after a failed probe: doubled each time up to the cap, then shortened by jitter.
fn backoff(openings: u32, settings: &StatusSettings, jitter: f64) -> Duration {
    let cap = settings.max_failure_duration.max(settings.failure_duration);
    let doubled = settings.failure_duration.saturating_mul(2u32.saturating_pow(openings.saturating_sub(1)));
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    let cool_down = interval::end_after(Timestamp::default(), doubled.min(cap)).millis() as f64;
    Duration::from_millis((cool_down * (1.0 - MAX_JITTER * jitter)).round() as u64)
}

#[cfg(test)]
mod tests;
