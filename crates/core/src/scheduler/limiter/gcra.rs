//! GCRA state of one rate limit: one theoretical arrival time (TAT) per key.
//!
//! In: a limit, a key, the time. Out: how far the key's TAT is ahead of now. A TAT in the past means the same as none,
//! so such keys are pruned from time to time. `limiter.rs` decides whether a call passes.

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

/// The TATs of all keys of one limit.
pub(super) struct GcraState {
    /// Identifies the state that issued a charge; limits may be equal.
    id: u64,
    limit: RateLimit,
    params: GcraParams,
    tats: HashMap<RateKey, Instant>,
    /// The TAT of a limit with global scope, kept outside the map to avoid the lookup.
    global_tat: Option<Instant>,
    /// Charges that were refunded while later charges existed: the TAT each left, and its interval. They take effect
    /// once the later ones are refunded too.
    refunds: HashMap<RateKey, BTreeMap<Instant, Duration>>,
    /// Expired TATs are pruned at this many keys, or at this time.
    prune_len: usize,
    prune_at: Option<Instant>,
}

/// A charge and its key, so that it can be refunded.
#[derive(Debug)]
pub(super) struct KeyedCharge {
    pub(super) key: RateKey,
    pub(super) charge: Charge,
}

/// One call charged to one limit.
#[derive(Debug)]
pub(super) struct Charge {
    state_id: u64,
    interval: Duration,
    /// The key's TAT after this charge.
    tat: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RateKey {
    Global,
    Thread(Tenant, Option<ThreadId>),
    Caller(Tenant, Caller),
}

/// Fewer keys than this are not pruned by count.
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

    /// Whether the state keeps its meaning under this limit. Another number of requests in the same period does: a key
    /// that used half of its period has still used half of it.
    pub(super) fn is_compatible(&self, limit: &RateLimit) -> bool {
        self.limit.scope == limit.scope && self.limit.per == limit.per
    }

    /// Whether this very limit applies already.
    pub(super) fn has_limit(&self, limit: &RateLimit) -> bool {
        self.limit == *limit
    }

    /// Applies this limit from now on. It must be compatible.
    pub(super) fn set_limit(&mut self, limit: &RateLimit) {
        (self.limit, self.params) = (limit.clone(), GcraParams::from_limit(limit));
    }

    pub(super) fn params(&self) -> &GcraParams {
        &self.params
    }

    /// The key under which this limit counts the subject's calls.
    pub(super) fn key_for(&self, subject: Subject<'_>) -> RateKey {
        RateKey::from_scope(self.limit.scope, subject)
    }

    /// How far the key's TAT is ahead of now.
    pub(super) fn debt(&mut self, key: &RateKey, now: Instant) -> Duration {
        let Some(tat) = tat_of(&mut self.tats, &mut self.global_tat, key) else { return Duration::ZERO };
        // A TAT from a wider limit is capped at the maximum of the current one, so that no key is blocked for longer
        // than the current limit allows.
        let furthest = deadline_after(now, self.params.max_ahead);
        if *tat > furthest {
            *tat = furthest;
            self.refunds.remove(key);
        }
        tat.saturating_duration_since(now)
    }

    /// Charges one call.
    pub(super) fn charge(&mut self, key: RateKey, now: Instant) -> KeyedCharge {
        self.prune(now);
        self.prune_refunds(&key, now);
        let tat = match tat_of(&mut self.tats, &mut self.global_tat, &key) {
            Some(tat) => tat,
            None if key == RateKey::Global => self.global_tat.insert(now),
            None => self.tats.entry(key.clone()).or_insert(now),
        };
        let interval = self.params.interval;
        *tat = deadline_after((*tat).max(now), interval);
        let charge = Charge { state_id: self.id, interval, tat: *tat };
        KeyedCharge { key, charge }
    }

    /// Whether this state made the charge.
    pub(super) fn issued(&self, keyed: &KeyedCharge) -> bool {
        self.id == keyed.charge.state_id
    }

