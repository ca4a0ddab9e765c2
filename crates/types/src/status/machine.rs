//! The status machine: old facts and an event make new facts.
//!
//! In: a record, what happened, the settings, the time and a random number. Out: the record afterwards; the same
//! record where the event changes nothing. It neither decides in which record a failure counts (`scope.rs`) nor
//! whether a call may pass (`gate.rs`).
//!
//! Two threads of thought run through it. A result moves the breaker only if it belongs to the present epoch: a call
//! that began before the breaker opened says nothing about the tool on probation. And taking the permit changes the
//! record, so that of many callers with a compare-and-set exactly one becomes the probe.

use std::time::Duration;

use super::{
    Breaker, BreakerCause, Disabled, Failure, Override, OverrideStatus, ProbeLease, StatusRecord, StatusSettings,
    ThreadFingerprint, ToolStatus, span,
};
use crate::{error::ErrorKind, ids::CallId, timestamp::Timestamp};

/// How much a repeated wait is shortened at most, so that many tools do not all come back at once.
const MAX_JITTER: f64 = 0.2;

/// The longest operator's line that is kept, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Something that happened to a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum StatusEvent {
    /// A call ended with an answer of the tool.
    CallEnded {
        /// What the answer means.
        signal: HealthSignal,
        /// The record's epoch when the call was admitted (for a probe: after it took the permit). None for a result
        /// reported from elsewhere, which speaks of the present.
        epoch: Option<u64>,
    },
    /// A call asks for the permit to probe. It has it afterwards if [`Facts::is_probed_by`] says so.
    ProbeTaken {
        /// The call.
        id: CallId,
        /// How long the permit holds without an answer.
        lease: Duration,
    },
    /// The probe ended without an answer of the tool: refused, cancelled, never sent.
    ProbeReleased {
        /// The call.
        id: CallId,
    },
    /// A thread timed out. Told to the shared record before it is asked where the timeout counts.
    TimedOut {
        /// Which thread.
        by: ThreadFingerprint,
    },
    /// A reconnect or a health check found the tool well, without a call.
    Healthy,
    /// Somebody has disabled the tool.
    Disabled(Disabled),
    /// Somebody has enabled it again. Nothing else changes.
    Enabled,
    /// An operator said maintenance or unavailable.
    Overridden(Override),
    /// An operator said failed.
    ForcedFailed {
        /// Why, in the operator's words.
        reason: Option<String>,
        /// When probation begins, where the operator said so.
        until: Option<Timestamp>,
    },
    /// An operator said available: lifts the override and closes the breaker. What is known of results stays.
    ForcedAvailable,
    /// Probation begins now. What a thread's reset does to the shared record, and what a record is told whose wait
    /// lies ahead because a clock was set back ([`Breaker::is_ahead`]).
    CoolDownEnded,
    /// Everything is forgotten.
    Reset,
    /// A record that was saved takes this one's place.
    Restored(Box<StatusRecord>),
}

/// What the answer of a tool means for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthSignal {
    /// It did what it should.
    Success,
    /// It failed in a way that counts here.
    Failure {
        /// What went wrong.
        kind: ErrorKind,
        /// The line for operators.
        text: String,
    },
    /// It answered, in a way that does not count here. It neither counts nor ends a row of failures, but it shows
    /// that a tool on probation answers.
    Uncounted,
}

impl StatusEvent {
    /// What an operator's word means.
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

/// The record after an event. `jitter` is a random number from 0 to 1; it shortens repeated waits.
#[must_use]
pub fn apply(
    facts: &StatusRecord,
    event: &StatusEvent,
    settings: &StatusSettings,
    now: Timestamp,
    jitter: f64,
) -> StatusRecord {
    let mut next = facts.clone();
    match event {
        StatusEvent::CallEnded { signal: answer, epoch } => {
            next.record_last_times(answer, now);
            let current = epoch.is_none_or(|epoch| epoch == facts.epoch);
            if current {
                next.update_breaker(answer, settings, now, jitter);
            }
        }
        StatusEvent::ProbeTaken { id, lease } => next.take_probe(*id, *lease, settings, now),
        StatusEvent::ProbeReleased { id } => next.return_probe(*id),
        StatusEvent::TimedOut { by } if settings.enabled => by.add_to(&mut next.timed_out),
        StatusEvent::Healthy if settings.enabled => next.close_unless_forced(),
        StatusEvent::TimedOut { .. } | StatusEvent::Healthy => {}
        StatusEvent::Disabled(switch) => next.disabled = Some(switch.clone()),
        StatusEvent::Enabled => next.disabled = None,
        StatusEvent::Overridden(word) => next.operator_override = Some(word.clone()),
        StatusEvent::ForcedFailed { reason, until } => {
            let until = until.unwrap_or_else(|| span::end_after(now, settings.failure_duration));
            next.open(now, until, 1, BreakerCause::ByHand { reason: reason.clone() });
        }
        StatusEvent::ForcedAvailable => {
            next.operator_override = None;
            next.close();
        }
        StatusEvent::CoolDownEnded => next.end_cool_down(now),
        // The epoch outlives everything: a call that is still running must not count in the new life.
        // A tool that is disabled stays so: that is no trouble it had.
        StatusEvent::Reset => {
            let (epoch, disabled) = (facts.epoch.wrapping_add(1), facts.disabled.clone());
            next = StatusRecord { epoch, disabled, ..StatusRecord::default() };
        }
        StatusEvent::Restored(saved) => {
            // A permit of another life was never taken here.
            let mut saved = (**saved).clone();
            if let Breaker::Open { probe, .. } = &mut saved.breaker {
                *probe = None;
            }
            // The epoch is this life's: one from a text could lead back to that of a call which still runs.
            let (epoch, disabled) = (facts.epoch.wrapping_add(1), facts.disabled.clone());
            next = StatusRecord { epoch, disabled, ..saved };
        }
    }
    if next != *facts {
        next.updated = Some(now);
    }
    next
}

impl StatusRecord {
    /// Keeps the times. They are told even when the result is too old to move anything, or counting is off.
    fn record_last_times(&mut self, answer: &HealthSignal, now: Timestamp) {
        match answer {
            HealthSignal::Success => self.last_success = Some(now),
            HealthSignal::Failure { kind, text } => {
                let text = text.chars().take(MAX_TEXT_CHARS).collect();
                self.last_failure = Some(Failure { at: now, kind: *kind, text });
            }
            HealthSignal::Uncounted => {}
        }
    }

