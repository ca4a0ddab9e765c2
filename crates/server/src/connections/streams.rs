//! Open event streams by holder, and their limits.
//!
//! In: each stream that begins and ends. Out: the end of the oldest stream of a holder that has too many: its client
//! reconnects and continues after the last event it has.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::sync::CancellationToken;

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
            open.by_holder.iter().max_by_key(|(_, streams)| streams.len()).map(|(holder, _)| holder.clone())
        } else {
            None
        };
        let ended = largest.is_some_and(|holder| open.end_oldest(&holder));
        drop(open);
        (OpenStream { streams: self.clone(), holder, number }, ended)
    }
}

impl Open {
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
}
