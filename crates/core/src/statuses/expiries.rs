//! Queue of the times at which dependencies of tools in threads expire.
//!
//! In: when the evidence for a tool in a thread grows too old, as far as this node knows. Out: the due ones.
//! `evidence/expiry.rs` waits for them and emits the events. Bounded: if it is full, the event is not emitted on time, and
//! the tool waits for its dependencies nevertheless.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::StatusKey;
use toolhub_types::timestamp::Timestamp;

/// Maximum number of entries.
const MAX_ENTRIES: usize = 100_000;

/// When dependencies expire, by tool and thread.
#[derive(Default)]
pub(crate) struct Expiries {
    queue: Mutex<ExpiryQueue>,
    /// Notified when an entry became the next one.
    pub(crate) next_changed: Arc<Notify>,
}

#[derive(Default)]
struct ExpiryQueue {
    by_time: BTreeMap<(Timestamp, u64), StatusKey>,
    times: HashMap<StatusKey, (Timestamp, u64)>,
    /// Distinguishes entries of the same time.
    last_number: u64,
}

impl Expiries {
    /// Sets the time at which the dependencies of a tool in a thread expire.
    pub(crate) fn schedule(&self, key: StatusKey, at: Timestamp) {
        let mut queue = self.lock();
        let queue = &mut *queue;
        if queue.times.get(&key).is_some_and(|(scheduled, _)| *scheduled == at)
            || (queue.times.len() >= MAX_ENTRIES && !queue.times.contains_key(&key))
        {
            return;
        }
        queue.last_number += 1;
        let position = (at, queue.last_number);
        if let Some(replaced) = queue.times.insert(key.clone(), position) {
            queue.by_time.remove(&replaced);
        }
        queue.by_time.insert(position, key);
        if queue.by_time.first_key_value().is_some_and(|(first, _)| *first == position) {
            self.next_changed.notify_one();
        }
    }

    /// When the next entry is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.lock().by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes one entry that is due.
    pub(crate) fn take_due(&self, now: Timestamp) -> Option<StatusKey> {
        let mut queue = self.lock();
        let due = queue.by_time.first_entry().filter(|entry| entry.key().0 <= now)?.remove();
        queue.times.remove(&due);
        Some(due)
    }

    /// Removes the entry of a tool in a deleted thread.
    pub(crate) fn forget(&self, key: &StatusKey) {
        let mut queue = self.lock();
        if let Some(position) = queue.times.remove(key) {
            queue.by_time.remove(&position);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExpiryQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::{
        ids::{Tenant, ThreadId},
        tool::ToolName,
    };

    fn key(name: &str) -> StatusKey {
        StatusKey::thread(&ToolName::new(name).unwrap(), &Tenant::default(), &ThreadId::new("t1").unwrap())
    }

    #[test]
    fn each_tool_is_due_once_at_the_time_that_was_set_last() {
        let (expiries, at) = (Expiries::default(), Timestamp::from_millis);
        for (name, millis) in [("a", 10), ("b", 10), ("c", 5), ("a", 20), ("c", 5)] {
            expiries.schedule(key(name), at(millis));
        }
        assert_eq!((expiries.next(), expiries.take_due(at(4))), (Some(at(5)), None));
        assert_eq!(expiries.take_due(at(5)), Some(key("c")));
        assert_eq!((expiries.take_due(at(15)), expiries.take_due(at(15))), (Some(key("b")), None));
        expiries.forget(&key("a"));
        assert_eq!(expiries.next(), None);
    }
}