    fn update_breaker(&mut self, answer: &HealthSignal, settings: &StatusSettings, now: Timestamp, jitter: f64) {
        match &self.breaker {
            Breaker::Closed => self.count_result(answer, settings, now),
            // The permit is asked first: a clock set back while the probe ran must not void its answer.
            Breaker::Open { probe, openings, .. } if probe.is_some() || self.breaker.is_on_probation(now) => {
                let openings = openings.saturating_add(1);
                match answer {
                    _ if !settings.enabled => {}
                    HealthSignal::Success | HealthSignal::Uncounted => self.close(),
                    HealthSignal::Failure { .. } => {
                        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                        let until = span::end_after(now, backoff(openings, settings, jitter));
                        self.open(now, until, openings, BreakerCause::InARow);
                    }
                }
            }
            Breaker::Open { .. } => {}
        }
    }

    fn count_result(&mut self, answer: &HealthSignal, settings: &StatusSettings, now: Timestamp) {
        let failed = match answer {
            HealthSignal::Uncounted => return,
            HealthSignal::Success => {
                // Also while counting is off: a success in between ends a row of failures.
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
                self.open(now, span::end_after(now, settings.failure_duration), 1, cause);
            }
        }
    }

    fn cause_to_open(&self, settings: &StatusSettings) -> Option<BreakerCause> {
        if self.consecutive_failures >= settings.failure_threshold.max(1) {
            return Some(BreakerCause::InARow);
        }
        let window = settings.failure_window?;
        let (failed, total) = self.recent.failed_and_total();
        let enough = total >= u64::from(window.minimum_calls);
        (enough && failed as f64 >= window.failure_rate * total as f64)
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
        let free = settings.enabled && self.breaker.is_on_probation(now) && !self.breaker.has_active_probe(now);
        if let (true, Breaker::Open { probe, .. }) = (free, &mut self.breaker) {
            *probe = Some(ProbeLease { id, taken: now, lease_until: span::end_after(now, lease) });
            // A prober whose lease ran out may still answer; from here on that answer is an old one.
            self.bump_epoch();
        }
    }

    fn return_probe(&mut self, id: CallId) {
        if self.is_probe_held_by(id)
            && let Breaker::Open { probe, .. } = &mut self.breaker
        {
            *probe = None;
        }
    }

    /// An operator who said "failed" knows something that a health check does not, so only a call ends that.
    fn close_unless_forced(&mut self) {
        if matches!(&self.breaker, Breaker::Open { cause, .. } if !matches!(cause, BreakerCause::ByHand { .. })) {
            self.close();
        }
    }

    fn end_cool_down(&mut self, now: Timestamp) {
        if let Breaker::Open { since, until, .. } = &mut self.breaker
            && now < *until
        {
            // An empty stretch, so that a clock set back does not bring the wait to life again.
            (*since, *until) = (now, now);
        }
    }
}

/// The wait after a failed probe: doubled each time up to the cap, then shortened a little by chance.
fn backoff(openings: u32, settings: &StatusSettings, jitter: f64) -> Duration {
    let cap = settings.longest.max(settings.failure_duration);
    let doubled = settings.failure_duration.saturating_mul(2u32.saturating_pow(openings.saturating_sub(1)));
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    let wait = span::end_after(Timestamp::default(), doubled.min(cap)).millis() as f64;
    Duration::from_millis((wait * (1.0 - MAX_JITTER * jitter)).round() as u64)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
