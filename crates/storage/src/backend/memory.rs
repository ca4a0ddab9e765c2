//! In-memory backend: for tests, laptops and data that need not outlive the process.
//!
//! In: batches, loads and scans. Out: rows. Nothing survives a restart. Sharded by partition, so that different threads
//! rarely contend for a lock. Loads and scans of one partition touch only that partition; a scan over several uses the index of
//! its table (`memory/id_index.rs`) or visits all partitions of the shards that hold rows of it. `memory/packed_row.rs` and
//! `memory/shard.rs` determine the memory overhead per row.

mod chunked_vec;
mod id_index;
mod packed_row;
mod pages;
mod partition_key;
mod partition_rows;
mod shard;
mod sorted_rows;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::broadcast::{self, error::RecvError};

use self::{
    id_index::{IdIndex, IndexEntry},
    packed_row::RowId,
    pages::{ScanWindow, TopRows},
    partition_key::PartitionKey,
    shard::Shard,
};
use super::{
    Backend, Batch, Page, Partition, Row, RowKey, Scan, Scope, SizeLimit, StoreError, Table, WatchEvent, Watcher,
    WriteContext,
};
use crate::seal::SealKey;
use toolhub_types::timestamp::Timestamp;

const SHARDS: usize = 64;
/// How many entries of the index are read under its lock.
const INDEX_STEP: usize = 256;
/// How many changes of a table a watcher may lag before it receives `WatchEvent::Lagged`.
const WATCH_BACKLOG: usize = 1024;

/// A backend that keeps everything in memory.
pub struct Memory {
    shards: Vec<Mutex<Shard>>,
    /// Locked after a shard, never before one.
    ids: Arc<IdIndex>,
    hasher: RandomState,
    /// The shard where the last sweep stopped.
    next_sweep_shard: AtomicUsize,
    /// Of the trimmable rows only.
    size_limit: SizeLimit,
    seal_key: OnceLock<SealKey>,
    /// One broadcast channel per table, created by its first watcher because it allocates the whole backlog.
    watch_channels: [OnceLock<ChangeChannel>; Table::ALL.len()],
}

/// Carries the current version of a row; `None` if it was removed.
type ChangeChannel = broadcast::Sender<(RowKey, Option<u64>)>;

crate::brief_debug!("Memory" Memory);

