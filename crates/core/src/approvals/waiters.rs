//! Waits for people: the calls of this node that have asked, and how they hear of the answer.
//!
//! In: a question that was asked. Out: how it stands once it is answered or its time is over. The answer itself is a row in the
//! store; whoever learns that it changed, here or elsewhere, stirs the calls that wait for it.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{ApprovalState, Approvals, StoredApproval, decode_approval, row_key, timed_out};
use toolhub_storage::{backend::StoreError, clock};
use toolhub_types::ids::ApprovalId;

/// How soon a store that did not answer is asked again.
const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The calls of this node that wait for an answer.
pub(super) type ApprovalWaiters = Mutex<HashMap<ApprovalId, Arc<Notify>>>;

impl Approvals {
    /// Waits until the question is answered or its time is over; answers how it stands then.
    pub(crate) async fn wait_answered(&self, asked: StoredApproval) -> Result<StoredApproval, StoreError> {
        let waiting = WaiterGuard::register(self, asked.approval.id);
        let key = row_key(&asked);
        let mut patience = None;
        loop {
            let mut news = std::pin::pin!(waiting.notify.notified());
            news.as_mut().enable();
            let now = self.clock.now();
            let keys = [key.clone()];
            let row = match self.store.load(&keys, now).await {
                // It was there before. An answer that was given must not be lost because it is away for a moment.
                Err(StoreError::Unavailable(_)) if patience.is_some_and(|until| self.clock.instant() < until) => {
                    tokio::time::sleep(STORE_RETRY_INTERVAL).await;
                    continue;
                }
                loaded => loaded?.pop().flatten(),
            };
            // A question that is gone was forgotten long after its time.
            let Some(row) = row else { return Ok(timed_out(asked)) };
            let found = decode_approval(key.clone(), &row)?;
            match found.approval.state_at(now) {
                ApprovalState::Pending => {}
                ApprovalState::TimedOut => return self.close(found, ApprovalState::TimedOut).await,
                _ => return Ok(found),
            }
            // Measured once: somebody may set the clock back, and the call waits no longer for that.
            let left = found.approval.expires_at.since(now);
            let until = *patience.get_or_insert_with(|| clock::deadline_after(self.clock.instant(), left));
            if until <= self.clock.instant() {
                return self.close(found, ApprovalState::TimedOut).await;
            }
            // An answer elsewhere wakes us through the store's news. Should that fail, the end of time does.
            let _ = tokio::time::timeout_at(until, news).await;
        }
    }

    /// Takes the place of the one who waits for the answer; `None` where a call of this node does already.
    pub(crate) fn try_register_waiter(&self, id: ApprovalId) -> Option<WaiterGuard<'_>> {
        let mut waiting = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let hash_map::Entry::Vacant(free) = waiting.entry(id) else { return None };
        let notify = free.insert(Arc::default()).clone();
        Some(WaiterGuard { approvals: self, id, notify })
    }

    /// How many questions calls of this node wait for.
    pub(crate) fn waiter_count(&self) -> usize {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A question has changed, here or elsewhere: whoever waits for it looks again.
    pub(crate) fn wake_waiters(&self, id: ApprovalId) {
        if let Some(waiting) = self.waiters.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            waiting.notify_waiters();
        }
    }

    /// News was missed: everybody looks again.
    pub(crate) fn wake_all_waiters(&self) {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|notify| notify.notify_waiters());
    }
}

/// A call's place among those that wait, for as long as it is held.
pub(crate) struct WaiterGuard<'a> {
    approvals: &'a Approvals,
    id: ApprovalId,
    notify: Arc<Notify>,
}

impl<'a> WaiterGuard<'a> {
    fn register(approvals: &'a Approvals, id: ApprovalId) -> Self {
        let notify = approvals.waiters.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default().clone();
        Self { approvals, id, notify }
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.approvals.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        // Two calls with one key may wait for the same answer; the last one out takes the place away.
        if waiting.get(&self.id).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            waiting.remove(&self.id);
        }
    }
}
