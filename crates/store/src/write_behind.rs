//! Write-behind backend: acknowledges commits from memory and flushes them later, trading durability for latency.
//!
//! In: the requests of `Backend`. Out: results merged from the buffer and the inner store. Batches reach the inner store
//! complete and, within a partition, in order: at an interval, when the buffer fills up, on request, and on close.
//! `buffer` holds the acknowledged, unwritten batches, `flusher` is the thread that writes them, and `clean_shutdown` detects
//! an unclean shutdown.

mod buffer;
pub(crate) mod clean_shutdown;
mod flusher;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::RwLock;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, LossReport, Page, Row, RowKey, Scan, Scope, ServersReport, SizeLimit, StoreError,
        Table, Watcher, Write,
    },
    clock::{Clock, Timestamp},
    seal::SealKey,
};

use self::{
    buffer::WriteBuffer,
    flusher::{Flusher, FlusherTask},
};
use crate::change_feed::ChangeFeed;

/// Options of a write-behind store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time between flushes. Default: one minute.
    pub flush_interval: Duration,
    /// Approximate limit of buffered bytes. At half of it a flush starts early; at the limit commits wait for a flush, and fail
    /// if it fails. Default: 64 MiB.
    pub max_pending_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { flush_interval: Duration::from_secs(60), max_pending_bytes: 64 << 20 }
    }
}

/// Wraps a backend: commits are acknowledged immediately and flushed periodically.
///
/// Nothing else may use the inner store. A crash loses the commits since the last flush; each partition is then in an
/// earlier consistent state. After a crash versions continue from a higher number, so that none is assigned twice. Dropping
/// it flushes the buffer; [`close`](Self::close) does so too and reports errors.
///
/// ```
/// use std::sync::Arc;
/// use toolhub_storage::backend::Memory;
/// use toolhub_store::write_behind::{Options, WriteBehind};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = WriteBehind::open(Arc::new(Memory::new()), Options::default()).await?;
/// // Use it in a hub, and after the hub is closed:
/// store.close().await?;
/// # Ok(()) }
/// ```
///
/// Some batches are written through immediately: those with a check of their partition, the first of each table and partition kind, and those
/// that would fill half of the buffer. So the caller gets the error of a store that does not accept them. A power-safe
/// commit of the inner store must also make the earlier commits of its partition power-safe.
pub struct WriteBehind {
    shared: Arc<Shared>,
    flusher: Flusher,
}

/// State shared by the callers and the flusher thread.
struct Shared {
    inner: Arc<dyn Backend>,
    buffer: Mutex<WriteBuffer>,
    change_feed: ChangeFeed,
    /// Callers hold it for reading while they compute the effect of a batch from the inner store; the flusher holds it for
    /// writing while it writes a batch through, whose effect cannot be computed in advance.
    write_through_lock: RwLock<()>,
    /// Set by a panic of the flusher, until it has flushed everything: nothing is acknowledged that may never be written.
    flush_panicked: AtomicBool,
    max_pending_bytes: usize,
}

