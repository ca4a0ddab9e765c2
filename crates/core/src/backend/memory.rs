//! Records in memory: for tests, laptops and everything that need not outlive the process.
//!
//! Sharded by partition, so that threads of conversations rarely wait for each other. Nothing survives a restart.
//! A scan over several partitions looks at all of them; one of a single partition, and every load, does not.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{
    Backend, Batch, Change, Changed, Cursor, Expect, Key, Page, Partition, Row, Scan, Scope, Seen, StoreError, Table,
    Watcher, Write,
};
use crate::clock::Timestamp;

const SHARDS: usize = 64;
/// How many changes of a table a watcher may be behind before it is told that it missed some.
const WATCH_BACKLOG: usize = 1024;

/// A backend that keeps everything in memory.
pub struct Memory {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// One line per table.
    news: Vec<broadcast::Sender<(Key, Option<u64>)>>,
}

type Shard = HashMap<Partition, Contents>;

#[derive(Default)]
struct Contents {
    fence: u64,
    rows: BTreeMap<(Table, SmolStr), Row>,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        let news = Table::ALL.map(|_| broadcast::Sender::new(WATCH_BACKLOG)).into();
        Self { shards, hasher: RandomState::new(), news }
    }

    fn shard(&self, partition: &Partition) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(partition) as usize;
        self.shards[hash % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_now(&self, keys: &[Key], now: Timestamp) -> Vec<Option<Row>> {
        let mut rows = Vec::with_capacity(keys.len());
        // Neighbours of one partition are read under one lock: they are of the same moment.
        for group in keys.chunk_by(|a, b| a.partition == b.partition) {
            let shard = self.shard(&group[0].partition);
            let contents = shard.get(&group[0].partition);
            let row = |key: &Key| contents?.rows.get(&(key.table, key.id.clone())).filter(|row| !row.is_expired(now));
            rows.extend(group.iter().map(|key| row(key).cloned()));
        }
        rows
    }

    fn commit_now(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.written_twice() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        let Batch { partition, stamp, fence, writes } = batch;
        let mut shard = self.shard(&partition);
        let found = shard.get(&partition);
        let seen = found.map_or(0, |contents| contents.fence);
        if let Some(given) = fence.filter(|given| *given < seen) {
            return Err(StoreError::Fenced { given, seen });
        }
        for write in &writes {
            expect(found, write, now)?;
        }
        let contents = shard.entry(partition.clone()).or_default();
        contents.fence = seen.max(fence.unwrap_or(0));
        let mut versions = Vec::with_capacity(writes.len());
        for write in writes {
            let (table, id) = (write.table, write.id.clone());
            let (version, changed) = contents.apply(write, stamp, now);
            versions.push(version);
            let line = &self.news[table as usize];
            if changed && line.receiver_count() > 0 {
                let key = Key { partition: partition.clone(), table, id };
                // Told under the lock, so that the versions of a row are told in order.
                let _ = line.send((key, (version > 0).then_some(version)));
            }
        }
        // A partition without rows and fence is as good as none.
        if contents.rows.is_empty() && contents.fence == 0 {
            shard.remove(&partition);
        }
        Ok(versions)
    }

    fn scan_now(&self, scan: &Scan, now: Timestamp) -> Page {
        let mut rows = match &scan.scope {
            Scope::Partition(only) => match self.shard(only).get(only) {
                Some(contents) => contents.page(only, scan, now),
                None => Vec::new(),
            },
            Scope::Tenant(only) => self.everywhere(scan, now, |partition| partition.tenant == *only),
            Scope::All => self.everywhere(scan, now, |_| true),
        };
        let more = rows.len() > scan.limit;
        rows.truncate(scan.limit);
        let next = rows.last().filter(|_| more).map(|(key, _)| Cursor(key.clone()));
        Page { rows, next }
    }

    /// All rows behind the cursor, of every partition that is wanted.
    fn everywhere(&self, scan: &Scan, now: Timestamp, wanted: impl Fn(&Partition) -> bool) -> Vec<(Key, Row)> {
        let mut rows = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (partition, contents) in shard.iter().filter(|(partition, _)| wanted(partition)) {
                rows.extend(contents.rows_of(partition, scan, None, now));
            }
        }
        rows.sort_by_cached_key(|(key, _)| place_of(key));
        if scan.newest {
            rows.reverse();
        }
        if let Some(Cursor(last)) = &scan.after {
            let last = place_of(last);
            rows.retain(|(key, _)| if scan.newest { place_of(key) < last } else { place_of(key) > last });
        }
        rows
    }

    fn sweep_now(&self, most: usize, now: Timestamp) -> usize {
        let mut swept = 0;
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, contents| {
                contents.rows.retain(|_, row| {
                    let goes = swept < most && row.is_expired(now);
                    swept += usize::from(goes);
                    !goes
                });
                !contents.rows.is_empty() || contents.fence > 0
            });
            // Room that a rush has taken is given back.
            if shard.capacity() > 4 * shard.len() {
                shard.shrink_to_fit();
            }
            if swept >= most {
                break;
            }
        }
        swept
    }
}

