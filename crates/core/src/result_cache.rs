//! Kept answers of read-only tools.
//!
//! In: an answer, under the fingerprint of what it depends on and for how long it holds. Out: that answer, until then.
//! Bounded by number and by an estimate of bytes: what is over goes first, then what was kept first.
//! Which tools may be answered from here, and for how long, is for their policy to say.

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

/// What one entry costs beside its answer: its key, twice, and its places in the lists.
const ENTRY_OVERHEAD_BYTES: usize = 384;

/// How many whose time is over are dropped with each new one, so that memory comes back before all is full.
const EXPIRED_PER_INSERT: usize = 4;

/// Answers that still hold.
#[derive(Debug)]
pub(crate) struct ResultCache {
    max_entries: usize,
    max_bytes: usize,
    inner: Mutex<CacheInner>,
}

#[derive(Debug, Default)]
struct CacheInner {
    /// In the order they were added: the first is the oldest.
    entries: LinkedHashMap<Fingerprint, CacheEntry, RandomState>,
    /// By when their time is over.
    by_expiry: BTreeMap<(Instant, u64), Fingerprint>,
    bytes: usize,
    /// Counts what was ever kept.
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
    /// Room for so many answers and so many bytes.
    pub(crate) fn new(entries: usize, bytes: usize) -> Self {
        Self { max_entries: entries, max_bytes: bytes, inner: Mutex::default() }
    }

    /// The answer, if one is kept and its time is not over.
    pub(crate) fn get(&self, key: &Fingerprint, now: Instant) -> Option<Arc<CachedResult>> {
        let inner = self.lock();
        inner.entries.get(key).filter(|entry| entry.expires_at > now).map(|entry| entry.result.clone())
    }

    /// Keeps an answer in place of the one before. One that is larger than a sixteenth of all room is not kept: it
    /// would push out too many others.
    pub(crate) fn put(&self, key: Fingerprint, answer: Arc<CachedResult>, ttl: Duration, now: Instant) {
        let most = self.max_bytes / 16;
        let bytes =
            answer.bytes_within(most.saturating_sub(ENTRY_OVERHEAD_BYTES)).map(|bytes| bytes + ENTRY_OVERHEAD_BYTES);
        let fits = bytes.filter(|bytes| *bytes <= most && !ttl.is_zero());
        let mut gone = Vec::new();
        let mut inner = self.lock();
        gone.extend(inner.remove(&key));
        if let Some(bytes) = fits {
            inner.insert(key, answer, clock::deadline_after(now, ttl), bytes);
        }
        for _ in 0..EXPIRED_PER_INSERT {
            gone.extend(inner.remove_expired(now));
        }
        while inner.entries.len() > self.max_entries || inner.bytes > self.max_bytes {
            let Some(entry) = inner.remove_expired(now).or_else(|| inner.remove_oldest()) else { break };
            gone.push(entry);
        }
        // A large answer takes a while to fall apart; nobody should wait for that.
        drop(inner);
        drop(gone);
    }

    /// Forgets every answer of a tool. Looks at all that is kept, which is bearable because tools change seldom, and
    /// spares every other step the keeping of one more list.
    pub(crate) fn forget_tool(&self, tool: &ToolName) {
        let mut inner = self.lock();
        let keys: Vec<_> = inner.entries.keys().filter(|key| key.tool() == tool).cloned().collect();
        let gone: Vec<_> = keys.iter().filter_map(|key| inner.remove(key)).collect();
        drop(inner);
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, CacheInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheInner {
    fn insert(&mut self, key: Fingerprint, answer: Arc<CachedResult>, ends: Instant, bytes: usize) {
        self.sequence += 1;
        let turn = self.sequence;
        self.by_expiry.insert((ends, turn), key.clone());
        self.bytes += bytes;
        self.entries.insert(key, CacheEntry { result: answer, expires_at: ends, sequence: turn, bytes });
    }

    fn remove(&mut self, key: &Fingerprint) -> Option<CacheEntry> {
        let entry = self.entries.remove(key)?;
        self.by_expiry.remove(&(entry.expires_at, entry.sequence));
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Removes one whose time is over.
    fn remove_expired(&mut self, now: Instant) -> Option<CacheEntry> {
        let (_, key) = self.by_expiry.first_key_value().filter(|((ends, _), _)| *ends <= now)?;
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
