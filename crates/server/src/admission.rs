//! Decides which requests may be executed when many are.
//!
//! In: who sends a request, and how urgent it is. Out: a permit, or a refusal. A connection on which a request is
//! executed is never closed to make room, so the permits are fewer than the connections: some of the connections can
//! always be closed for a new one.

use std::sync::{Arc, Mutex, PoisonError};

use toolhub_core::count_by_key::CountByKey;

use crate::connections::Holder;

/// How urgent a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Any other request.
    Normal,
    /// A health check, or a request of an administrator.
    Reserved,
}

/// The requests that are executed at the moment.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The number of connections.
    limit: usize,
    running: Mutex<CountByKey<Holder>>,
}

/// A request is executed until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    holder: Holder,
}

impl Admission {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, running: Mutex::default() })
    }

    /// A permit for one request; `None` if too many are executed.
    pub(crate) fn try_acquire(self: &Arc<Self>, holder: Holder, priority: Priority) -> Option<Permit> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.total() >= max_running(self.limit, running.of(&holder), priority) {
            return None;
        }
        running.add(&holder, 1);
        drop(running);
        Some(Permit { admission: self.clone(), holder })
    }
}

/// How many requests may be executed before the next one of a holder that has `own` of them.
///
/// The last eighth of the connections is reserved. One half of it is for holders with few requests, so that one key cannot
/// refuse service to others; the other half is for health checks and administrators.
fn max_running(limit: usize, own: usize, priority: Priority) -> usize {
    match priority {
        // Health checks need no key, so they have a bound too.
        Priority::Reserved => limit * 2,
        Priority::Normal if own < (limit / 64).max(1) => (limit - (limit / 16).max(1)).max(1),
        Priority::Normal => (limit - (limit / 8).max(1)).max(1),
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.running.lock().unwrap_or_else(PoisonError::into_inner).subtract(&self.holder, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Holder {
        Holder::of_peer([192, 0, 2, last].into())
    }

    #[test]
    fn one_holder_leaves_places_for_others_and_all_leave_places_for_administrators() {
        let admission = Admission::new(128);
        let take = |holder: &Holder, priority| admission.try_acquire(holder.clone(), priority);
        let fill = |holder: &Holder| -> Vec<Permit> { std::iter::from_fn(|| take(holder, Priority::Normal)).collect() };
        let first = fill(&address(1));
        assert_eq!(first.len(), 112);
        let others: Vec<_> = (2..20).map(|last| fill(&address(last)).len()).collect();
        assert!(others.iter().all(|count| *count == 2), "they were given back: {others:?}");
        let kept: Vec<_> = (2..20).map(|last| fill(&address(last))).collect();
        assert_eq!(kept.iter().map(Vec::len).sum::<usize>(), 8);
        assert!(take(&address(20), Priority::Normal).is_none());
        let admin: Vec<_> = (0..8).map(|_| take(&address(1), Priority::Reserved)).collect();
        assert!(admin.iter().all(Option::is_some));
        drop((first, kept, admin));
        assert!(admission.running.lock().unwrap().is_empty());
    }

    #[test]
    fn the_smallest_limits_still_serve() {
        for limit in 1..16 {
            let admission = Admission::new(limit);
            let permit = admission.try_acquire(address(1), Priority::Normal);
            assert!(permit.is_some(), "limit {limit}");
            assert!(admission.try_acquire(address(1), Priority::Reserved).is_some(), "limit {limit}");
        }
    }
}