/// Pages go by id, then by the text of the partition: two partitions may have a row of the same id.
fn place_of(key: &Key) -> (SmolStr, String) {
    (key.id.clone(), key.partition.to_string())
}

fn expect(contents: Option<&Contents>, write: &Write, now: Timestamp) -> Result<(), StoreError> {
    let found = contents
        .and_then(|contents| contents.rows.get(&(write.table, write.id.clone())))
        .filter(|row| !row.is_expired(now))
        .map(|row| row.seen);
    let holds = match write.expect {
        Expect::Any => true,
        Expect::Absent => found.is_none(),
        Expect::Same(seen) => found == Some(seen),
    };
    let found = found.map(|seen| seen.version);
    if holds { Ok(()) } else { Err(StoreError::Conflict { table: write.table, id: write.id.clone(), found }) }
}

impl Contents {
    /// Makes a write; answers the row's version afterwards, and whether anything changed.
    fn apply(&mut self, write: Write, stamp: u64, now: Timestamp) -> (u64, bool) {
        let key = (write.table, write.id);
        let before = self.rows.get_mut(&key).filter(|row| !row.is_expired(now));
        let version = before.as_ref().map_or(0, |row| row.seen.version);
        let created = before.as_ref().map_or(now, |row| row.created);
        let at_least = if let Change::Restore { version, .. } = write.change { version } else { 0 };
        match write.change {
            Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. } => {
                let seen = Seen { version: at_least.max(version + 1), stamp };
                self.rows.insert(key, Row { seen, schema, value, expires, created, updated: now });
                (seen.version, true)
            }
            Change::Touch { expires } => {
                if let Some(row) = before {
                    row.expires = expires;
                }
                (version, false)
            }
            Change::Keep => (version, false),
            Change::Remove => {
                self.rows.remove(&key);
                (0, version > 0)
            }
        }
    }

    /// One page of this partition, and one row more if there is another page.
    fn page(&self, partition: &Partition, scan: &Scan, now: Timestamp) -> Vec<(Key, Row)> {
        let rows = self.rows_of(partition, scan, scan.after.as_ref(), now);
        if scan.newest {
            rows.rev().take(scan.limit.saturating_add(1)).collect()
        } else {
            rows.take(scan.limit.saturating_add(1)).collect()
        }
    }

    /// The rows whose ids have the scan's prefix and lie behind the cursor.
    fn rows_of<'a>(
        &'a self,
        partition: &'a Partition,
        scan: &Scan,
        after: Option<&Cursor>,
        now: Timestamp,
    ) -> impl DoubleEndedIterator<Item = (Key, Row)> + 'a {
        let table = scan.table;
        // Everything that begins with the prefix lies between it and the prefix with the last of all characters.
        let mut from = Bound::Included((table, SmolStr::new(&scan.prefix)));
        let mut to = Bound::Excluded((table, smol_str::format_smolstr!("{}{}", scan.prefix, char::MAX)));
        match after {
            Some(Cursor(last)) if scan.newest => to = Bound::Excluded((table, last.id.clone())),
            Some(Cursor(last)) => from = Bound::Excluded((table, last.id.clone())),
            None => {}
        }
        let rows = self.rows.range((from, to)).filter(move |(_, row)| !row.is_expired(now));
        rows.map(move |((_, id), row)| (Key { partition: partition.clone(), table, id: id.clone() }, row.clone()))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// Every answer is ready at once: no request waits for anything but a short lock.
impl Backend for Memory {
    fn load<'a>(&'a self, keys: &'a [Key], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move { Ok(self.load_now(keys, now)) })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move { self.commit_now(batch, now) })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move { Ok(self.scan_now(&scan, now)) })
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.sweep_now(most, now)) })
    }

    fn watch(&self, table: Table) -> Watcher {
        Box::pin(futures_util::stream::unfold(self.news[table as usize].subscribe(), |mut news| async move {
            match news.recv().await {
                Ok((key, version)) => Some((Changed::Row(key, version), news)),
                Err(RecvError::Lagged(_)) => Some((Changed::Missed, news)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}
