//! What tools remember as readable files: one JSON file for each context, and nothing else to keep house for.
//!
//! In: the requests of `Backend`, for states, their snapshots and their history. Out: their answers. `doc` is what a file
//! holds and `text` how it is written; `index` and `shelf` know which files there are and read them; `writer` is the one
//! thread that writes; `intent` makes one of several files; `disk` is what is asked of the file system. One process at a
//! time has the folder (`crate::lock`). `backup` makes copies while others work, and `restore` puts one in the place of a store
//! that is closed.

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

use crate::{backup::BackupWorker, lock::Lock, watch::ChangeFeed};
pub use crate::{
    backup::{Backup, BackupError, BackupOptions, RestoreReport},
    lock::LockHolder,
};
pub use disk::{Disk, LocalDisk};
pub use error::{OpenError, QuarantinedFile};
pub use restore::{RestoreError, restore};

/// How a folder is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether files are compressed with zstd when they are written. Files of both sorts are read, so this may be said
    /// otherwise at any opening.
    pub compression: bool,
    /// Whether the store makes backups of itself, and where to.
    pub backups: Option<BackupOptions>,
}

/// A backend that keeps what tools remember in one JSON file for each context, and keeps nothing else.
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
/// Records of calls, approvals and the like are refused: a hub that runs tools keeps them in another store.
///
/// The answers come from threads of its own, which tokio's paused time does not wait for: a test that stops the clock
/// uses the store in memory.
// The order matters: a backup that is being made ends first, and the lock is given back when nobody writes any more.
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
    /// Where the files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files that could not be read and were set aside since the folder was opened. What they held is answered with
    /// [`Damaged`](StoreError::Damaged) until it is written anew, as long as they lie there.
    #[must_use]
    pub fn quarantined_files(&self) -> Vec<QuarantinedFile> {
        self.documents.lock_index().quarantined_files.clone()
    }

    /// How many files there are.
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

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.writer.sweep(most, now))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.change_feed.watch(table)
    }

    fn name(&self) -> &'static str {
        "files"
    }
}
