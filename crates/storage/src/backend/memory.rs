//! Records in memory: for tests, laptops and everything that need not outlive the process.
//!
//! In: batches and questions. Out: rows. Nothing survives a restart. Sharded by partition, so that threads of
//! conversations rarely wait for each other. Loads and scans of one partition look at nothing else; a scan over several
//! looks at all partitions of the shards that hold rows of its table. What a row costs beside its value is in
//! `memory/slip.rs` and `memory/shard.rs`.

mod chunked_vec;
mod packed_row;
mod pages;
mod partition_key;
mod partition_rows;
mod shard;
mod sorted_rows;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::broadcast::{self, error::RecvError};

use self::{
    packed_row::RowId,
    pages::{ScanWindow, TopRows},
    partition_key::PartitionKey,
    shard::Shard,
};
use super::{
    Backend, Batch, Page, Row, RowKey, Scan, Scope, StoreError, Table, WatchEvent, Watcher, Write, WriteContext,
};
use toolhub_types::timestamp::Timestamp;

const SHARDS: usize = 64;
/// How many changes of a table a watcher may be behind before it is told that it missed some.
const WATCH_BACKLOG: usize = 1024;

/// A backend that keeps everything in memory.
pub struct Memory {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// The shard where the last sweep stopped.
    next_sweep_shard: AtomicUsize,
    /// One line per table, laid when somebody first watches it: it has room for all changes a watcher may be behind.
    watch_channels: [OnceLock<ChangeChannel>; Table::ALL.len()],
}

/// Tells the version a row has now; none when it is gone.
type ChangeChannel = broadcast::Sender<(RowKey, Option<u64>)>;

