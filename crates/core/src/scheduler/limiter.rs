//! Holds a tool's calls to its rate limits.
//!
//! In: the limits as they are now, who asks, and the time. Out: a turn, at once or after a wait, or how long to stay
//! away. All limits are asked together, and a refusal by one takes nothing from the others. The memory is the tool's
//! and outlives a change of its limits. Nobody waits in here; the caller does, for as long as the token says.
//!
//! The rule is GCRA: each party has one moment, the time at which everything it used is paid back at the limit's
//! pace. A call passes when that moment is no more than a burst ahead, and pushes it one interval further.
//!
//! A call that has to wait takes its turn of every limit at the moment it asks. So a long wait for one limit does not
//! keep others away from a second one; that one may see the call later than it counted it.

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

/// How many limits are remembered that do not hold for the call that asks. Calls by an older list go on to come for a while.
const MAX_STALE_STATES: usize = 8;

/// The memory of one tool's limits: those of the latest call in their order, then others that held lately.
#[derive(Default)]
pub(crate) struct Limiter(Mutex<Vec<GcraState>>);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) thread: Option<&'a ThreadId>,
    pub(crate) caller: &'a Caller,
}

/// A turn that was given.
#[derive(Debug)]
#[must_use = "a call that waits too little breaks the limit; one that does not run gives its turn back"]
pub(crate) struct Reservation {
    /// How long to wait for the turn. Zero: go now.
    pub(crate) wait: Duration,
    pub(crate) permit: RatePermit,
}

/// What a turn took.
#[derive(Debug)]
#[must_use = "a call that does not run gives its turn back"]
pub(crate) struct RatePermit(Charges);

#[derive(Debug)]
enum Charges {
    /// One limit, for everybody together. Apart from the others, because most tools have one limit and that is of this
    /// sort; a list takes memory, and names of parties are long.
    Global(Charge),
    /// What each limit counted.
    PerLimit(Vec<KeyedCharge>),
}

/// Too many calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    /// Asking again after this succeeds, if nobody else comes.
    pub(crate) retry_after: Duration,
    /// The limit that holds longest, by its place in the list.
    pub(crate) limit_index: usize,
}

/// What is left of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quota {
    /// The limit, by its place in the list.
    pub(crate) limit_index: usize,
    /// How many calls would pass at once.
    pub(crate) remaining: u32,
    /// After how long all of it is there again.
    pub(crate) resets_in: Duration,
}

impl Limiter {
    /// A turn under all limits, or under none.
    ///
    /// # Errors
    /// When one of them is used up and a call may not wait, or not that long.
    pub(crate) fn reserve(
        &self,
        limits: &[RateLimit],
        who: Subject<'_>,
        now: Instant,
    ) -> Result<Reservation, RateExceeded> {
        let mut ledgers = self.states_for(limits);
        let ledgers = &mut ledgers[..limits.len()];
        let mut wait = Duration::ZERO;
        let mut excess: Option<RateExceeded> = None;
        // Made once where there is one limit, as mostly: names are long.
        let mut only = None;
        for (at, ledger) in ledgers.iter_mut().enumerate() {
            let party = ledger.key_for(who);
            let until_turn = ledger.debt(&party, now).saturating_sub(ledger.params().tolerance);
            only = Some(party);
            wait = wait.max(until_turn);
            let retry_after = until_turn.saturating_sub(ledger.params().max_wait);
            if !retry_after.is_zero() && excess.as_ref().is_none_or(|worse| worse.retry_after < retry_after) {
                excess = Some(RateExceeded { retry_after, limit_index: at });
            }
        }
        if let Some(excess) = excess {
            return Err(excess);
        }
        let took = match (ledgers, only) {
            ([ledger], Some(party)) => match ledger.charge(party, now) {
                KeyedCharge { key: RateKey::Global, charge: used } => Charges::Global(used),
                taken => Charges::PerLimit(vec![taken]),
            },
            (all, _) => {
                Charges::PerLimit(all.iter_mut().map(|ledger| ledger.charge(ledger.key_for(who), now)).collect())
            }
        };
        Ok(Reservation { wait, permit: RatePermit(took) })
    }

    /// Undoes a turn that was not used: the call was refused later, or its caller left.
    ///
    /// Where somebody else took a turn in between, it comes back when they undo theirs too. Theirs was given with this
    /// one in mind, and moving it or selling the gap twice could let too many pass together.
    pub(crate) fn refund(&self, token: RatePermit) {
        let mut ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = match token.0 {
            Charges::Global(charge) => vec![KeyedCharge { key: RateKey::Global, charge }],
            Charges::PerLimit(all) => all,
        };
        for taken in all {
            if let Some(ledger) = ledgers.iter_mut().find(|ledger| ledger.issued(&taken)) {
                ledger.refund(taken);
            }
        }
    }

    /// What is left of each limit.
    pub(crate) fn quotas(&self, limits: &[RateLimit], who: Subject<'_>, now: Instant) -> Vec<Quota> {
        let mut ledgers = self.states_for(limits);
        let left = ledgers[..limits.len()].iter_mut().enumerate().map(|(at, ledger)| {
            let debt = ledger.debt(&ledger.key_for(who), now);
            let remaining = match ledger.params().tolerance.checked_sub(debt) {
                Some(room) => room.as_nanos() / ledger.params().interval.as_nanos() + 1,
                None => 0,
            };
            Quota { limit_index: at, remaining: u32::try_from(remaining).unwrap_or(u32::MAX), resets_in: debt }
        });
        left.collect()
    }

    /// One ledger for each limit, in their order, and maybe others behind them. After a change those that still fit are kept.
    fn states_for(&self, limits: &[RateLimit]) -> MutexGuard<'_, Vec<GcraState>> {
        let mut ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = ledgers.len() >= limits.len();
        if enough && ledgers.iter().zip(limits).all(|(ledger, limit)| ledger.has_limit(limit)) {
            return ledgers;
        }
        let fit = enough && ledgers.iter().zip(limits).all(|(ledger, limit)| ledger.is_compatible(limit));
        if !fit {
            let mut old = std::mem::take(&mut *ledgers);
            *ledgers = limits
                .iter()
                .map(|limit| match old.iter().position(|ledger| ledger.is_compatible(limit)) {
                    Some(at) => old.remove(at),
                    None => GcraState::new(limit),
                })
                .collect();
            ledgers.extend(old.into_iter().take(MAX_STALE_STATES));
        }
        ledgers.iter_mut().zip(limits).for_each(|(ledger, limit)| ledger.set_limit(limit));
        ledgers
    }
}
