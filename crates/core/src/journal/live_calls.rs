//! Registry of the calls of this node that run in their own task, so that they can be inspected and cancelled.
//!
//! In: trackers of calls, registered for as long as a guard lives. Out: lookups by id or tenant. Plain calls run in
//! their caller's task and are not registered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::CallTracker;
use toolhub_types::ids::{CallId, Tenant};

/// The calls that run in their own task.
#[derive(Default, Clone)]
pub(crate) struct LiveCalls(Arc<Mutex<HashMap<CallId, Arc<CallTracker>>>>);

/// The map is never shrunk below this capacity.
const MIN_CAPACITY: usize = 1_024;

impl LiveCalls {
    /// Registers a call until the returned guard is dropped.
    pub(crate) fn register(&self, tracker: &Arc<CallTracker>) -> LiveCallGuard {
        let call = tracker.head.id;
        let mut running = self.running();
        // Two calls may share an id that their caller minted: keep the first; the second will be refused.
        running.entry(call).or_insert_with(|| tracker.clone());
        drop(running);
        LiveCallGuard { tracker: tracker.clone(), live: self.clone() }
    }

    /// The tracker of a call, if it runs on this node.
    pub(crate) fn find(&self, call: CallId) -> Option<Arc<CallTracker>> {
        self.running().get(&call).cloned()
    }

    /// The trackers of a tenant's calls on this node.
    pub(crate) fn of_tenant(&self, tenant: &Tenant) -> Vec<Arc<CallTracker>> {
        self.running().values().filter(|call| call.head.tenant == *tenant).cloned().collect()
    }

    /// Cancels all calls because the hub is shutting down.
    pub(crate) fn cancel_all_by_shutdown(&self) {
        let all: Vec<_> = self.running().values().cloned().collect();
        for call in all {
            call.cancel_by_shutdown();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.running().len()
    }

    /// Whether this call runs on this node.
    pub(crate) fn contains(&self, call: CallId) -> bool {
        self.running().contains_key(&call)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<CallId, Arc<CallTracker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unregisters the call on drop.
pub(crate) struct LiveCallGuard {
    tracker: Arc<CallTracker>,
    live: LiveCalls,
}

impl Drop for LiveCallGuard {
    fn drop(&mut self) {
        let mut running = self.live.running();
        let call = &self.tracker.head.id;
        if running.get(call).is_some_and(|found| Arc::ptr_eq(found, &self.tracker)) {
            running.remove(call);
        }
        self.tracker.mark_ended();
        // Release memory after a burst of calls. Halve at a quarter of the capacity, so that the map does not thrash.
        if running.capacity() > MIN_CAPACITY && running.len() < running.capacity() / 4 {
            let capacity = running.capacity() / 2;
            running.shrink_to(capacity);
        }
    }
}
