//! Rate limits that the nodes of a store share.
//!
//! In: the limits of a tool and the subject of a call. Out: a permit, after a wait or at once, or the time after which to retry. The
//! theoretical arrival time (TAT) of each limit and key is a row. A node borrows permits by advancing it with a compare-and-set, some in
//! advance, so that a busy node asks the store about ten times a second; never more than a quarter of what is left, so that others find
//! some. A borrowed permit that is not used soon is lost: calls are never more than the limit, at times slightly fewer. While the store does
//! not answer, `local_share.rs` decides. A node that loses against others again and again refuses its calls: the store answers, so its
//! limit holds.

mod local_share;
mod row;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use toolhub_storage::{
    backend::{Backend, RowVersion, StoreError},
    clock::{Clock, Instant},
};
use toolhub_types::{policy::RateLimit, timestamp::Timestamp, tool::ToolName};

use crate::nodes::Nodes;

use super::{Quota, RateExceeded, Subject};
use local_share::LocalShare;
use row::{RateRow, RowName};

/// How long a borrowed permit may be used.
const PERMIT_LIFETIME: Duration = Duration::from_secs(1);
/// How many permits are borrowed at once: those of this time, at the rate of the limit.
const BORROWED_TIME: Duration = Duration::from_millis(100);
/// How often a borrowing that lost against other nodes is tried again, before calls are refused for a while.
const MAX_CONFLICTS: u32 = 32;
/// So many of these follow each other at once; further ones pause for a random time up to the longest pause.
const QUICK_CONFLICTS: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How long calls are refused after that.
const CONTENTION_PAUSE: Duration = Duration::from_secs(1);
/// Fewer keys than this are not pruned.
const MIN_PRUNE_LEN: usize = 1_024;

/// The shared limits of a hub.
pub(crate) struct SharedRates {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<RowName, Arc<Key>>>,
    nodes: Arc<Nodes>,
    /// Since when the store has not answered.
    lost_at: Mutex<Option<Timestamp>>,
}

/// What this node knows of one limit and key.
#[derive(Default)]
struct Key {
    /// Held while this node asks the store, so that its calls do not compete with each other.
    borrowing: tokio::sync::Mutex<()>,
    state: Mutex<KeyState>,
}

#[derive(Default, Clone, Copy)]
struct KeyState {
    /// The row as it was read or written last.
    seen: Option<(RateRow, RowVersion)>,
    /// Borrowed permits that no call has yet, when they were borrowed, and the interval of the limit then.
    permits: u32,
    borrowed_at: Option<Instant>,
    interval: Duration,
    /// What passed while the store did not answer.
    local: Option<LocalShare>,
    /// Until when calls are refused, because this node lost against others too often.
    contended_until: Option<Instant>,
}

/// Permits of one call that were valid at once; to be refunded if it does not run. One that becomes valid later is not refunded: another
/// call would use it before its time.
pub(crate) struct SharedPermit(Vec<(Arc<Key>, Source)>);

/// Where a permit comes from.
enum Source {
    /// The row of all nodes.
    Row,
    /// This node's part of the limit, while the store does not answer.
    LocalShare(RateLimit),
}

