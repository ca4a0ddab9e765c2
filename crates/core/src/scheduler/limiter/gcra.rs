//! What each party has used of one limit.
//!
//! In: a limit, who asks, the time. Out: how far ahead their moment is. A moment that has passed says nothing more
//! than no moment at all, so such parties are forgotten from time to time. Whether a call passes is decided outside.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::Subject;
use toolhub_storage::clock::{Instant, deadline_after};
use toolhub_types::{
    ids::{Caller, Tenant, ThreadId},
    policy::{RateLimit, RateScope},
};

/// The moments of all parties that share one limit each.
pub(super) struct GcraState {
    /// Tells it from others, which may look alike.
    id: u64,
    limit: RateLimit,
    params: GcraParams,
    tats: HashMap<RateKey, Instant>,
    /// The one moment of a limit that everybody shares: found without a look into the map.
    global_tat: Option<Instant>,
    /// The moments of calls that were undone while others stood behind them, and how much each took. They are free when
    /// those leave too.
    refunds: HashMap<RateKey, BTreeMap<Instant, Duration>>,
    /// Look for moments that have passed when there are this many, or at this time.
    prune_len: usize,
    prune_at: Option<Instant>,
}

/// What a call took, so that it can be given back.
#[derive(Debug)]
pub(super) struct KeyedCharge {
    pub(super) key: RateKey,
    pub(super) charge: Charge,
}

/// Where a call took it, and how much.
#[derive(Debug)]
pub(super) struct Charge {
    state_id: u64,
    interval: Duration,
    /// The party's moment as this call left it.
    tat: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RateKey {
    Global,
    Thread(Tenant, Option<ThreadId>),
    Caller(Tenant, Caller),
}

/// Fewer parties than this are not worth a look.
const MIN_PRUNE_LEN: usize = 1_024;

impl GcraState {
    pub(super) fn new(limit: &RateLimit) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            limit: limit.clone(),
            params: GcraParams::from_limit(limit),
            tats: HashMap::new(),
            global_tat: None,
            refunds: HashMap::new(),
            prune_len: MIN_PRUNE_LEN,
            prune_at: None,
        }
    }

    /// Whether what is remembered here means the same under this limit. Another number of requests in the same period
    /// does: a party that used half of its period has still used half of it.
    pub(super) fn is_compatible(&self, limit: &RateLimit) -> bool {
        self.limit.scope == limit.scope && self.limit.per == limit.per
    }

    /// Whether calls are held to this very limit already.
    pub(super) fn has_limit(&self, limit: &RateLimit) -> bool {
        self.limit == *limit
    }

    /// Calls are held to this limit from now on. It fits.
    pub(super) fn set_limit(&mut self, limit: &RateLimit) {
        (self.limit, self.params) = (limit.clone(), GcraParams::from_limit(limit));
    }

    pub(super) fn params(&self) -> &GcraParams {
        &self.params
    }

    /// Under whose name this limit counts the calls of whoever asks.
    pub(super) fn key_for(&self, who: Subject<'_>) -> RateKey {
        RateKey::from_scope(self.limit.scope, who)
    }

    /// How far ahead the party's moment is.
    pub(super) fn debt(&mut self, party: &RateKey, now: Instant) -> Duration {
        let Some(moment) = tat_of(&mut self.tats, &mut self.global_tat, party) else { return Duration::ZERO };
        // Under this limit nobody can be further ahead. A limit that was wider before must not shut anybody out for
        // longer than it says itself.
        let furthest = deadline_after(now, self.params.max_ahead);
        if *moment > furthest {
            *moment = furthest;
            self.refunds.remove(party);
        }
        moment.saturating_duration_since(now)
    }

    /// Uses one call.
    pub(super) fn charge(&mut self, party: RateKey, now: Instant) -> KeyedCharge {
        self.prune(now);
        self.prune_refunds(&party, now);
        let moment = match tat_of(&mut self.tats, &mut self.global_tat, &party) {
            Some(known) => known,
            None if party == RateKey::Global => self.global_tat.insert(now),
            None => self.tats.entry(party.clone()).or_insert(now),
        };
        let interval = self.params.interval;
        *moment = deadline_after((*moment).max(now), interval);
        let used = Charge { state_id: self.id, interval, tat: *moment };
        KeyedCharge { key: party, charge: used }
    }

    /// Whether this call was taken here.
    pub(super) fn issued(&self, taken: &KeyedCharge) -> bool {
        self.id == taken.charge.state_id
    }

    /// Undoes a use: now if it was the last, otherwise as soon as all behind it are undone.
    pub(super) fn refund(&mut self, taken: KeyedCharge) {
        let KeyedCharge { key: party, charge: Charge { interval, tat: left, .. } } = taken;
        // Gone, or pulled back by a limit that is narrower now: nothing is known of this use any more.
        let moment = tat_of(&mut self.tats, &mut self.global_tat, &party);
        let Some(moment) = moment.filter(|moment| **moment >= left) else { return };
        if *moment > left {
            self.refunds.entry(party).or_default().insert(left, interval);
            return;
        }
        *moment -= interval;
        if let Some(undone) = self.refunds.get_mut(&party) {
            while let Some(interval) = undone.remove(moment) {
                *moment -= interval;
            }
            if undone.is_empty() {
                self.refunds.remove(&party);
            }
        }
    }

    /// What was undone in the past is paid back already.
    fn prune_refunds(&mut self, party: &RateKey, now: Instant) {
        if self.refunds.is_empty() {
            return;
        }
        if let Some(undone) = self.refunds.get_mut(party) {
            *undone = undone.split_off(&now);
            if undone.is_empty() {
                self.refunds.remove(party);
            }
        }
    }

    /// Forgets the moments that have passed. Done when twice as many parties have come as stayed the last time, and
    /// after a period in which each could have paid back all: whoever is looked at in vain has been here since.
    fn prune(&mut self, now: Instant) {
        let most = self.params.max_ahead;
        let stale = *self.prune_at.get_or_insert_with(|| deadline_after(now, most));
        if self.tats.len() >= self.prune_len || (now >= stale && self.tats.len() > 1) {
            self.tats.retain(|_, moment| *moment > now);
            self.refunds.retain(|party, _| *party == RateKey::Global || self.tats.contains_key(party));
            self.prune_len = MIN_PRUNE_LEN.max(self.tats.len() * 2);
            self.tats.shrink_to(self.prune_len);
            self.prune_at = Some(deadline_after(now, most));
        }
    }

    #[cfg(test)]
    pub(super) fn tracked_keys(&self) -> usize {
        self.tats.len()
    }
}