    /// Refunds a charge: immediately if it was the last, otherwise once all later ones are refunded.
    pub(super) fn refund(&mut self, keyed: KeyedCharge) {
        let KeyedCharge { key, charge: Charge { interval, tat: charged_tat, .. } } = keyed;
        // A TAT that was pruned, or capped by a narrower limit, no longer contains this charge.
        let tat = tat_of(&mut self.tats, &mut self.global_tat, &key);
        let Some(tat) = tat.filter(|tat| **tat >= charged_tat) else { return };
        if *tat > charged_tat {
            self.refunds.entry(key).or_default().insert(charged_tat, interval);
            return;
        }
        *tat -= interval;
        if let Some(refunds) = self.refunds.get_mut(&key) {
            while let Some(interval) = refunds.remove(tat) {
                *tat -= interval;
            }
            if refunds.is_empty() {
                self.refunds.remove(&key);
            }
        }
    }

    /// Drops refunds of charges in the past: time has paid those back already.
    fn prune_refunds(&mut self, key: &RateKey, now: Instant) {
        if self.refunds.is_empty() {
            return;
        }
        if let Some(refunds) = self.refunds.get_mut(key) {
            *refunds = refunds.split_off(&now);
            if refunds.is_empty() {
                self.refunds.remove(key);
            }
        }
    }

    /// Drops expired TATs. Runs when the number of keys has doubled since the last time, and after a period in which
    /// every key could have paid back everything. So the cost is amortized: a key that survives a pruning has been
    /// charged since.
    fn prune(&mut self, now: Instant) {
        let max_ahead = self.params.max_ahead;
        let prune_at = *self.prune_at.get_or_insert_with(|| deadline_after(now, max_ahead));
        if self.tats.len() >= self.prune_len || (now >= prune_at && self.tats.len() > 1) {
            self.tats.retain(|_, tat| *tat > now);
            self.refunds.retain(|key, _| *key == RateKey::Global || self.tats.contains_key(key));
            self.prune_len = MIN_PRUNE_LEN.max(self.tats.len() * 2);
            self.tats.shrink_to(self.prune_len);
            self.prune_at = Some(deadline_after(now, max_ahead));
        }
    }

    #[cfg(test)]
    pub(super) fn tracked_keys(&self) -> usize {
        self.tats.len()
    }
}

/// The TAT of a key.
fn tat_of<'a>(
    tats: &'a mut HashMap<RateKey, Instant>,
    global_tat: &'a mut Option<Instant>,
    key: &RateKey,
) -> Option<&'a mut Instant> {
    match key {
        RateKey::Global => global_tat.as_mut(),
        key => tats.get_mut(key),
    }
}

/// The GCRA parameters of a limit, computed once.
pub(super) struct GcraParams {
    /// Emission interval: how far one call advances the TAT.
    pub(super) interval: Duration,
    /// How far ahead the TAT may be for one more call to pass.
    pub(super) tolerance: Duration,
    /// How long a call may wait.
    pub(super) max_wait: Duration,
    /// The furthest ahead a TAT can be: a full burst used, plus the maximum wait.
    max_ahead: Duration,
}

impl GcraParams {
    fn from_limit(limit: &RateLimit) -> Self {
        let (interval, max_wait) = (limit.interval(), limit.max_wait());
        let tolerance = interval.saturating_mul(limit.burst_size() - 1);
        let max_ahead = tolerance.saturating_add(interval).saturating_add(max_wait);
        Self { interval, tolerance, max_wait, max_ahead }
    }
}

impl RateKey {
    fn from_scope(scope: RateScope, subject: Subject<'_>) -> Self {
        match scope {
            RateScope::Tool => Self::Global,
            RateScope::Thread => Self::Thread(subject.tenant.clone(), subject.thread.cloned()),
            RateScope::Caller => Self::Caller(subject.tenant.clone(), subject.caller.clone()),
        }
    }
}