impl SharedRates {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, nodes: Arc<Nodes>) -> Self {
        Self { store, clock, keys: Mutex::default(), nodes, lost_at: Mutex::default() }
    }

    /// Takes a permit of each limit, or of none. Returns how long to wait before the call may start.
    pub(crate) async fn reserve(
        &self,
        tool: &ToolName,
        limits: &[RateLimit],
        subject: Subject<'_>,
    ) -> Result<(Duration, SharedPermit), RateExceeded> {
        let (mut wait, mut permit) = (Duration::ZERO, SharedPermit(Vec::with_capacity(limits.len())));
        for (limit_index, name) in RowName::of_limits(tool, limits, subject).into_iter().enumerate() {
            let key = self.key(&name);
            match self.take(&name, &key, &limits[limit_index]).await {
                Ok((of_limit, source)) => {
                    wait = wait.max(of_limit);
                    if of_limit.is_zero() {
                        permit.0.push((key, source));
                    }
                }
                Err(retry_after) => {
                    self.refund(permit);
                    return Err(RateExceeded { retry_after, limit_index });
                }
            }
        }
        Ok((wait, permit))
    }

    /// Refunds the permits of a call that did not run, for another call of this node.
    pub(crate) fn refund(&self, permit: SharedPermit) {
        let (instant, now) = (self.clock.instant(), self.clock.now());
        for (key, source) in permit.0 {
            let mut state = key.lock();
            match source {
                Source::Row if state.usable_permits(instant, now) > state.permits => state.permits += 1,
                Source::Row => {}
                Source::LocalShare(limit) => state.local.iter_mut().for_each(|local| local.refund(&limit)),
            }
        }
    }

    /// The remaining quota of each limit, as far as this node knows.
    pub(crate) fn quotas(&self, tool: &ToolName, limits: &[RateLimit], subject: Subject<'_>) -> Vec<Quota> {
        let now = self.clock.now();
        let quota = |(limit_index, name): (usize, RowName)| {
            let known = self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
            let state = known.map(|key| *key.lock()).unwrap_or_default();
            let row = state.seen.map(|(row, _)| row).unwrap_or_default();
            let limit = &limits[limit_index];
            match state.local.filter(|_| self.lock_lost_at().is_some()) {
                Some(local) => {
                    Quota { limit_index, remaining: local.remaining(limit, now), resets_in: local.debt(now) }
                }
                None => Quota {
                    limit_index,
                    remaining: row.remaining(limit, now) + state.permits,
                    resets_in: row.debt(now),
                },
            }
        };
        RowName::of_limits(tool, limits, subject).into_iter().enumerate().map(quota).collect()
    }

    fn key(&self, name: &RowName) -> Arc<Key> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.get(name) {
            return key.clone();
        }
        if keys.len() >= MIN_PRUNE_LEN && keys.len() == keys.capacity() {
            let now = self.clock.now();
            keys.retain(|_, key| {
                let KeyState { seen, local, .. } = *key.lock();
                let is_charged = seen.is_some_and(|(row, _)| !row.debt(now).is_zero())
                    || local.is_some_and(|local| !local.debt(now).is_zero());
                is_charged || Arc::strong_count(key) > 1
            });
        }
        keys.entry(name.clone()).or_default().clone()
    }

    /// Takes one permit: a borrowed one, one of those that are borrowed now, or one of this node's part if the store does not answer.
    /// Otherwise returns the time after which to retry.
    async fn take(&self, name: &RowName, key: &Key, limit: &RateLimit) -> Result<(Duration, Source), Duration> {
        let take_permit = || key.take_permit(self.clock.instant(), self.clock.now());
        if take_permit() {
            return Ok((Duration::ZERO, Source::Row));
        }
        let _borrowing = key.borrowing.lock().await;
        // Another call of this node has borrowed some meanwhile.
        if take_permit() {
            return Ok((Duration::ZERO, Source::Row));
        }
        match self.borrow(name, key, limit).await {
            Ok(taken) => {
                *self.lock_lost_at() = None;
                taken.map(|wait| (wait, Source::Row))
            }
            Err(error) => {
                tracing::debug!(%error, tool = %name.tool(), "the store did not answer about a rate limit; going by the share of this node");
                let now = self.clock.now();
                let lost_at = *self.lock_lost_at().get_or_insert(now);
                let nodes = u32::try_from(self.nodes.alive()).unwrap_or(u32::MAX);
                let mut state = key.lock();
                // The row may have been written: it is read before the next attempt.
                let last = state.seen.take().map(|(row, _)| row);
                let mut local = LocalShare::begin(state.local, limit, (nodes, lost_at), last);
                let taken = local.take(limit, now);
                state.local = Some(local);
                taken.map(|wait| (wait, Source::LocalShare(limit.clone())))
            }
        }
    }

    /// Borrows permits for this node and takes one of them. Without an error of the store, returns how long to wait, or the time after
    /// which to retry.
    async fn borrow(
        &self,
        name: &RowName,
        key: &Key,
        limit: &RateLimit,
    ) -> Result<Result<Duration, Duration>, StoreError> {
        let KeyState { mut seen, local, contended_until, .. } = *key.lock();
        let pause = contended_until.map(|until| until.saturating_duration_since(self.clock.instant()));
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            return Ok(Err(pause));
        }
        for conflicts in 0..MAX_CONFLICTS {
            pause_after(conflicts).await;
            let now = self.clock.now();
            let row = seen.map(|(row, _)| row).unwrap_or_default();
            // What passed here while the store did not answer counts for all nodes.
            let charged = row.advanced(local.map_or(Duration::ZERO, |local| local.uncharged(limit, now)), now);
            let available = charged.available(limit, now);
            let next = match available {
                Ok((permits, _)) => charged.charged(limit, permits, now),
                // Otherwise the usage of a wider limit would refuse calls until it is paid back.
                Err(_) => charged.capped(limit, now),
            };
            if next == row
                && let Err(retry_after) = available
            {
                key.lock().seen = seen;
                return Ok(Err(retry_after));
            }
            let batch = name.write(&next, limit, seen.map(|(_, version)| version), now);
            let stamp = batch.stamp;
            match self.store.commit(batch, now).await {
                Ok(versions) => {
                    let version = RowVersion { number: versions.first().copied().unwrap_or_default(), stamp };
                    let permits = available.map_or(0, |(permits, _)| permits - 1);
                    let borrowed_at = Some(self.clock.instant());
                    let seen = Some((next, version));
                    let interval = limit.interval();
                    *key.lock() = KeyState { seen, permits, borrowed_at, interval, ..KeyState::default() };
                    return Ok(available.map(|(_, wait)| wait));
                }
                Err(StoreError::Conflict { .. }) => seen = name.load(&*self.store, now).await?,
                Err(error) => return Err(error),
            }
        }
        let mut state = key.lock();
        (state.seen, state.contended_until) = (seen, Some(self.clock.instant() + CONTENTION_PAUSE));
        Ok(Err(CONTENTION_PAUSE))
    }

    fn lock_lost_at(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses after several conflicts in a row, for a random time, so that nodes do not meet again.
async fn pause_after(conflicts: u32) {
    if let Some(further) = conflicts.checked_sub(QUICK_CONFLICTS) {
        let longest = Duration::from_millis(1 << further.min(16)).min(LONGEST_PAUSE);
        tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
    }
}

impl Key {
    fn lock(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_permit(&self, instant: Instant, now: Timestamp) -> bool {
        let mut state = self.lock();
        state.permits = state.permits.min(state.usable_permits(instant, now));
        let has_permit = state.permits > 0;
        state.permits -= u32::from(has_permit);
        has_permit
    }
}

impl KeyState {
    /// The number of borrowed permits that may be used: those whose usage is not paid back yet. Of the others, the row lets as many calls
    /// pass again, on any node.
    fn usable_permits(&self, instant: Instant, now: Timestamp) -> u32 {
        let is_young = self.borrowed_at.is_some_and(|at| instant.saturating_duration_since(at) < PERMIT_LIFETIME);
        let debt = self.seen.filter(|_| is_young).map_or(Duration::ZERO, |(row, _)| row.debt(now));
        u32::try_from(debt.as_nanos() / self.interval.as_nanos().max(1)).unwrap_or(u32::MAX)
    }
}