/// A party's moment.
fn tat_of<'a>(
    moments: &'a mut HashMap<RateKey, Instant>,
    everybody: &'a mut Option<Instant>,
    party: &RateKey,
) -> Option<&'a mut Instant> {
    match party {
        RateKey::Global => everybody.as_mut(),
        party => moments.get_mut(party),
    }
}

/// What follows from a limit, worked out once.
pub(super) struct GcraParams {
    /// The time one call takes up.
    pub(super) interval: Duration,
    /// How far ahead a party's moment may be for one more call to pass.
    pub(super) tolerance: Duration,
    /// How long a call may wait for its turn.
    pub(super) max_wait: Duration,
    /// The furthest ahead a moment can be: a whole burst used, and as many waiting as may.
    max_ahead: Duration,
}

impl GcraParams {
    fn from_limit(limit: &RateLimit) -> Self {
        let (interval, patience) = (limit.interval(), limit.max_wait());
        let tolerance = interval.saturating_mul(limit.burst_size() - 1);
        Self {
            interval,
            tolerance,
            max_wait: patience,
            max_ahead: tolerance.saturating_add(interval).saturating_add(patience),
        }
    }
}

impl RateKey {
    fn from_scope(scope: RateScope, who: Subject<'_>) -> Self {
        match scope {
            RateScope::Tool => Self::Global,
            RateScope::Thread => Self::Thread(who.tenant.clone(), who.thread.cloned()),
            RateScope::Caller => Self::Caller(who.tenant.clone(), who.caller.clone()),
        }
    }
}