impl Memory {
    /// An empty store. Journal, events, artifacts and threads may take 256 MiB together.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_bytes(Self::DEFAULT_MAX_BYTES)
    }

    /// The default limit: 256 MiB.
    pub const DEFAULT_MAX_BYTES: u64 = 256 * 1024 * 1024;

    /// An empty store with a limit for the journal, its events and artifacts, and threads that hold nothing else. The hub removes
    /// the oldest of them when the store comes near the limit. State, messages, approvals and the like are not counted.
    #[must_use]
    pub fn with_max_bytes(bytes: u64) -> Self {
        let hasher = RandomState::new();
        let ids = Arc::new(IdIndex::new());
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(hasher.clone(), ids.clone()))).collect();
        Self {
            shards,
            ids,
            hasher,
            next_sweep_shard: AtomicUsize::new(0),
            size_limit: SizeLimit::new(bytes),
            seal_key: OnceLock::new(),
            watch_channels: Table::ALL.map(|_| OnceLock::new()),
        }
    }

    fn hash(&self, partition_key: &[u8]) -> u64 {
        self.hasher.hash_one(partition_key)
    }

    /// The hash table inside a shard uses the lowest and the highest bits of the hash, so the shard is chosen by other bits.
    fn shard_of(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shard((hash >> 48) as usize % SHARDS)
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_now(&self, keys: &[RowKey], now: Timestamp) -> Vec<Option<Row>> {
        let mut rows = Vec::with_capacity(keys.len());
        let groups = || keys.chunk_by(|a, b| a.partition == b.partition);
        // At least three groups have a partition twice.
        if groups().nth(2).is_none() {
            groups().for_each(|group| self.load_partition(&group[0].partition, group.iter(), now, &mut rows));
            return rows;
        }
        let mut by_partition: HashMap<&Partition, Vec<usize>> = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            by_partition.entry(&key.partition).or_default().push(at);
        }
        rows.resize(keys.len(), None);
        let mut found = Vec::new();
        for (partition, places) in by_partition {
            self.load_partition(partition, places.iter().map(|at| &keys[*at]), now, &mut found);
            places.into_iter().zip(found.drain(..)).for_each(|(at, row)| rows[at] = row);
        }
        rows
    }

    /// Adds the rows of one partition, read under one lock, so that they come from the same snapshot.
    fn load_partition<'k>(
        &self,
        partition: &Partition,
        keys: impl Iterator<Item = &'k RowKey>,
        now: Timestamp,
        rows: &mut Vec<Option<Row>>,
    ) {
        let partition_key = PartitionKey::new(partition);
        let hash = self.hash(partition_key.as_bytes());
        let shard = self.shard_of(hash);
        let at = shard.find(hash, partition_key.as_bytes());
        rows.extend(keys.map(|key| shard.get(at, RowId { table: key.table, id: &key.id })?.row_at(now)));
    }

    fn commit_now(&self, batch: &Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        batch.check_duplicate_writes()?;
        let partition_key = PartitionKey::new(&batch.partition);
        let partition_key = partition_key.as_bytes();
        let hash = self.hash(partition_key);
        let mut shard = self.shard_of(hash);
        let mut at = shard.find(hash, partition_key);
        for write in &batch.writes {
            shard.check_expectation(at, write, now)?;
        }
        if batch.no_other_rows && at.is_some_and(|at| shard.partition(at).has_other_rows(batch, now)) {
            return Err(StoreError::OtherRows);
        }
        let bytes_before = shard.trimmable_bytes();
        let context = WriteContext { stamp: batch.stamp, floor: 0, now };
        let mut versions = Vec::with_capacity(batch.writes.len());
        for write in &batch.writes {
            let (row_id, terms) = (RowId { table: write.table, id: &write.id }, batch.terms_of(write));
            let (version, changed) =
                shard.apply(&mut at, partition_key, row_id, &write.change, terms.as_str(), context);
            versions.push(version);
            let channel = self.watch_channels[write.table as usize].get();
            if let Some(channel) = channel.filter(|channel| changed && channel.receiver_count() > 0) {
                let key = RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
                // Sent under the lock, so that the versions of a row arrive in order.
                let _ = channel.send((key, (version > 0).then_some(version)));
            }
        }
        if let Some(at) = at {
            shard.remove_if_empty(at);
        }
        self.count_bytes(&shard, bytes_before);
        Ok(versions)
    }

    /// Adds the change of a shard's size to that of the store.
    fn count_bytes(&self, shard: &Shard, before: usize) {
        let difference = shard.trimmable_bytes() as i64 - before as i64;
        if difference != 0 {
            self.size_limit.add(difference);
        }
    }

    fn scan_now(&self, scan: &Scan, now: Timestamp) -> Page {
        let window = ScanWindow::new(scan);
        let rows = match &scan.scope {
            Scope::Partition(only) => {
                let partition_key = PartitionKey::new(only);
                let hash = self.hash(partition_key.as_bytes());
                let shard = self.shard_of(hash);
                let partition_rows = shard.find(hash, partition_key.as_bytes()).map(|at| shard.partition(at));
                partition_rows.map_or_else(Vec::new, |partition_rows| {
                    pages::page_of_partition(partition_rows, only, scan, &window, now)
                })
            }
            Scope::Tenant(only) => self.scan_partitions(scan, window, &PartitionKey::tenant_prefix(only), now),
            Scope::All => self.scan_partitions(scan, window, b"", now),
        };
        Page::cut(rows, scan)
    }

    /// The first rows after the cursor, of every partition whose key has this prefix, and one more if there are more.
    fn scan_partitions(
        &self,
        scan: &Scan,
        window: ScanWindow<'_>,
        key_prefix: &[u8],
        now: Timestamp,
    ) -> Vec<(RowKey, Row)> {
        if IdIndex::has_table(scan.table) {
            return self.scan_index(scan, window, key_prefix, now);
        }
        let mut top = TopRows::new(scan);
        for at in 0..SHARDS {
            let shard = self.shard(at);
            let matching =
                shard.partitions_with(scan.table).filter(|partition_rows| partition_rows.key().starts_with(key_prefix));
            matching.for_each(|partition_rows| top.offer(partition_rows, &window, now));
        }
        top.into_rows(scan.table)
    }

    /// Reads entries of the index until the page is full.
    fn scan_index(
        &self,
        scan: &Scan,
        mut window: ScanWindow<'_>,
        key_prefix: &[u8],
        now: Timestamp,
    ) -> Vec<(RowKey, Row)> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        loop {
            let mut entries = self.ids.read(scan.table, &window, INDEX_STEP);
            for entry in entries.iter().filter(|entry| entry.partition_key().starts_with(key_prefix)) {
                let Some(found) = self.indexed_row(scan.table, entry, &window, now) else { continue };
                let is_after_page = rows.len() >= scan.limit || bytes >= scan.max_bytes;
                bytes += found.1.value.len();
                rows.push(found);
                if is_after_page {
                    return rows;
                }
            }
            let Some(last) = entries.pop() else { return rows };
            window.continue_after(last);
        }
    }

    /// The row of an entry, if the scan finds it.
    fn indexed_row(
        &self,
        table: Table,
        entry: &IndexEntry,
        window: &ScanWindow<'_>,
        now: Timestamp,
    ) -> Option<(RowKey, Row)> {
        let id = str::from_utf8(entry.id()).ok()?;
        let hash = self.hash(entry.partition_key());
        let shard = self.shard_of(hash);
        let packed = shard.get(shard.find(hash, entry.partition_key()), RowId { table, id })?;
        let partition = || partition_key::parse_partition(entry.partition_key());
        window.matches(packed, now).then(|| (RowKey { partition: partition(), table, id: id.into() }, packed.row()))
    }

    /// Begins at the shard where the last sweep stopped. Costs almost nothing while nothing can have expired.
    async fn sweep_in_steps(&self, limit: usize, now: Timestamp) -> usize {
        let begin = self.next_sweep_shard.load(Ordering::Relaxed);
        let mut swept = 0;
        for at in (begin..begin + SHARDS).map(|at| at % SHARDS) {
            while swept < limit {
                let (removed, done) = self.sweep_shard(at, limit - swept, now);
                swept += removed;
                if done {
                    break;
                }
                // Walking a large store takes a while; other tasks may run in between.
                tokio::task::yield_now().await;
            }
            if swept >= limit {
                self.next_sweep_shard.store(at, Ordering::Relaxed);
                break;
            }
        }
        swept
    }

    fn sweep_shard(&self, at: usize, limit: usize, now: Timestamp) -> (usize, bool) {
        let mut shard = self.shard(at);
        let bytes_before = shard.trimmable_bytes();
        let swept = shard.sweep(limit, now);
        self.count_bytes(&shard, bytes_before);
        swept
    }

    /// Counts one shard at a time; other tasks may run in between.
    async fn count_in_steps(&self, table: Table, now: Timestamp) -> BTreeMap<SmolStr, u64> {
        let (scan, mut counts) = (Scan::new(table, Scope::All), BTreeMap::new());
        for at in 0..SHARDS {
            self.count_shard((table, at), &ScanWindow::new(&scan), now, &mut counts);
            tokio::task::yield_now().await;
        }
        counts
    }

    fn count_shard(
        &self,
        (table, shard): (Table, usize),
        window: &ScanWindow<'_>,
        now: Timestamp,
        counts: &mut BTreeMap<SmolStr, u64>,
    ) {
        let shard = self.shard(shard);
        let packed_rows = shard.partitions_with(table).flat_map(|partition_rows| partition_rows.window(window));
        for packed in packed_rows.filter(|packed| !packed.is_expired(now)) {
            *counts.entry(packed.id()).or_default() += 1;
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// All futures except those of `sweep` and `count_by_id` are ready on the first poll: they wait for a short lock only.
impl Backend for Memory {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move { Ok(self.load_now(keys, now)) })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move { self.commit_now(&batch, now) })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move { Ok(self.scan_now(&scan, now)) })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.sweep_in_steps(limit, now).await) })
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(async move { Ok(self.count_in_steps(table, now).await) })
    }

    fn watch(&self, table: Table) -> Watcher {
        let channel = self.watch_channels[table as usize].get_or_init(|| ChangeChannel::new(WATCH_BACKLOG));
        Box::pin(futures_util::stream::unfold(channel.subscribe(), |mut receiver| async move {
            match receiver.recv().await {
                Ok((key, version)) => Some((WatchEvent::Row(key, version), receiver)),
                Err(RecvError::Lagged(_)) => Some((WatchEvent::Lagged, receiver)),
                Err(RecvError::Closed) => None,
            }
        }))
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        Some(&self.size_limit)
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn seal_key(&self) -> Option<SealKey> {
        Some(self.seal_key.get_or_init(|| SealKey::new(&SealKey::generate())).clone())
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}
