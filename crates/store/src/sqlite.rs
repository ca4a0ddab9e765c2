//! SQLite backend: all records in one file; acknowledged commits survive a crash.
//!
//! In: the requests of `Backend`. Out: rows and versions. One thread executes the writes, many per transaction (group commit,
//! `writer`); loads run inline on read-only connections (`read`); scans run on threads of their own (`scan`). One process at a
//! time opens the file (`crate::lock`). Damaged rows go to `quarantine`; `backup` makes online copies, and `restore` replaces
//! a closed store.

mod backup;
mod connection;
mod epoch;
mod error;
mod integrity;
mod key_file;
mod open;
mod quarantine;
mod read;
mod restore;
mod row;
mod scan;
mod schema;
mod store_file;
mod term_block;
mod writer;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Backend, Batch, Page, Row, RowKey, Scan, SizeLimit, StoreError, Table, Watcher},
    clock::Timestamp,
    seal::SealKey,
};

pub use crate::{
    backup::{Backup, BackupError, BackupOptions, RestoreReport},
    lock::LockHolder,
};
pub use error::OpenError;
use integrity::IntegrityCheck;
pub use open::Options;
use quarantine::Quarantine;
pub use quarantine::QuarantinedRow;
pub use restore::{RestoreError, restore};
use store_file::StoreFile;

use crate::{backup::BackupWorker, change_feed::ChangeFeed, lock::Lock};

/// A backend that stores everything in one SQLite file.
///
/// ```
/// use toolhub_store::{Sqlite, sqlite::Options};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("toolhub-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("store.db");
/// let store = Sqlite::open(&path, Options::default())?;
/// let refused = Sqlite::open(&path, Options::default()).unwrap_err();
/// assert!(refused.to_string().contains(&format!("process {}", std::process::id())));
/// # drop(store); std::fs::remove_dir_all(folder)?;
/// # Ok(()) }
/// ```
///
/// Its own threads do the work, and tokio's paused clock does not wait for them: tests that pause time use the in-memory
/// backend.
// The drop order matters: a running backup ends first, the writer closes its connection last, and then the lock is released.
pub struct Sqlite {
    integrity_check: IntegrityCheck,
    file: Arc<StoreFile>,
    quarantine: Arc<Quarantine>,
    backup_worker: BackupWorker,
    readers: read::Readers,
    scanners: scan::Scanners,
    writer: writer::Writer,
    size_limit: Option<Arc<SizeLimit>>,
    /// A store of states has none: it holds no calls.
    seal_key: Option<SealKey>,
    change_feed: ChangeFeed,
    _lock: Lock,
}

impl Sqlite {
    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Waits for the check of a large file, which runs while the store is used. [`damage`](Backend::damage) has its result.
    pub fn wait_for_integrity_check(&mut self) {
        self.integrity_check.wait();
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Backend for Sqlite {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        // Inline: a load takes microseconds, and handing it to a blocking thread would cost several times as much.
        Box::pin(async move {
            let loaded = self.readers.load(keys, now);
            if let Err(StoreError::Damaged { table, id, .. }) = &loaded {
                let damaged = keys.iter().filter(|key| key.table == *table && key.id == *id);
                let suspect = |key: &RowKey| quarantine::Suspect {
                    partition: key.partition.to_string(),
                    table: key.table,
                    id: key.id.to_string(),
                };
                self.writer.inspect(damaged.map(suspect).collect(), now);
            }
            loaded
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(self.writer.commit(batch, now))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let (page, suspects) = self.scanners.scan(scan, now).await?;
            self.writer.inspect(suspects, now);
            Ok(page)
        })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.writer.sweep(limit, now))
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(self.scanners.count_by_id(table, now))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.change_feed.watch(table)
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        self.size_limit.as_deref()
    }

    fn write_error(&self) -> Option<String> {
        if self.size_limit.as_ref().is_some_and(|limit| limit.is_full()) {
            return Some("it has reached its maximum size (`store.max_size`)".into());
        }
        self.file.write_error()
    }

    fn damage(&self) -> Option<String> {
        let path = self.path().display();
        if let Some(problem) = self.file.damage() {
            return Some(format!(
                "the file {path} is damaged ({problem}): intact records are served, and calls with new idempotency keys are refused"
            ));
        }
        let count = self.quarantine.key_count();
        (count > 0)
            .then(|| format!("damaged records of {path} in quarantine: {count}; requests that need one are refused"))
    }

    /// Guaranteed by the lock on the file.
    fn is_exclusive(&self) -> bool {
        true
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.seal_key.clone()
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }
}
