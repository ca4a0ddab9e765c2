//! The calls of this node that run on tasks of their own, so that others can look at them and cancel them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::CallTracker;
use toolhub_types::ids::{CallId, Tenant};

/// The calls that run on tasks of their own, so that others can look at them and cancel them.
#[derive(Default, Clone)]
pub(crate) struct LiveCalls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    running: Mutex<HashMap<CallId, Arc<CallTracker>>>,
    /// Told when a call begins and no other was running.
    call_started: Notify,
}

/// Room for as many is always kept.
const MIN_CAPACITY: usize = 1_024;

impl LiveCalls {
    /// Notes a call for as long as the answer is held.
    pub(crate) fn register(&self, tracker: &Arc<CallTracker>) -> LiveCallGuard {
        let call = tracker.head.id;
        let mut running = self.running();
        let first = running.is_empty();
        // Two calls may have one id, if their caller minted it: the first is found, and the second will be refused.
        running.entry(call).or_insert_with(|| tracker.clone());
        drop(running);
        if first {
            self.0.call_started.notify_one();
        }
        LiveCallGuard { tracker: tracker.clone(), live: self.clone() }
    }

    /// Where a call is, if it runs here.
    pub(crate) fn find(&self, call: CallId) -> Option<Arc<CallTracker>> {
        self.running().get(&call).cloned()
    }

    /// Where the calls of a tenant are that run here.
    pub(crate) fn of_tenant(&self, tenant: &Tenant) -> Vec<Arc<CallTracker>> {
        self.running().values().filter(|call| call.head.tenant == *tenant).cloned().collect()
    }

    /// Cancels all, because the hub goes down.
    pub(crate) fn cancel_all_by_shutdown(&self) {
        let all: Vec<_> = self.running().values().cloned().collect();
        for call in all {
            call.cancel_by_shutdown();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.running().len()
    }

    /// Whether this call is running here.
    pub(crate) fn contains(&self, call: CallId) -> bool {
        self.running().contains_key(&call)
    }

    /// Waits until a call begins, or answers at once if one has begun since this was last asked.
    pub(crate) async fn wait_started(&self) {
        self.0.call_started.notified().await;
    }

    fn running(&self) -> MutexGuard<'_, HashMap<CallId, Arc<CallTracker>>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is running.
pub(crate) struct LiveCallGuard {
    tracker: Arc<CallTracker>,
    live: LiveCalls,
}

impl Drop for LiveCallGuard {
    fn drop(&mut self) {
        let mut live = self.live.running();
        let call = &self.tracker.head.id;
        if live.get(call).is_some_and(|found| Arc::ptr_eq(found, &self.tracker)) {
            live.remove(call);
        }
        self.tracker.mark_ended();
        // A flood of calls must not leave its size behind. Halved at a quarter, so that it is not moved back and forth.
        if live.capacity() > MIN_CAPACITY && live.len() < live.capacity() / 4 {
            let room = live.capacity() / 2;
            live.shrink_to(room);
        }
    }
}
