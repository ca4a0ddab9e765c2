//! A store that acknowledges first and writes later: for whoever would rather lose seconds than wait for a disk.
//!
//! In: the requests of `Backend`. Out: their answers, made of what waits here and of what the store behind has. Batches
//! reach that store whole and, in each partition, in order: at an interval, when much waits, when asked, and at the end.
//! `waiting` is what was acknowledged and is not written, `clerk` the thread that writes it, `mark` how an unclean end is
//! noticed.

mod buffer;
pub(crate) mod clean_shutdown;
mod flusher;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::RwLock;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Page, Row, RowKey, Scan, Scope, StoreError, Table, Watcher, Write},
    clock::Timestamp,
};

use self::{
    buffer::WriteBuffer,
    flusher::{Flusher, FlusherTask},
};
use crate::watch::ChangeFeed;

/// How a store is written behind.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time from one writing to the next. A minute unless it is said otherwise.
    pub flush_interval: Duration,
    /// How many bytes may wait to be written, about. When half of it is reached they are written early; when all of it
    /// is and they cannot be written, new ones are refused. 64 MiB unless it is said otherwise.
    pub max_pending_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { flush_interval: Duration::from_secs(60), max_pending_bytes: 64 << 20 }
    }
}

/// A backend before another one: what is committed is acknowledged at once, and written every so often.
///
/// Nobody else may use the store behind. What was acknowledged since the last writing is lost when the process dies; what
/// is there then is a state that was, partition by partition. After such an end versions go on from a higher number, so
/// that none is given out twice. Dropped, it writes what waits; [`close`](Self::close) does so too, and says whether it worked.
///
/// ```
/// use std::sync::Arc;
/// use toolhub_storage::backend::Memory;
/// use toolhub_store::behind::{Behind, Options};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Behind::open(Arc::new(Memory::new()), Options::default()).await?;
/// // Hand it to a hub, and when that is gone:
/// store.close().await?;
/// # Ok(()) }
/// ```
///
/// A batch with a fence is written at once, and so are the first of each sort and one that would take half of the room: a
/// store that does not take them says so to the one who asked. A power-safe commit of the store behind must carry the earlier ones of its partition with it.
pub struct WriteBehind {
    shared: Arc<Shared>,
    flusher: Flusher,
}

/// What those who ask and the thread that writes both work with.
struct Shared {
    inner: Arc<dyn Backend>,
    buffer: Mutex<WriteBuffer>,
    change_feed: ChangeFeed,
    /// Held by whoever works out what a batch will do, while it asks the store behind; closed while something is written
    /// that nobody could work out.
    write_through_lock: RwLock<()>,
    max_pending_bytes: usize,
}

