//! Open event streams by holder, and their limits.
//!
//! In: each stream that begins and ends. Out: the end of the oldest stream of a holder that has too many: its client
//! reconnects and continues after the last event it has.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::sync::CancellationToken;
use toolhub_core::count_by_key::CountByKey;

use super::Holder;

/// All open event streams.
#[derive(Debug)]
pub(super) struct Streams {
    /// Limit of all streams together; each holder may have half of it.
    limit: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    count: usize,
    /// By their number, so the first one is the oldest.
    by_holder: HashMap<Holder, BTreeMap<u64, CancellationToken>>,
}

/// Keeps a stream in the list until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: Arc<Streams>,
    holder: Holder,
    number: u64,
}

impl Streams {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// Adds a stream that ends when `end` is cancelled. Returns whether another one was ended for it.
    pub(super) fn open(self: &Arc<Self>, holder: Holder, end: CancellationToken) -> (OpenStream, bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.next;
        open.next += 1;
        open.count += 1;
        let own = open.by_holder.entry(holder.clone()).or_default();
        own.insert(number, end);
        let largest = if own.len() > (self.limit / 2).max(1) {
            Some(holder.clone())
        } else if open.count > self.limit {
            open.largest_holder()
        } else {
            None
        };
        let ended = largest.is_some_and(|holder| open.end_oldest(&holder));
        drop(open);
        (OpenStream { streams: self.clone(), holder, number }, ended)
    }
}

impl Open {
    /// Of the tenant with the most streams, the holder with the most.
    fn largest_holder(&self) -> Option<Holder> {
        let mut by_tenant = CountByKey::default();
        for (holder, streams) in &self.by_holder {
            by_tenant.add(&holder.tenant(), streams.len());
        }
        let size = |holder: &Holder, streams: &BTreeMap<_, _>| (by_tenant.of(&holder.tenant()), streams.len());
        self.by_holder.iter().max_by_key(|(holder, streams)| size(holder, streams)).map(|(holder, _)| holder.clone())
    }

    fn end_oldest(&mut self, holder: &Holder) -> bool {
        let Some((_, end)) = self.by_holder.get_mut(holder).and_then(BTreeMap::pop_first) else { return false };
        end.cancel();
        self.count -= 1;
        true
    }

    fn remove(&mut self, holder: &Holder, number: u64) {
        let Some(own) = self.by_holder.get_mut(holder) else { return };
        if own.remove(&number).is_some() {
            self.count -= 1;
        }
        if own.is_empty() {
            self.by_holder.remove(holder);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.holder, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_core::ids::{Caller, Tenant};

    fn address(last: u8) -> Holder {
        Holder::of_peer([192, 0, 2, last].into())
    }

    #[test]
    fn a_holder_over_half_of_all_loses_its_oldest_and_over_the_total_who_has_the_most() {
        let streams = Streams::new(4);
        let open = |holder| {
            let end = CancellationToken::new();
            (streams.open(holder, end.clone()), end)
        };
        let (first, second) = (open(address(1)), open(address(1)));
        let third = open(address(1));
        assert!(third.0.1 && first.1.is_cancelled() && !second.1.is_cancelled());
        let others = [open(address(2)), open(address(3))];
        assert!(others.iter().all(|other| !other.0.1));
        let last = open(address(4));
        assert!(last.0.1 && second.1.is_cancelled() && !third.1.is_cancelled());
        drop((first, second));
        assert!(open(address(5)).0.1, "the ended ones were counted off once");
        drop((third, others, last));
        assert!(streams.open.lock().unwrap().by_holder.is_empty());
        assert_eq!(streams.open.lock().unwrap().count, 0);
    }

    #[test]
    fn over_the_total_the_tenant_with_the_most_loses_one_however_many_keys_it_has() {
        let streams = Streams::new(4);
        let open = |tenant: &str, caller: &str| {
            let end = CancellationToken::new();
            let holder = Holder::Key(Tenant::new(tenant).unwrap(), Caller::new(caller).unwrap());
            (streams.open(holder, end.clone()), end)
        };
        let others = [open("other", "a"), open("other", "a")];
        let hostile = ["a", "b", "c"].map(|caller| open("hostile", caller));
        assert!(others.iter().all(|(_, end)| !end.is_cancelled()));
        assert_eq!(hostile.iter().filter(|(_, end)| end.is_cancelled()).count(), 1);
    }
}