crate::brief_debug!("Memory" Memory);

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let hasher = RandomState::new();
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(hasher.clone()))).collect();
        Self {
            shards,
            hasher,
            next_sweep_shard: AtomicUsize::new(0),
            watch_channels: Table::ALL.map(|_| OnceLock::new()),
        }
    }

    fn hash(&self, address: &[u8]) -> u64 {
        self.hasher.hash_one(address)
    }

    /// The index inside a shard goes by the lowest and the highest bits of a hash, so the shard goes by others.
    fn shard_of(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shard((hash >> 48) as usize % SHARDS)
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_now(&self, keys: &[RowKey], now: Timestamp) -> Vec<Option<Row>> {
        let mut rows = Vec::with_capacity(keys.len());
        // Neighbours of one partition are read under one lock: they are of the same moment.
        for group in keys.chunk_by(|a, b| a.partition == b.partition) {
            let address = PartitionKey::new(&group[0].partition);
            let hash = self.hash(address.as_bytes());
            let shard = self.shard_of(hash);
            let at = shard.find(hash, address.as_bytes());
            let slip = |key: &RowKey| shard.get(at, RowId { table: key.table, id: &key.id });
            rows.extend(group.iter().map(|key| slip(key)?.row_at(now)));
        }
        rows
    }

    fn commit_now(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.find_duplicate_write() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        let Batch { partition, stamp, fence, writes } = batch;
        let address = PartitionKey::new(&partition);
        let address = address.as_bytes();
        let hash = self.hash(address);
        let mut shard = self.shard_of(hash);
        let mut at = shard.find(hash, address);
        let seen = at.map_or(0, |at| shard.partition(at).fence());
        if let Some(given) = fence.filter(|given| *given < seen) {
            return Err(StoreError::Fenced { given, seen });
        }
        for write in &writes {
            shard.check_expectation(at, write, now)?;
        }
        if let Some(fence) = fence.filter(|fence| *fence > seen) {
            shard.raise_fence(&mut at, address, fence);
        }
        let writing = WriteContext { stamp, floor: 0, now };
        let mut versions = Vec::with_capacity(writes.len());
        for Write { table, id, change, .. } in writes {
            let (version, changed) = shard.apply(&mut at, address, RowId { table, id: &id }, &change, writing);
            versions.push(version);
            let line = self.watch_channels[table as usize].get();
            if let Some(line) = line.filter(|line| changed && line.receiver_count() > 0) {
                let key = RowKey { partition: partition.clone(), table, id };
                // Told under the lock, so that the versions of a row are told in order.
                let _ = line.send((key, (version > 0).then_some(version)));
            }
        }
        if let Some(at) = at {
            shard.remove_if_empty(at);
        }
        Ok(versions)
    }

    fn scan_now(&self, scan: &Scan, now: Timestamp) -> Page {
        let window = ScanWindow::new(scan);
        let rows = match &scan.scope {
            Scope::Partition(only) => {
                let address = PartitionKey::new(only);
                let hash = self.hash(address.as_bytes());
                let shard = self.shard_of(hash);
                let drawer = shard.find(hash, address.as_bytes()).map(|at| shard.partition(at));
                drawer.map_or_else(Vec::new, |drawer| pages::page_of_partition(drawer, only, scan, &window, now))
            }
            Scope::Tenant(only) => self.scan_shards(scan, &window, &PartitionKey::tenant_prefix(only), now),
            Scope::All => self.scan_shards(scan, &window, b"", now),
        };
        pages::into_page(rows, scan.limit)
    }

    /// The first rows behind the cursor, of every partition whose address begins like this.
    fn scan_shards(
        &self,
        scan: &Scan,
        window: &ScanWindow<'_>,
        addresses: &[u8],
        now: Timestamp,
    ) -> Vec<(RowKey, Row)> {
        let mut first = TopRows::new(scan);
        for at in 0..SHARDS {
            let shard = self.shard(at);
            let wanted = shard.partitions_with(scan.table).filter(|drawer| drawer.key().starts_with(addresses));
            wanted.for_each(|drawer| first.offer(drawer, window, now));
        }
        first.into_rows(scan.table)
    }

    /// Begins where the last sweep stopped. Costs next to nothing while nothing can have expired.
    async fn sweep_in_steps(&self, most: usize, now: Timestamp) -> usize {
        let begin = self.next_sweep_shard.load(Ordering::Relaxed);
        let mut swept = 0;
        for at in (begin..begin + SHARDS).map(|at| at % SHARDS) {
            while swept < most {
                let (gone, done) = self.shard(at).sweep(most - swept, now);
                swept += gone;
                if done {
                    break;
                }
                // A large store is walked for a while; others may work meanwhile.
                tokio::task::yield_now().await;
            }
            if swept >= most {
                self.next_sweep_shard.store(at, Ordering::Relaxed);
                break;
            }
        }
        swept
    }

    /// A shard at a time: others may work in between.
    async fn count_in_steps(&self, table: Table, now: Timestamp) -> BTreeMap<SmolStr, u64> {
        let (scan, mut many) = (Scan::new(table, Scope::All), BTreeMap::new());
        for at in 0..SHARDS {
            self.count_shard((table, at), &ScanWindow::new(&scan), now, &mut many);
            tokio::task::yield_now().await;
        }
        many
    }

    fn count_shard(
        &self,
        (table, shard): (Table, usize),
        window: &ScanWindow<'_>,
        now: Timestamp,
        many: &mut BTreeMap<SmolStr, u64>,
    ) {
        let shard = self.shard(shard);
        let slips = shard.partitions_with(table).flat_map(|drawer| drawer.window(window));
        for slip in slips.filter(|slip| !slip.is_expired(now)) {
            *many.entry(slip.id()).or_default() += 1;
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// Every answer but a sweep's and a tally's is ready at once: no request waits for anything but a short lock.
impl Backend for Memory {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move { Ok(self.load_now(keys, now)) })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move { self.commit_now(batch, now) })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move { Ok(self.scan_now(&scan, now)) })
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.sweep_in_steps(most, now).await) })
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(async move { Ok(self.count_in_steps(table, now).await) })
    }

    fn watch(&self, table: Table) -> Watcher {
        let line = self.watch_channels[table as usize].get_or_init(|| ChangeChannel::new(WATCH_BACKLOG));
        Box::pin(futures_util::stream::unfold(line.subscribe(), |mut news| async move {
            match news.recv().await {
                Ok((key, version)) => Some((WatchEvent::Row(key, version), news)),
                Err(RecvError::Lagged(_)) => Some((WatchEvent::Lagged, news)),
                Err(RecvError::Closed) => None,
            }
        }))
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}
