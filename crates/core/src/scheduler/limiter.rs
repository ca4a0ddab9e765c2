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

mod ledger;
#[cfg(test)]
mod tests;

use ledger::{Ledger, Party, Taken, Use};

/// How many limits are remembered that do not hold for the call that asks. Calls by an older list go on to come for a while.
const SPARE: usize = 8;

/// The memory of one tool's limits: those of the latest call in their order, then others that held lately.
#[derive(Default)]
pub(crate) struct Limiter(Mutex<Vec<Ledger>>);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) thread: Option<&'a ThreadId>,
    pub(crate) caller: &'a Caller,
}

/// A turn that was given.
#[derive(Debug)]
#[must_use = "a call that waits too little breaks the limit; one that does not run gives its turn back"]
pub(crate) struct Granted {
    /// How long to wait for the turn. Zero: go now.
    pub(crate) wait: Duration,
    pub(crate) token: Token,
}

/// What a turn took.
#[derive(Debug)]
#[must_use = "a call that does not run gives its turn back"]
pub(crate) struct Token(Took);

#[derive(Debug)]
enum Took {
    /// One limit, for everybody together. Apart from the others, because most tools have one limit and that is of this
    /// sort; a list takes memory, and names of parties are long.
    Everybody(Use),
    /// What each limit counted.
    Each(Vec<Taken>),
}

/// Too many calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Asking again after this succeeds, if nobody else comes.
    pub(crate) retry_after: Duration,
    /// The limit that holds longest, by its place in the list.
    pub(crate) limit: usize,
}

/// What is left of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    /// The limit, by its place in the list.
    pub(crate) limit: usize,
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
    pub(crate) fn take(&self, limits: &[RateLimit], who: Asker<'_>, now: Instant) -> Result<Granted, Excess> {
        let mut ledgers = self.ledgers(limits);
        let ledgers = &mut ledgers[..limits.len()];
        let mut wait = Duration::ZERO;
        let mut excess: Option<Excess> = None;
        // Made once where there is one limit, as mostly: names are long.
        let mut only = None;
        for (at, ledger) in ledgers.iter_mut().enumerate() {
            let party = ledger.party(who);
            let until_turn = ledger.debt(&party, now).saturating_sub(ledger.pace().tolerance);
            only = Some(party);
            wait = wait.max(until_turn);
            let retry_after = until_turn.saturating_sub(ledger.pace().patience);
            if !retry_after.is_zero() && excess.as_ref().is_none_or(|worse| worse.retry_after < retry_after) {
                excess = Some(Excess { retry_after, limit: at });
            }
        }
        if let Some(excess) = excess {
            return Err(excess);
        }
        let took = match (ledgers, only) {
            ([ledger], Some(party)) => match ledger.take(party, now) {
                Taken { party: Party::Everybody, used } => Took::Everybody(used),
                taken => Took::Each(vec![taken]),
            },
            (all, _) => Took::Each(all.iter_mut().map(|ledger| ledger.take(ledger.party(who), now)).collect()),
        };
        Ok(Granted { wait, token: Token(took) })
    }

    /// Undoes a turn that was not used: the call was refused later, or its caller left.
    ///
    /// Where somebody else took a turn in between, it comes back when they undo theirs too. Theirs was given with this
    /// one in mind, and moving it or selling the gap twice could let too many pass together.
    pub(crate) fn give_back(&self, token: Token) {
        let mut ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = match token.0 {
            Took::Everybody(used) => vec![Taken { party: Party::Everybody, used }],
            Took::Each(all) => all,
        };
        for taken in all {
            if let Some(ledger) = ledgers.iter_mut().find(|ledger| ledger.took(&taken)) {
                ledger.give_back(taken);
            }
        }
    }

    /// What is left of each limit.
    pub(crate) fn left(&self, limits: &[RateLimit], who: Asker<'_>, now: Instant) -> Vec<Left> {
        let mut ledgers = self.ledgers(limits);
        let left = ledgers[..limits.len()].iter_mut().enumerate().map(|(at, ledger)| {
            let debt = ledger.debt(&ledger.party(who), now);
            let remaining = match ledger.pace().tolerance.checked_sub(debt) {
                Some(room) => room.as_nanos() / ledger.pace().interval.as_nanos() + 1,
                None => 0,
            };
            Left { limit: at, remaining: u32::try_from(remaining).unwrap_or(u32::MAX), resets_in: debt }
        });
        left.collect()
    }

    /// One ledger for each limit, in their order, and maybe others behind them. After a change those that still fit are kept.
    fn ledgers(&self, limits: &[RateLimit]) -> MutexGuard<'_, Vec<Ledger>> {
        let mut ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = ledgers.len() >= limits.len();
        if enough && ledgers.iter().zip(limits).all(|(ledger, limit)| ledger.holds_to(limit)) {
            return ledgers;
        }
        let fit = enough && ledgers.iter().zip(limits).all(|(ledger, limit)| ledger.fits(limit));
        if !fit {
            let mut old = std::mem::take(&mut *ledgers);
            *ledgers = limits
                .iter()
                .map(|limit| match old.iter().position(|ledger| ledger.fits(limit)) {
                    Some(at) => old.remove(at),
                    None => Ledger::new(limit),
                })
                .collect();
            ledgers.extend(old.into_iter().take(SPARE));
        }
        ledgers.iter_mut().zip(limits).for_each(|(ledger, limit)| ledger.hold_to(limit));
        ledgers
    }
}
