//! Decides which requests may be executed when many are.
//!
//! In: who sends a request, and how urgent it is. Out: a permit, or a refusal. A connection on which a request is
//! executed is never closed to make room, so the permits are fewer than the connections: some of the connections can
//! always be closed for a new one.

use std::sync::{Arc, Mutex, PoisonError};

use toolhub_core::{count_by_key::CountByKey, ids::Tenant};

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
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    by_holder: CountByKey<Holder>,
    /// Clients without a key count together.
    by_tenant: CountByKey<Option<Tenant>>,
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
        let (own, of_tenant) = (running.by_holder.of(&holder), running.by_tenant.of(&holder.tenant()));
        if running.by_holder.total() >= max_running(self.limit, own, of_tenant, priority) {
            return None;
        }
        running.by_holder.add(&holder, 1);
        running.by_tenant.add(&holder.tenant(), 1);
        drop(running);
        Some(Permit { admission: self.clone(), holder })
    }
}

/// How many requests may be executed before the next one of a holder that has `own` of them, and its tenant `of_tenant`.
///
/// Three sixteenths of the connections are reserved: one for holders with few requests, so that one key cannot refuse service
/// to others; one for tenants with few, so that one with many keys cannot either; one for health checks and administrators.
fn max_running(limit: usize, own: usize, of_tenant: usize, priority: Priority) -> usize {
    let few = (limit / 64).max(1);
    let reserved = match priority {
        // Health checks need no key, so they have a bound too.
        Priority::Reserved => return limit * 2,
        Priority::Normal if of_tenant < few => 1,
        Priority::Normal if own < few => 2,
        Priority::Normal => 3,
    };
    (limit - (limit * reserved / 16).max(1)).max(1)
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut running = self.admission.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.by_holder.subtract(&self.holder, 1);
        running.by_tenant.subtract(&self.holder.tenant(), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_core::ids::Caller;

    fn address(last: u8) -> Holder {
        Holder::of_peer([192, 0, 2, last].into())
    }

    fn key(tenant: &str, number: usize) -> Holder {
        Holder::Key(Tenant::new(tenant).unwrap(), Caller::new(format!("key-{number}")).unwrap())
    }

    #[test]
    fn one_tenant_with_many_keys_leaves_places_for_each_other_one() {
        let admission = Admission::new(128);
        let take = |holder: &Holder| admission.try_acquire(holder.clone(), Priority::Normal);
        let hostile: Vec<_> = (0..128).filter_map(|number| take(&key("hostile", number))).collect();
        assert_eq!(hostile.len(), 112);
        let others: Vec<_> = (0..8).filter_map(|number| take(&key(&format!("other-{}", number / 2), number))).collect();
        assert_eq!(others.len(), 8, "each of four tenants finds two places");
        assert!(take(&key("hostile", 0)).is_none());
        drop((hostile, others));
        assert!(admission.running.lock().unwrap().by_tenant.is_empty());
    }

    #[test]
    fn one_holder_leaves_places_for_others_and_all_leave_places_for_administrators() {
        let admission = Admission::new(128);
        let take = |holder: &Holder, priority| admission.try_acquire(holder.clone(), priority);
        let fill = |holder: &Holder| -> Vec<Permit> { std::iter::from_fn(|| take(holder, Priority::Normal)).collect() };
        let first = fill(&address(1));
        assert_eq!(first.len(), 104);
        let others: Vec<_> = (2..20).map(|last| fill(&address(last)).len()).collect();
        assert!(others.iter().all(|count| *count == 2), "they were given back: {others:?}");
        let kept: Vec<_> = (2..20).map(|last| fill(&address(last))).collect();
        assert_eq!(kept.iter().map(Vec::len).sum::<usize>(), 8);
        assert!(take(&address(20), Priority::Normal).is_none());
        let admin: Vec<_> = (0..8).map(|_| take(&address(1), Priority::Reserved)).collect();
        assert!(admin.iter().all(Option::is_some));
        drop((first, kept, admin));
        assert!(admission.running.lock().unwrap().by_holder.is_empty());
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
