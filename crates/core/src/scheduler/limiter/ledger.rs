//! What each party has used of one limit.
//!
//! In: a limit, who asks, the time. Out: how far ahead their moment is. A moment that has passed says nothing more
//! than no moment at all, so such parties are forgotten from time to time. Whether a call passes is decided outside.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::Asker;
use toolhub_storage::clock::{Instant, after};
use toolhub_types::{
    ids::{Caller, Tenant, ThreadId},
    policy::{RateLimit, RateScope},
};

/// The moments of all parties that share one limit each.
pub(super) struct Ledger {
    /// Tells it from others, which may look alike.
    id: u64,
    limit: RateLimit,
    pace: Pace,
    moments: HashMap<Party, Instant>,
    /// The one moment of a limit that everybody shares: found without a look into the map.
    everybody: Option<Instant>,
    /// The moments of calls that were undone while others stood behind them, and how much each took. They are free when
    /// those leave too.
    undone: HashMap<Party, BTreeMap<Instant, Duration>>,
    /// Look for moments that have passed when there are this many, or at this time.
    crowded: usize,
    stale: Option<Instant>,
}

/// What a call took, so that it can be given back.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) party: Party,
    pub(super) used: Use,
}

/// Where a call took it, and how much.
#[derive(Debug)]
pub(super) struct Use {
    ledger: u64,
    interval: Duration,
    /// The party's moment as this call left it.
    moment: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Everybody,
    Thread(Tenant, Option<ThreadId>),
    Caller(Tenant, Caller),
}

/// Fewer parties than this are not worth a look.
const FEW: usize = 1_024;

impl Ledger {
    pub(super) fn new(limit: &RateLimit) -> Self {
        static LEDGERS: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LEDGERS.fetch_add(1, Relaxed),
            limit: limit.clone(),
            pace: Pace::of(limit),
            moments: HashMap::new(),
            everybody: None,
            undone: HashMap::new(),
            crowded: FEW,
            stale: None,
        }
    }

    /// Whether what is remembered here means the same under this limit. Another number of requests in the same period
    /// does: a party that used half of its period has still used half of it.
    pub(super) fn fits(&self, limit: &RateLimit) -> bool {
        self.limit.scope == limit.scope && self.limit.per == limit.per
    }

    /// Whether calls are held to this very limit already.
    pub(super) fn holds_to(&self, limit: &RateLimit) -> bool {
        self.limit == *limit
    }

    /// Calls are held to this limit from now on. It fits.
    pub(super) fn hold_to(&mut self, limit: &RateLimit) {
        (self.limit, self.pace) = (limit.clone(), Pace::of(limit));
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Under whose name this limit counts the calls of whoever asks.
    pub(super) fn party(&self, who: Asker<'_>) -> Party {
        Party::of(self.limit.scope, who)
    }

    /// How far ahead the party's moment is.
    pub(super) fn debt(&mut self, party: &Party, now: Instant) -> Duration {
        let Some(moment) = moment(&mut self.moments, &mut self.everybody, party) else { return Duration::ZERO };
        // Under this limit nobody can be further ahead. A limit that was wider before must not shut anybody out for
        // longer than it says itself.
        let furthest = after(now, self.pace.most);
        if *moment > furthest {
            *moment = furthest;
            self.undone.remove(party);
        }
        moment.saturating_duration_since(now)
    }

    /// Uses one call.
    pub(super) fn take(&mut self, party: Party, now: Instant) -> Taken {
        self.forget(now);
        self.forget_undone(&party, now);
        let moment = match moment(&mut self.moments, &mut self.everybody, &party) {
            Some(known) => known,
            None if party == Party::Everybody => self.everybody.insert(now),
            None => self.moments.entry(party.clone()).or_insert(now),
        };
        let interval = self.pace.interval;
        *moment = after((*moment).max(now), interval);
        let used = Use { ledger: self.id, interval, moment: *moment };
        Taken { party, used }
    }

    /// Whether this call was taken here.
    pub(super) fn took(&self, taken: &Taken) -> bool {
        self.id == taken.used.ledger
    }

    /// Undoes a use: now if it was the last, otherwise as soon as all behind it are undone.
    pub(super) fn give_back(&mut self, taken: Taken) {
        let Taken { party, used: Use { interval, moment: left, .. } } = taken;
        // Gone, or pulled back by a limit that is narrower now: nothing is known of this use any more.
        let moment = moment(&mut self.moments, &mut self.everybody, &party);
        let Some(moment) = moment.filter(|moment| **moment >= left) else { return };
        if *moment > left {
            self.undone.entry(party).or_default().insert(left, interval);
            return;
        }
        *moment -= interval;
        if let Some(undone) = self.undone.get_mut(&party) {
            while let Some(interval) = undone.remove(moment) {
                *moment -= interval;
            }
            if undone.is_empty() {
                self.undone.remove(&party);
            }
        }
    }

    /// What was undone in the past is paid back already.
    fn forget_undone(&mut self, party: &Party, now: Instant) {
        if self.undone.is_empty() {
            return;
        }
        if let Some(undone) = self.undone.get_mut(party) {
            *undone = undone.split_off(&now);
            if undone.is_empty() {
                self.undone.remove(party);
            }
        }
    }

    /// Forgets the moments that have passed. Done when twice as many parties have come as stayed the last time, and
    /// after a period in which each could have paid back all: whoever is looked at in vain has been here since.
    fn forget(&mut self, now: Instant) {
        let most = self.pace.most;
        let stale = *self.stale.get_or_insert_with(|| after(now, most));
        if self.moments.len() >= self.crowded || (now >= stale && self.moments.len() > 1) {
            self.moments.retain(|_, moment| *moment > now);
            self.undone.retain(|party, _| *party == Party::Everybody || self.moments.contains_key(party));
            self.crowded = FEW.max(self.moments.len() * 2);
            self.moments.shrink_to(self.crowded);
            self.stale = Some(after(now, most));
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.moments.len()
    }
}

/// A party's moment.
fn moment<'a>(
    moments: &'a mut HashMap<Party, Instant>,
    everybody: &'a mut Option<Instant>,
    party: &Party,
) -> Option<&'a mut Instant> {
    match party {
        Party::Everybody => everybody.as_mut(),
        party => moments.get_mut(party),
    }
}

/// What follows from a limit, worked out once.
pub(super) struct Pace {
    /// The time one call takes up.
    pub(super) interval: Duration,
    /// How far ahead a party's moment may be for one more call to pass.
    pub(super) tolerance: Duration,
    /// How long a call may wait for its turn.
    pub(super) patience: Duration,
    /// The furthest ahead a moment can be: a whole burst used, and as many waiting as may.
    most: Duration,
}

impl Pace {
    fn of(limit: &RateLimit) -> Self {
        let (interval, patience) = (limit.interval(), limit.patience());
        let tolerance = interval.saturating_mul(limit.at_once() - 1);
        Self { interval, tolerance, patience, most: tolerance.saturating_add(interval).saturating_add(patience) }
    }
}

impl Party {
    fn of(scope: RateScope, who: Asker<'_>) -> Self {
        match scope {
            RateScope::Tool => Self::Everybody,
            RateScope::Thread => Self::Thread(who.tenant.clone(), who.thread.cloned()),
            RateScope::Caller => Self::Caller(who.tenant.clone(), who.caller.clone()),
        }
    }
}
