//! Rate limits of one tool (GCRA).
//!
//! In: the current limits, the subject of the call, and the time. Out: a permit, valid immediately or after a wait, or
//! the time after which to retry. All limits are checked together: if one refuses, none is charged. The state belongs
//! to the tool and survives a change of its limits. Nothing waits in here; the caller waits as long as the reservation
//! says.
//!
//! GCRA stores one theoretical arrival time (TAT) per key: the time at which all usage is paid back at the limit's
//! rate. A call passes if the TAT is at most one burst ahead of now, and advances it by one interval.
//!
//! A call that has to wait is charged to every limit immediately. So a long wait for one limit does not block others
//! from a second limit, although that one charges the call earlier than it starts.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use toolhub_storage::clock::Instant;
use toolhub_types::{
    ids::{Caller, Tenant, ThreadId},
    policy::RateLimit,
};

mod gcra;
#[cfg(test)]
mod tests;

use gcra::{Charge, GcraState, KeyedCharge, RateKey};

/// How many states of limits are kept that do not apply to the current call: calls with an older tool list keep
/// arriving for a while.
const MAX_STALE_STATES: usize = 8;

/// The states of one tool's limits: those of the latest call in their order, then stale ones.
#[derive(Default)]
pub(crate) struct Limiter(Mutex<Vec<GcraState>>);

/// The caller that the limits are charged to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) thread: Option<&'a ThreadId>,
    pub(crate) caller: &'a Caller,
}

/// A granted permit and when it becomes valid.
#[derive(Debug)]
#[must_use = "a call that does not wait violates the limit; one that does not run must refund its permit"]
pub(crate) struct Reservation {
    /// How long to wait before the call may start; zero for immediately.
    pub(crate) wait: Duration,
    pub(crate) permit: RatePermit,
}

/// The charges of one call, to be refunded if it does not run.
#[derive(Debug)]
#[must_use = "a call that does not run must refund its permit"]
pub(crate) struct RatePermit(Charges);

#[derive(Debug)]
enum Charges {
    /// A single limit with global scope. A variant of its own, because most tools have exactly that, and it needs
    /// neither a list nor a key.
    Global(Charge),
    /// One charge per limit.
    PerLimit(Vec<KeyedCharge>),
}

/// A rate limit is exhausted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    /// A retry after this time succeeds, unless other calls come first.
    pub(crate) retry_after: Duration,
    /// Index of the limit with the longest wait.
    pub(crate) limit_index: usize,
}

/// The remaining quota of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Index of the limit.
    pub(crate) limit_index: usize,
    /// How many calls would pass immediately.
    pub(crate) remaining: u32,
    /// After how long the full quota is available again.
    pub(crate) resets_in: Duration,
}

impl Limiter {
    /// Charges all limits, or none.
    ///
    /// # Errors
    /// When one of them is exhausted and the call may not wait, or not long enough.
    pub(crate) fn reserve(
        &self,
        limits: &[RateLimit],
        subject: Subject<'_>,
        now: Instant,
    ) -> Result<Reservation, RateExceeded> {
        let mut states = self.states_for(limits);
        let states = &mut states[..limits.len()];
        let mut wait = Duration::ZERO;
        let mut exceeded: Option<RateExceeded> = None;
        // With a single limit, the usual case, the key is built only once: it contains long strings.
        let mut last_key = None;
        for (index, state) in states.iter_mut().enumerate() {
            let key = state.key_for(subject);
            let until_valid = state.debt(&key, now).saturating_sub(state.params().tolerance);
            last_key = Some(key);
            wait = wait.max(until_valid);
            let retry_after = until_valid.saturating_sub(state.params().max_wait);
            if !retry_after.is_zero() && exceeded.as_ref().is_none_or(|worst| worst.retry_after < retry_after) {
                exceeded = Some(RateExceeded { retry_after, limit_index: index });
            }
        }
        if let Some(exceeded) = exceeded {
            return Err(exceeded);
        }
        let charges = match (states, last_key) {
            ([state], Some(key)) => match state.charge(key, now) {
                KeyedCharge { key: RateKey::Global, charge } => Charges::Global(charge),
                keyed => Charges::PerLimit(vec![keyed]),
            },
            (states, _) => {
                Charges::PerLimit(states.iter_mut().map(|state| state.charge(state.key_for(subject), now)).collect())
            }
        };
        Ok(Reservation { wait, permit: RatePermit(charges) })
    }

    /// Refunds a permit that was not used: the call was refused later, or its caller was dropped.
    ///
    /// If later calls were charged to the same key, the refund takes effect once those are refunded too. Their wait was
    /// computed on top of this charge; moving them, or granting the gap again, could let too many calls pass together.
    pub(crate) fn refund(&self, permit: RatePermit) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let charges = match permit.0 {
            Charges::Global(charge) => vec![KeyedCharge { key: RateKey::Global, charge }],
            Charges::PerLimit(charges) => charges,
        };
        for charge in charges {
            if let Some(state) = states.iter_mut().find(|state| state.issued(&charge)) {
                state.refund(charge);
            }
        }
    }

    /// The remaining quota of each limit.
    pub(crate) fn quotas(&self, limits: &[RateLimit], subject: Subject<'_>, now: Instant) -> Vec<Quota> {
        let mut states = self.states_for(limits);
        let quotas = states[..limits.len()].iter_mut().enumerate().map(|(index, state)| {
            let debt = state.debt(&state.key_for(subject), now);
            let remaining = match state.params().tolerance.checked_sub(debt) {
                Some(unused) => unused.as_nanos() / state.params().interval.as_nanos() + 1,
                None => 0,
            };
            Quota { limit_index: index, remaining: u32::try_from(remaining).unwrap_or(u32::MAX), resets_in: debt }
        });
        quotas.collect()
    }

    /// One state per limit, in their order, possibly followed by stale ones. When the limits change, compatible states
    /// are kept.
    fn states_for(&self, limits: &[RateLimit]) -> MutexGuard<'_, Vec<GcraState>> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = states.len() >= limits.len();
        if enough && states.iter().zip(limits).all(|(state, limit)| state.has_limit(limit)) {
            return states;
        }
        let compatible = enough && states.iter().zip(limits).all(|(state, limit)| state.is_compatible(limit));
        if !compatible {
            let mut old = std::mem::take(&mut *states);
            *states = limits
                .iter()
                .map(|limit| match old.iter().position(|state| state.is_compatible(limit)) {
                    Some(index) => old.remove(index),
                    None => GcraState::new(limit),
                })
                .collect();
            states.extend(old.into_iter().take(MAX_STALE_STATES));
        }
        states.iter_mut().zip(limits).for_each(|(state, limit)| state.set_limit(limit));
        states
    }
}