impl Shared {
    fn lock_buffer(&self) -> MutexGuard<'_, WriteBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteBehind {
    /// Puts itself before a store. Finds out whether the last one that did so had a clean end.
    ///
    /// # Errors
    /// When the store behind cannot be read or written.
    pub async fn open(inner: Arc<dyn Backend>, options: Options) -> Result<Self, StoreError> {
        let epoch = clean_shutdown::record_open(&*inner).await?;
        let waiting = Mutex::new(WriteBuffer::new(epoch));
        let shared = Shared {
            inner,
            buffer: waiting,
            change_feed: ChangeFeed::new(),
            write_through_lock: RwLock::new(()),
            max_pending_bytes: options.max_pending_bytes.max(2),
        };
        let shared = Arc::new(shared);
        let clerk = Flusher::spawn(shared.clone(), options.flush_interval, epoch);
        let clerk = clerk.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { shared, flusher: clerk })
    }

    /// Writes all that waits.
    ///
    /// # Errors
    /// When the store behind does not take it. It goes on waiting.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.flusher.request(|reply| FlusherTask::Flush(None, reply)).await
    }

    /// Writes all that waits, and that this was a clean end.
    ///
    /// # Errors
    /// When the store behind does not take it: then it is lost.
    pub async fn close(self) -> Result<(), StoreError> {
        self.flusher.request(FlusherTask::Close).await
    }

    /// How many bytes wait to be written, about.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.shared.lock_buffer().bytes()
    }

    /// Makes room when too much waits.
    async fn apply_backpressure(&self) -> Result<(), StoreError> {
        let bytes = self.shared.lock_buffer().bytes();
        if bytes >= self.shared.max_pending_bytes {
            self.flush().await.map_err(|error| {
                StoreError::Unavailable(format!("too much waits to be written, and the store behind says: {error}"))
            })?;
        } else if bytes >= self.shared.max_pending_bytes / 2 {
            self.flusher.request_flush();
        }
        Ok(())
    }

    async fn acknowledge(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        if let Some(Write { table, id, .. }) = batch.find_duplicate_write() {
            return Err(StoreError::Refused(format!("it writes the {table} row `{id}` twice")));
        }
        if self.flusher.is_stopped() {
            return Err(StoreError::Unavailable(
                "whoever writes what waits has fallen over; open the store again".into(),
            ));
        }
        self.apply_backpressure().await?;
        let is_heavy = batch_bytes(&batch) >= self.shared.max_pending_bytes / 2;
        let mut batch = batch;
        loop {
            if is_heavy || batch.fence.is_some() || !self.shared.lock_buffer().has_accepted(&batch) {
                return self.flusher.request(|reply| FlusherTask::WriteThrough(batch, now, reply)).await;
            }
            let open = self.shared.write_through_lock.read().await;
            let (missing, moment) = self.shared.lock_buffer().missing_keys(&batch);
            let loaded = match self.shared.inner.load(&missing, now).await {
                Ok(loaded) => loaded,
                // What cannot be read may still be replaced; the store behind knows the rules.
                Err(StoreError::Damaged { .. }) => {
                    drop(open);
                    return self.flusher.request(|reply| FlusherTask::WriteThrough(batch, now, reply)).await;
                }
                Err(error) => return Err(error),
            };
            let behind = missing.into_iter().zip(loaded).collect();
            match self.shared.lock_buffer().commit(batch, now, behind, moment, &self.shared.change_feed) {
                Ok(answer) => return answer,
                // Somebody else was faster.
                Err(again) => batch = *again,
            }
        }
    }

    async fn load_merged(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        loop {
            let (found, missing, moment) = self.shared.lock_buffer().lookup(keys, now);
            if missing.is_empty() {
                return Ok(found);
            }
            let loaded = self.shared.inner.load(&missing, now).await?;
            if self.shared.lock_buffer().is_current(&moment) {
                return Ok(buffer::merge_loaded(keys, found, missing, loaded));
            }
        }
    }
}

/// The bytes of its records.
fn batch_bytes(batch: &Batch) -> usize {
    let bytes = |write: &Write| match &write.change {
        Change::Put { value, .. } | Change::Restore { value, .. } => value.len(),
        _ => 0,
    };
    batch.writes.iter().map(bytes).sum()
}

impl fmt::Debug for WriteBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behind").field("waiting_bytes", &self.pending_bytes()).finish_non_exhaustive()
    }
}

impl Backend for WriteBehind {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(self.load_merged(keys, now))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(self.acknowledge(batch, now))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let only = if let Scope::Partition(only) = &scan.scope { Some(only.clone()) } else { None };
            self.flusher.request(|reply| FlusherTask::Flush(only, reply)).await?;
            self.shared.inner.scan(scan, now).await
        })
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.flusher.request(move |reply| FlusherTask::Sweep(most, now, reply)))
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(async move {
            self.flusher.request(|reply| FlusherTask::Flush(None, reply)).await?;
            self.shared.inner.count_by_id(table, now).await
        })
    }

    fn watch(&self, table: Table) -> Watcher {
        self.shared.change_feed.watch(table)
    }

    fn is_write_behind(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        self.shared.inner.is_exclusive()
    }

    fn name(&self) -> &'static str {
        self.shared.inner.name()
    }
}
