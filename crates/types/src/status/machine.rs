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
    Breaker, Cause, Disabled, Facts, Failure, Hold, Override, Permit, StatusSettings, Sufferer, ToolStatus, span,
};
use crate::{error::ErrorKind, ids::CallId, timestamp::Timestamp};

/// How much a repeated wait is shortened at most, so that many tools do not all come back at once.
const JITTER: f64 = 0.2;

/// The longest operator's line that is kept, in characters.
const LONGEST_TEXT: usize = 500;

/// Something that happened to a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A call ended with an answer of the tool.
    Answered {
        /// What the answer means.
        answer: Answer,
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
    ProbeReturned {
        /// The call.
        id: CallId,
    },
    /// A thread timed out. Told to the shared record before it is asked where the timeout counts.
    TimedOut {
        /// Which thread.
        by: Sufferer,
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
    FailedByHand {
        /// Why, in the operator's words.
        reason: Option<String>,
        /// When probation begins, where the operator said so.
        until: Option<Timestamp>,
    },
    /// An operator said available: lifts the override and closes the breaker. What is known of results stays.
    MadeAvailable,
    /// Probation begins now. What a thread's reset does to the shared record, and what a record is told whose wait
    /// lies ahead because a clock was set back ([`Breaker::is_ahead`]).
    CoolDownEnded,
    /// Everything is forgotten.
    Reset,
    /// A record that was saved takes this one's place.
    Restored(Box<Facts>),
}

/// What the answer of a tool means for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
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

impl Event {
    /// What an operator's word means.
    #[must_use]
    pub fn by_hand(status: ToolStatus, reason: Option<String>, until: Option<Timestamp>) -> Self {
        match status {
            ToolStatus::Available => Self::MadeAvailable,
            ToolStatus::Failed => Self::FailedByHand { reason, until },
            ToolStatus::Maintenance => Self::Overridden(Override { status: Hold::Maintenance, reason, until }),
            ToolStatus::Unavailable => Self::Overridden(Override { status: Hold::Unavailable, reason, until }),
        }
    }
}

/// The record after an event. `jitter` is a random number from 0 to 1; it shortens repeated waits.
#[must_use]
pub fn apply(facts: &Facts, event: &Event, settings: &StatusSettings, now: Timestamp, jitter: f64) -> Facts {
    let mut next = facts.clone();
    match event {
        Event::Answered { answer, epoch } => {
            next.remember(answer, now);
            let current = epoch.is_none_or(|epoch| epoch == facts.epoch);
            if current {
                next.judge(answer, settings, now, jitter);
            }
        }
        Event::ProbeTaken { id, lease } => next.take_probe(*id, *lease, settings, now),
        Event::ProbeReturned { id } => next.return_probe(*id),
        Event::TimedOut { by } if settings.enabled => by.join(&mut next.timed_out),
        Event::Healthy if settings.enabled => next.heal(),
        Event::TimedOut { .. } | Event::Healthy => {}
        Event::Disabled(switch) => next.disabled = Some(switch.clone()),
        Event::Enabled => next.disabled = None,
        Event::Overridden(word) => next.operator = Some(word.clone()),
        Event::FailedByHand { reason, until } => {
            let until = until.unwrap_or_else(|| span::end(now, settings.failure_duration));
            next.open(now, until, 1, Cause::ByHand { reason: reason.clone() });
        }
        Event::MadeAvailable => {
            next.operator = None;
            next.close();
        }
        Event::CoolDownEnded => next.end_cool_down(now),
        // The epoch outlives everything: a call that is still running must not count in the new life.
        // A tool that is disabled stays so: that is no trouble it had.
        Event::Reset => {
            let (epoch, disabled) = (facts.epoch.wrapping_add(1), facts.disabled.clone());
            next = Facts { epoch, disabled, ..Facts::default() };
        }
        Event::Restored(saved) => {
            // A permit of another life was never taken here.
            let mut saved = (**saved).clone();
            if let Breaker::Open { probe, .. } = &mut saved.breaker {
                *probe = None;
            }
            // The epoch is this life's: one from a text could lead back to that of a call which still runs.
            let (epoch, disabled) = (facts.epoch.wrapping_add(1), facts.disabled.clone());
            next = Facts { epoch, disabled, ..saved };
        }
    }
    if next != *facts {
        next.updated = Some(now);
    }
    next
}

impl Facts {
    /// Keeps the times. They are told even when the result is too old to move anything, or counting is off.
    fn remember(&mut self, answer: &Answer, now: Timestamp) {
        match answer {
            Answer::Success => self.last_success = Some(now),
            Answer::Failure { kind, text } => {
                let text = text.chars().take(LONGEST_TEXT).collect();
                self.last_failure = Some(Failure { at: now, kind: *kind, text });
            }
            Answer::Uncounted => {}
        }
    }

    fn judge(&mut self, answer: &Answer, settings: &StatusSettings, now: Timestamp, jitter: f64) {
        match &self.breaker {
            Breaker::Closed => self.count(answer, settings, now),
            // The permit is asked first: a clock set back while the probe ran must not void its answer.
            Breaker::Open { probe, openings, .. } if probe.is_some() || self.breaker.on_probation(now) => {
                let openings = openings.saturating_add(1);
                match answer {
                    _ if !settings.enabled => {}
                    Answer::Success | Answer::Uncounted => self.close(),
                    Answer::Failure { .. } => {
                        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                        let until = span::end(now, repeated_wait(openings, settings, jitter));
                        self.open(now, until, openings, Cause::InARow);
                    }
                }
            }
            Breaker::Open { .. } => {}
        }
    }

    fn count(&mut self, answer: &Answer, settings: &StatusSettings, now: Timestamp) {
        let failed = match answer {
            Answer::Uncounted => return,
            Answer::Success => {
                // Also while counting is off: a success in between ends a row of failures.
                self.consecutive_failures = 0;
                self.timed_out.clear();
                false
            }
            Answer::Failure { .. } => true,
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
                self.open(now, span::end(now, settings.failure_duration), 1, cause);
            }
        }
    }

    fn cause_to_open(&self, settings: &StatusSettings) -> Option<Cause> {
        if self.consecutive_failures >= settings.failure_threshold.max(1) {
            return Some(Cause::InARow);
        }
        let window = settings.failure_window?;
        let (failed, total) = self.recent.tally();
        let enough = total >= u64::from(window.minimum_calls);
        (enough && failed as f64 >= window.failure_rate * total as f64).then_some(Cause::TooOften { failed, total })
    }

    fn open(&mut self, since: Timestamp, until: Timestamp, openings: u32, cause: Cause) {
        self.breaker = Breaker::Open { since, until, openings, cause, probe: None };
        self.recent = super::Recent::default();
        self.turn();
    }

    fn close(&mut self) {
        self.breaker = Breaker::Closed;
        self.consecutive_failures = 0;
        self.recent = super::Recent::default();
        self.timed_out.clear();
        self.turn();
    }

    fn turn(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn take_probe(&mut self, id: CallId, lease: Duration, settings: &StatusSettings, now: Timestamp) {
        let free = settings.enabled && self.breaker.on_probation(now) && !self.breaker.is_probed(now);
        if let (true, Breaker::Open { probe, .. }) = (free, &mut self.breaker) {
            *probe = Some(Permit { id, taken: now, lease_until: span::end(now, lease) });
            // A prober whose lease ran out may still answer; from here on that answer is an old one.
            self.turn();
        }
    }

    fn return_probe(&mut self, id: CallId) {
        if self.is_probed_by(id)
            && let Breaker::Open { probe, .. } = &mut self.breaker
        {
            *probe = None;
        }
    }

    /// An operator who said "failed" knows something that a health check does not, so only a call ends that.
    fn heal(&mut self) {
        if matches!(&self.breaker, Breaker::Open { cause, .. } if !matches!(cause, Cause::ByHand { .. })) {
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
fn repeated_wait(openings: u32, settings: &StatusSettings, jitter: f64) -> Duration {
    let cap = settings.longest.max(settings.failure_duration);
    let doubled = settings.failure_duration.saturating_mul(2u32.saturating_pow(openings.saturating_sub(1)));
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    let wait = span::end(Timestamp::default(), doubled.min(cap)).millis() as f64;
    Duration::from_millis((wait * (1.0 - JITTER * jitter)).round() as u64)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