impl Shared {
    fn lock_buffer(&self) -> MutexGuard<'_, WriteBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteBehind {
    /// Wraps a store, and checks whether its last use ended with a clean shutdown.
    ///
    /// # Errors
    /// When the inner store cannot be read or written.
    pub async fn open(inner: Arc<dyn Backend>, options: Options) -> Result<Self, StoreError> {
        let epoch = clean_shutdown::record_open(&*inner).await?;
        let buffer = Mutex::new(WriteBuffer::new(epoch));
        let shared = Shared {
            inner,
            buffer,
            change_feed: ChangeFeed::new(),
            write_through_lock: RwLock::new(()),
            flush_panicked: AtomicBool::new(false),
            max_pending_bytes: options.max_pending_bytes.max(2),
        };
        let shared = Arc::new(shared);
        let flusher = Flusher::spawn(shared.clone(), options.flush_interval, epoch);
        let flusher = flusher.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { shared, flusher })
    }

    /// Writes all buffered batches.
    ///
    /// # Errors
    /// When the inner store fails. The batches stay in the buffer.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.flusher.request(|reply| FlusherTask::Flush(None, reply)).await
    }

    /// Writes all buffered batches and records a clean shutdown.
    ///
    /// # Errors
    /// When the inner store fails: the buffered batches are then lost.
    pub async fn close(self) -> Result<(), StoreError> {
        self.flusher.request(FlusherTask::Close).await
    }

    /// The approximate number of buffered bytes.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.shared.lock_buffer().bytes()
    }

    /// Flushes when the buffer is full, or requests a flush when it is half full.
    async fn apply_backpressure(&self) -> Result<(), StoreError> {
        let bytes = self.shared.lock_buffer().bytes();
        if bytes >= self.shared.max_pending_bytes {
            self.flush().await.map_err(|error| {
                StoreError::Unavailable(format!("the write-behind buffer is full and the flush failed: {error}"))
            })?;
        } else if bytes >= self.shared.max_pending_bytes / 2 {
            self.flusher.request_flush();
        }
        Ok(())
    }

    async fn acknowledge(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        batch.check_duplicate_writes()?;
        if self.shared.flush_panicked.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable(
                "the write-behind flusher panicked; commits are refused until a flush succeeds".into(),
            ));
        }
        self.apply_backpressure().await?;
        let is_large = batch_bytes(&batch) >= self.shared.max_pending_bytes / 2;
        let mut batch = batch;
        loop {
            if is_large || batch.no_other_rows || !self.shared.lock_buffer().has_accepted(&batch) {
                return self.flusher.request(|reply| FlusherTask::WriteThrough(batch, now, reply)).await;
            }
            let read_guard = self.shared.write_through_lock.read().await;
            let (missing, generations) = self.shared.lock_buffer().missing_keys(&batch);
            let loaded = match self.shared.inner.load(&missing, now).await {
                Ok(loaded) => loaded,
                // An unreadable row may still be replaced; the inner store decides.
                Err(StoreError::Damaged { .. }) => {
                    drop(read_guard);
                    return self.flusher.request(|reply| FlusherTask::WriteThrough(batch, now, reply)).await;
                }
                Err(error) => return Err(error),
            };
            let stored = missing.into_iter().zip(loaded).collect();
            match self.shared.lock_buffer().commit(batch, now, stored, generations, &self.shared.change_feed) {
                Ok(result) => return result,
                // The partition has changed since the load: retry.
                Err(returned) => batch = *returned,
            }
        }
    }

    async fn load_merged(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        loop {
            let (found, missing, generations) = self.shared.lock_buffer().lookup(keys, now);
            if missing.is_empty() {
                return Ok(found);
            }
            let loaded = self.shared.inner.load(&missing, now).await?;
            if self.shared.lock_buffer().is_current(&generations) {
                return Ok(buffer::merge_loaded(keys, found, missing, loaded));
            }
        }
    }
}

/// The size of the batch's values.
fn batch_bytes(batch: &Batch) -> usize {
    let bytes = |write: &Write| match &write.change {
        Change::Put { value, .. } | Change::Restore { value, .. } => value.len(),
        _ => 0,
    };
    batch.writes.iter().map(bytes).sum()
}

impl fmt::Debug for WriteBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBehind").field("pending_bytes", &self.pending_bytes()).finish_non_exhaustive()
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

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.flusher.request(move |reply| FlusherTask::Sweep(limit, now, reply)))
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

    fn write_error(&self) -> Option<String> {
        if self.shared.flush_panicked.load(Ordering::Acquire) {
            return Some("the last flush panicked".into());
        }
        self.shared.inner.write_error()
    }

    fn damage(&self) -> Option<String> {
        self.shared.inner.damage()
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        self.shared.inner.losses(seen)
    }

    fn warnings(&self) -> Vec<String> {
        self.shared.inner.warnings()
    }

    fn memory_pressure(&self) -> Option<f64> {
        self.shared.inner.memory_pressure()
    }

    fn lacks_replicas(&self, stamp: u64) -> bool {
        self.shared.inner.lacks_replicas(stamp)
    }

    fn servers(&self) -> Option<ServersReport> {
        self.shared.inner.servers()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.shared.inner.clock()
    }

    fn is_write_behind(&self) -> bool {
        true
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        self.shared.inner.size_limit()
    }

    fn is_exclusive(&self) -> bool {
        self.shared.inner.is_exclusive()
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.shared.inner.seal_key()
    }

    fn name(&self) -> &'static str {
        self.shared.inner.name()
    }
}
