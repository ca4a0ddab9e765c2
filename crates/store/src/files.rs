//! File backend for tool state: one readable JSON file per context.
//!
//! In: the requests of `Backend`, for states, their snapshots and their history. Out: rows and versions. `doc` is the content
//! of a file and `text_format` its encoding; `index` and `document_store` find and read files; `writer` is the single writer
//! thread; `intent` is the write-ahead record that makes writes to several files atomic; `disk` abstracts the file system.
//! One process at a time opens the folder (`crate::lock`). `backup` makes online copies, and `restore` replaces a closed store.

mod backup;
mod cache;
mod context;
mod disk;
mod doc;
mod document_store;
mod epoch;
mod error;
mod file_codec;
mod index;
mod intent;
mod json_text;
mod open;
mod read;
mod restore;
mod scan;
mod text_format;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_core::future::BoxFuture;
use toolhub_storage::{
    backend::{Backend, Batch, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

use crate::{backup::BackupWorker, change_feed::ChangeFeed, lock::Lock};
pub use crate::{
    backup::{Backup, BackupError, BackupOptions, RestoreReport},
    lock::LockHolder,
};
pub use disk::{Disk, LocalDisk};
pub use error::{OpenError, QuarantinedFile};
pub use restore::{RestoreError, restore};

/// Options for opening a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether new files are compressed with zstd. Both kinds are readable, so this may differ at every opening.
    pub compression: bool,
    /// Scheduled backups; `None` for none.
    pub backups: Option<BackupOptions>,
}

/// A backend that stores tool state in one JSON file per context, and no other tables.
///
/// ```
/// use toolhub_storage::backend::Backend as _;
/// use toolhub_store::{Files, files::Options};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("toolhub-doc-files-{}", std::process::id()));
/// let store = Files::open(&folder, Options::default())?;
/// assert_eq!(store.name(), "files");
/// # drop(store); std::fs::remove_dir_all(folder)?;
/// # Ok(()) }
/// ```
///
/// Records of calls, approvals and other tables are refused: a hub that runs tools stores them in another backend.
///
/// Its own threads do the work, and tokio's paused clock does not wait for them: tests that pause time use the in-memory
/// backend.
// The drop order matters: a running backup ends first, and the lock is released after the writer has stopped.
pub struct Files {
    folder: PathBuf,
    backup_worker: BackupWorker,
    readers: read::Readers,
    writer: Arc<writer::Writer>,
    change_feed: ChangeFeed,
    documents: Arc<document_store::DocumentStore>,
    _lock: Lock,
}

impl Files {
    /// The folder of the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The unreadable files that were quarantined since the folder was opened. Reading their contents fails with
    /// [`Damaged`](StoreError::Damaged) until the rows are rewritten, as long as the quarantined files exist.
    #[must_use]
    pub fn quarantined_files(&self) -> Vec<QuarantinedFile> {
        self.documents.lock_index().quarantined_files.clone()
    }

    /// The number of files.
    #[must_use]
    pub fn count(&self) -> usize {
        self.documents.lock_index().len()
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Backend for Files {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(self.readers.load(keys, now))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(self.writer.commit(batch, now))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(self.readers.scan(scan, now))
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.writer.sweep(limit, now))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.change_feed.watch(table)
    }

    /// Not after a panic of the writer thread: the index in memory may not match the files.
    fn write_error(&self) -> Option<String> {
        self.writer.is_poisoned().then(|| "its writer thread panicked; restart".into())
    }

    fn damage(&self) -> Option<String> {
        let (count, folder) = (self.documents.lock_index().quarantined_count(), self.folder.display());
        (count > 0)
            .then(|| format!("damaged files of {folder} in quarantine: {count}; requests that need one are refused"))
    }

    fn name(&self) -> &'static str {
        "files"
    }
}
