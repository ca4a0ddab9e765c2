//! LRU cache of parsed documents.
//!
//! In: documents. Out: the cached ones. Bounded by memory; evicts the least recently used document first.

use std::{hash::RandomState, sync::Arc};

use hashlink::LruCache;

use super::{context::Context, doc::Doc};

/// Approximate memory limit of all documents.
const CAPACITY_BYTES: usize = 64 * 1024 * 1024;

pub(super) struct Cache {
    /// Bounded by `capacity`, not by the number of documents.
    docs: LruCache<Context, Arc<Doc>, RandomState>,
    bytes: usize,
    capacity: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self { docs: LruCache::with_hasher(usize::MAX, RandomState::new()), bytes: 0, capacity: CAPACITY_BYTES }
    }
}

impl Cache {
    pub(super) fn get(&mut self, context: &Context) -> Option<Arc<Doc>> {
        self.docs.get(context).cloned()
    }

    pub(super) fn put(&mut self, doc: Arc<Doc>) {
        self.remove(&doc.context);
        self.bytes += doc.bytes();
        self.docs.insert(doc.context.clone(), doc);
        while self.bytes > self.capacity {
            let Some((_, evicted)) = self.docs.remove_lru() else { break };
            self.bytes -= evicted.bytes();
        }
    }

    pub(super) fn remove(&mut self, context: &Context) {
        if let Some(doc) = self.docs.remove(context) {
            self.bytes -= doc.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use toolhub_storage::{
        backend::{Row, RowVersion, Table, Terms},
        clock::Timestamp,
    };

    use super::*;

    const SMALL: usize = 100_000;

    fn doc(name: &str, bytes: usize) -> Arc<Doc> {
        let at = Timestamp::from_millis(0);
        let value = vec![0xff; bytes / 3].into();
        let row = Row {
            version: RowVersion { number: 1, stamp: 1 },
            schema: 1,
            value,
            expires: None,
            created: at,
            updated: at,
        };
        let mut doc = Doc::empty(Context::of_row(&"main/t/t".into(), name));
        doc.put(Table::State, name.into(), row, Terms::NONE);
        Arc::new(doc)
    }

    #[test]
    fn the_one_not_used_for_longest_goes_first_and_room_is_counted_right() {
        let mut cache = Cache { capacity: SMALL, ..Cache::default() };
        for name in ["a", "b", "c"] {
            cache.put(doc(name, SMALL * 3 / 10));
        }
        let has = |cache: &Cache, name: &str| cache.docs.contains_key(&Context::of_row(&"main/t/t".into(), name));
        assert!(cache.get(&doc("a", 0).context).is_some());
        cache.put(doc("d", SMALL * 3 / 10));
        assert_eq!(["a", "b", "c", "d"].map(|name| has(&cache, name)), [true, false, true, true]);
        cache.put(doc("c", 300));
        cache.put(doc("e", SMALL * 3 / 10));
        assert_eq!(["a", "c", "d", "e"].map(|name| has(&cache, name)), [true; 4]);
        for name in ["a", "c", "d", "e", "x"] {
            cache.remove(&doc(name, 0).context);
        }
        assert_eq!((cache.bytes, cache.docs.len()), (0, 0));
        cache.put(doc("huge", 2 * SMALL));
        assert!(!has(&cache, "huge"), "a document larger than the cache is not cached");
        assert_eq!(cache.bytes, 0);
    }
}
