//! Rate limits that the nodes of a store share.
//!
//! In: the limits of a tool and the subject of a call. Out: a permit, after a wait or at once, or the time after which to retry. The
//! theoretical arrival time (TAT) of each limit and key is a row. A node borrows permits by advancing it with a compare-and-set, some in
//! advance, so that a busy node asks the store about ten times a second; never more than a quarter of what is left, so that others find
//! some. A borrowed permit that is not used soon is lost: calls are never more than the limit, at times slightly fewer. While the store does
//! not answer, the caller goes by its own share of the limit.

mod row;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use toolhub_storage::{
    backend::{Backend, RowVersion, StoreError},
    clock::{Clock, Instant},
};
use toolhub_types::{policy::RateLimit, tool::ToolName};

use crate::nodes::Nodes;

use super::{Quota, RateExceeded, Subject};
use row::{RateRow, RowName};

/// How long a borrowed permit may be used.
const PERMIT_LIFETIME: Duration = Duration::from_secs(1);
/// How many permits are borrowed at once: those of this time, at the rate of the limit.
const BORROWED_TIME: Duration = Duration::from_millis(100);
/// How often a borrowing that lost against other nodes is tried again, before the store counts as away.
const MAX_CONFLICTS: usize = 32;
/// Fewer keys than this are not pruned.
const MIN_PRUNE_LEN: usize = 1_024;

/// The shared limits of a hub.
pub(crate) struct SharedRates {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<RowName, Arc<Key>>>,
    nodes: Arc<Nodes>,
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
    /// Borrowed permits that no call has yet, and when they were borrowed.
    permits: u32,
    borrowed_at: Option<Instant>,
}

/// Permits of one call that were valid at once; to be refunded if it does not run. One that becomes valid later is not refunded: another
/// call would use it before its time.
pub(crate) struct SharedPermit(Vec<Arc<Key>>);

/// Why there is no permit.
pub(crate) enum SharedRefusal {
    /// A limit is exhausted.
    Exceeded(RateExceeded),
    /// The store did not answer.
    StoreAway(StoreError),
}

impl SharedRates {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, nodes: Arc<Nodes>) -> Self {
        Self { store, clock, keys: Mutex::default(), nodes }
    }

    /// The part of each limit that this node may use while the store does not answer.
    pub(crate) fn share_of_node(&self, limits: &[RateLimit]) -> Vec<RateLimit> {
        let nodes = u32::try_from(self.nodes.alive()).unwrap_or(u32::MAX);
        let share = |limit: &RateLimit| RateLimit {
            requests: (limit.requests / nodes).max(1),
            burst: Some((limit.burst_size() / nodes).max(1)),
            ..limit.clone()
        };
        limits.iter().map(share).collect()
    }

    /// Takes a permit of each limit, or of none. Returns how long to wait before the call may start.
    pub(crate) async fn reserve(
        &self,
        tool: &ToolName,
        limits: &[RateLimit],
        subject: Subject<'_>,
    ) -> Result<(Duration, SharedPermit), SharedRefusal> {
        let (mut wait, mut permit) = (Duration::ZERO, SharedPermit(Vec::with_capacity(limits.len())));
        for (limit_index, name) in RowName::of_limits(tool, limits, subject).into_iter().enumerate() {
            let key = self.key(&name);
            match self.take(&name, &key, &limits[limit_index]).await {
                Ok(of_limit) => {
                    wait = wait.max(of_limit);
                    if of_limit.is_zero() {
                        permit.0.push(key);
                    }
                }
                Err(refusal) => {
                    self.refund(permit);
                    return Err(match refusal {
                        Refusal::Exceeded(retry_after) => {
                            SharedRefusal::Exceeded(RateExceeded { retry_after, limit_index })
                        }
                        Refusal::StoreAway(error) => SharedRefusal::StoreAway(error),
                    });
                }
            }
        }
        Ok((wait, permit))
    }

    /// Refunds the permits of a call that did not run, for another call of this node.
    pub(crate) fn refund(&self, permit: SharedPermit) {
        let now = self.clock.instant();
        for key in permit.0 {
            let mut state = key.lock();
            if state.is_fresh(now) {
                state.permits += 1;
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
            Quota { limit_index, remaining: row.remaining(limit, now) + state.permits, resets_in: row.debt(now) }
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
                let is_charged = key.lock().seen.is_some_and(|(row, _)| !row.debt(now).is_zero());
                is_charged || Arc::strong_count(key) > 1
            });
        }
        keys.entry(name.clone()).or_default().clone()
    }

    /// Takes one permit: a borrowed one, or one of those that are borrowed now.
    async fn take(&self, name: &RowName, key: &Key, limit: &RateLimit) -> Result<Duration, Refusal> {
        if key.take_permit(self.clock.instant()) {
            return Ok(Duration::ZERO);
        }
        let _borrowing = key.borrowing.lock().await;
        // Another call of this node has borrowed some meanwhile.
        if key.take_permit(self.clock.instant()) {
            return Ok(Duration::ZERO);
        }
        let mut seen = key.lock().seen;
        for _ in 0..MAX_CONFLICTS {
            let now = self.clock.now();
            let row = seen.map(|(row, _)| row).unwrap_or_default();
            let available = row.available(limit, now);
            let next = match available {
                Ok((permits, _)) => row.charged(limit, permits, now),
                Err(retry_after) => match row.lowered(limit, now) {
                    // Otherwise the usage of a wider limit would refuse calls until it is paid back.
                    Some(lowered) => lowered,
                    None => {
                        key.lock().seen = seen;
                        return Err(Refusal::Exceeded(retry_after));
                    }
                },
            };
            let batch = name.write(&next, limit, seen.map(|(_, version)| version), now);
            let stamp = batch.stamp;
            match self.store.commit(batch, now).await {
                Ok(versions) => {
                    let version = RowVersion { number: versions.first().copied().unwrap_or_default(), stamp };
                    let permits = available.map_or(0, |(permits, _)| permits - 1);
                    let borrowed_at = Some(self.clock.instant());
                    *key.lock() = KeyState { seen: Some((next, version)), permits, borrowed_at };
                    return available.map(|(_, wait)| wait).map_err(Refusal::Exceeded);
                }
                Err(StoreError::Conflict { .. }) => seen = name.load(&*self.store, now).await?,
                Err(error) => {
                    // The row may have been written: read it before the next attempt.
                    key.lock().seen = None;
                    return Err(Refusal::StoreAway(error));
                }
            }
        }
        Err(Refusal::StoreAway(StoreError::Unavailable("too many nodes compete for a rate limit".into())))
    }
}

enum Refusal {
    /// The time after which to retry.
    Exceeded(Duration),
    StoreAway(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::StoreAway(error)
    }
}

impl Key {
    fn lock(&self) -> std::sync::MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_permit(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let has_permit = state.permits > 0 && state.is_fresh(now);
        state.permits = if has_permit { state.permits - 1 } else { 0 };
        has_permit
    }
}

impl KeyState {
    fn is_fresh(&self, now: Instant) -> bool {
        self.borrowed_at.is_some_and(|at| now.saturating_duration_since(at) < PERMIT_LIFETIME)
    }
}
