//! Waiting calls: the calls of this node that wait for an approval, and how they are woken.
//!
//! In: a pending approval. Out: the approval once it is answered or timed out. The answer is a row in the store; a
//! change of the row, on this node or another, wakes the calls that wait for it.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{ApprovalState, Approvals, StoredApproval, row_key, timed_out};
use toolhub_storage::{backend::StoreError, clock};
use toolhub_types::ids::ApprovalId;

/// Retry interval while the store is unavailable.
const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often a waiting call looks at its approval although no change was reported.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The waiting calls of this node: a notifier for each approval.
#[derive(Default)]
pub(super) struct ApprovalWaiters(Mutex<HashMap<ApprovalId, Arc<Notify>>>);

impl ApprovalWaiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approvals {
    /// Waits until the approval is answered or times out; returns it in its final state.
    pub(crate) async fn wait_answered(&self, pending: StoredApproval) -> Result<StoredApproval, StoreError> {
        let waiter = WaiterGuard::register(self, pending.approval.id);
        let key = row_key(&pending);
        let mut deadline = None;
        loop {
            let mut woken = std::pin::pin!(waiter.notify.notified());
            woken.as_mut().enable();
            let now = self.clock.now();
            let keys = [key.clone()];
            let row = match self.store.load(&keys, now).await {
                // Retry after the first successful load: a short outage of the store must not lose an answer.
                Err(StoreError::Unavailable(_)) if deadline.is_some_and(|until| self.clock.instant() < until) => {
                    tokio::time::sleep(STORE_RETRY_INTERVAL).await;
                    continue;
                }
                loaded => loaded?.pop().flatten(),
            };
            // A missing row has expired long after the approval did.
            let Some(row) = row else { return Ok(timed_out(pending)) };
            let found = self.decode(key.clone(), &row)?;
            match found.approval.state_at(now) {
                ApprovalState::Pending => {}
                ApprovalState::TimedOut => return self.close(found, ApprovalState::TimedOut).await,
                _ => return Ok(found),
            }
            // Compute the deadline once, on the monotonic clock: setting the wall clock back must not extend the wait.
            let remaining = found.approval.expires_at.since(now);
            let until = *deadline.get_or_insert_with(|| clock::deadline_after(self.clock.instant(), remaining));
            if until <= self.clock.instant() {
                return self.close(found, ApprovalState::TimedOut).await;
            }
            // The row and the approval have a copy of the arguments each, which must not stay in memory during the wait.
            drop((row, found));
            // The store's change events report an answer on another node, but one may be lost.
            let look_at = until.min(self.clock.instant() + LOOK_INTERVAL);
            let _ = tokio::time::timeout_at(look_at, woken).await;
        }
    }

    /// Registers as the waiter for an approval; `None` if a call of this node waits for it already.
    pub(crate) fn try_register_waiter(&self, id: ApprovalId) -> Option<WaiterGuard<'_>> {
        match self.waiters.lock().entry(id) {
            hash_map::Entry::Occupied(_) => None,
            hash_map::Entry::Vacant(vacant) => {
                let notify = vacant.insert(Arc::default()).clone();
                Some(WaiterGuard { approvals: self, id, notify })
            }
        }
    }

    /// Whether a call of this node waits for an approval.
    pub(crate) fn has_waiter(&self, id: ApprovalId) -> bool {
        self.waiters.lock().contains_key(&id)
    }

    /// Wakes the calls that wait for an approval, because its row changed on this node or another.
    pub(crate) fn wake_waiters(&self, id: ApprovalId) {
        if let Some(notify) = self.waiters.lock().get(&id) {
            notify.notify_waiters();
        }
    }

    /// Wakes all waiting calls, because change events were missed.
    pub(crate) fn wake_all_waiters(&self) {
        self.waiters.lock().values().for_each(|notify| notify.notify_waiters());
    }
}

/// The registration of a waiting call, removed on drop.
pub(crate) struct WaiterGuard<'a> {
    approvals: &'a Approvals,
    id: ApprovalId,
    notify: Arc<Notify>,
}

impl<'a> WaiterGuard<'a> {
    fn register(approvals: &'a Approvals, id: ApprovalId) -> Self {
        let notify = approvals.waiters.lock().entry(id).or_default().clone();
        Self { approvals, id, notify }
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut waiters = self.approvals.waiters.lock();
        // Two calls with one idempotency key may wait for the same approval; the last one removes the entry.
        if waiters.get(&self.id).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            waiters.remove(&self.id);
        }
    }
}
