//! Result cache of read-only tools, with a time to live per entry.
//!
//! In: a result, under the fingerprint of everything it depends on, and its time to live. Out: that result until then.
//! Bounded by number and by an estimate of bytes: expired entries are evicted first, then the oldest (FIFO).
//! The policy of a tool decides whether and for how long its results are cached.

mod cached_result;
mod fingerprint;

use std::{
    collections::BTreeMap,
    hash::RandomState,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hashlink::LinkedHashMap;

pub(crate) use cached_result::CachedResult;
pub(crate) use fingerprint::{Fingerprint, ToolIdentity};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::tool::ToolName;

/// Memory of one entry beside its result: its key, twice, and its index entries.
const ENTRY_OVERHEAD_BYTES: usize = 384;

/// Number of expired entries removed per insert, so that memory is released before the cache is full.
const EXPIRED_PER_INSERT: usize = 4;

/// The cached results.
#[derive(Debug)]
pub(crate) struct ResultCache {
    max_entries: usize,
    max_bytes: usize,
    inner: Mutex<CacheInner>,
}

#[derive(Debug, Default)]
struct CacheInner {
    /// In insertion order: the first is the oldest.
    entries: LinkedHashMap<Fingerprint, CacheEntry, RandomState>,
    /// The keys by expiry.
    by_expiry: BTreeMap<(Instant, u64), Fingerprint>,
    bytes: usize,
    /// Counts all inserts, to make the keys of `by_expiry` unique.
    sequence: u64,
}

#[derive(Debug)]
struct CacheEntry {
    result: Arc<CachedResult>,
    expires_at: Instant,
    sequence: u64,
    bytes: usize,
}

impl ResultCache {
    /// A cache with these limits.
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { max_entries, max_bytes, inner: Mutex::default() }
    }

    /// The result, if it is cached and has not expired.
    pub(crate) fn get(&self, key: &Fingerprint, now: Instant) -> Option<Arc<CachedResult>> {
        let inner = self.lock();
        inner.entries.get(key).filter(|entry| entry.expires_at > now).map(|entry| entry.result.clone())
    }

    /// Caches a result, replacing the previous one. A result larger than a sixteenth of the cache is not cached,
    /// because it would evict too many others.
    pub(crate) fn put(&self, key: Fingerprint, result: Arc<CachedResult>, ttl: Duration, now: Instant) {
        let limit = self.max_bytes / 16;
        let bytes =
            result.bytes_within(limit.saturating_sub(ENTRY_OVERHEAD_BYTES)).map(|bytes| bytes + ENTRY_OVERHEAD_BYTES);
        let cacheable = bytes.filter(|bytes| *bytes <= limit && !ttl.is_zero());
        let mut removed = Vec::new();
        let mut inner = self.lock();
        removed.extend(inner.remove(&key));
        if let Some(bytes) = cacheable {
            inner.insert(key, result, clock::deadline_after(now, ttl), bytes);
        }
        for _ in 0..EXPIRED_PER_INSERT {
            removed.extend(inner.remove_expired(now));
        }
        while inner.entries.len() > self.max_entries || inner.bytes > self.max_bytes {
            let Some(entry) = inner.remove_expired(now).or_else(|| inner.remove_oldest()) else { break };
            removed.push(entry);
        }
        // Dropping a large result takes time; release the lock first.
        drop(inner);
        drop(removed);
    }

    /// Removes all results of a tool. Scans the whole cache: tools change rarely, and an index by tool would cost every
    /// other operation.
    pub(crate) fn forget_tool(&self, tool: &ToolName) {
        let mut inner = self.lock();
        let keys: Vec<_> = inner.entries.keys().filter(|key| key.tool() == tool).cloned().collect();
        let removed: Vec<_> = keys.iter().filter_map(|key| inner.remove(key)).collect();
        drop(inner);
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, CacheInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheInner {
    fn insert(&mut self, key: Fingerprint, result: Arc<CachedResult>, expires_at: Instant, bytes: usize) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.by_expiry.insert((expires_at, sequence), key.clone());
        self.bytes += bytes;
        self.entries.insert(key, CacheEntry { result, expires_at, sequence, bytes });
    }

    fn remove(&mut self, key: &Fingerprint) -> Option<CacheEntry> {
        let entry = self.entries.remove(key)?;
        self.by_expiry.remove(&(entry.expires_at, entry.sequence));
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Removes one expired entry.
    fn remove_expired(&mut self, now: Instant) -> Option<CacheEntry> {
        let (_, key) = self.by_expiry.first_key_value().filter(|((expires_at, _), _)| *expires_at <= now)?;
        let key = key.clone();
        self.remove(&key)
    }

    fn remove_oldest(&mut self) -> Option<CacheEntry> {
        let key = self.entries.front()?.0.clone();
        self.remove(&key)
    }
}

#[cfg(test)]
mod tests;
