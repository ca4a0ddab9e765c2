//! Backups of all stores: schedule, manifest and retention.
//!
//! In: folder, interval and retention, and a `BackupSource` that creates and verifies a backup. Out: backups in a folder.
//! `worker` is the thread that runs them, `manifest` the JSON file next to each, `file_ops` the file operations they share.

mod file_ops;
mod manifest;
mod restore;
mod worker;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use toolhub_storage::{
    backend::StoreError,
    clock::{Clock, SystemClock},
};

pub(crate) use file_ops::{
    TempPath, canonical_path, copy_hashed, link_or_copy, remove_if_exists, sync_folder, unused_path, with_suffix,
};
pub use manifest::Backup;
pub use restore::{RestoreError, RestoreReport};
pub(crate) use worker::BackupWorker;

/// Scheduled backups of a store.
///
/// ```
/// # use std::time::Duration;
/// use toolhub_store::sqlite::{BackupOptions, Options};
///
/// let day = Duration::from_secs(24 * 3600);
/// let backups = BackupOptions { interval: day, retention: 30 * day, ..BackupOptions::new("backups") };
/// let options = Options::default().backups(backups);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOptions {
    /// The backup folder. Created if it is missing; holds the backups of one store.
    pub folder: PathBuf,
    /// The time between backups, also across restarts. Default: one hour.
    pub interval: Duration,
    /// Older backups are removed. Default: seven days. The latest intact backup is never removed, however old it is.
    pub retention: Duration,
}

impl BackupOptions {
    /// Backups into this folder, every hour, kept for seven days.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            interval: Duration::from_secs(3600),
            retention: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// Why a backup failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The destination exists already; a backup never overwrites a file.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The copy failed verification, so the store itself is damaged.
    #[error("the backup was discarded because the store is damaged: {0}")]
    Damaged(String),
    /// A file could not be written or read; the disk may be full.
    #[error("{} cannot be written: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// SQLite could not copy the store; the disk may be full.
    #[error("SQLite cannot copy the store: {0}")]
    Sqlite(String),
    /// The write-behind buffer could not be written to the store first.
    #[error("the write-behind buffer cannot be flushed before the backup: {0}")]
    Flush(StoreError),
    /// A thread of the store panicked.
    #[error("a thread of the store panicked during the backup; the log has the cause")]
    Panicked,
    /// The store was closed before the backup was made.
    #[error("the store was closed before the backup was made")]
    Closed,
}

impl BackupError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |error| Self::Io { path: path.to_owned(), error }
    }
}

/// Makes a backup in a folder; its name has the prefix, the time and the suffix. Of several backups at the same time, each gets
/// the next unused millisecond.
pub(crate) async fn create_named<F: Future<Output = Result<Backup, BackupError>>>(
    folder: &Path,
    (prefix, suffix): (&str, &str),
    create: impl Fn(PathBuf) -> F,
) -> Result<Backup, BackupError> {
    let mut time = SystemClock.now();
    loop {
        let name = format!("{prefix}{}{suffix}", time.to_string().replace([':', '.'], "-"));
        match create(folder.join(name)).await {
            Err(BackupError::Exists(_)) => time = time + Duration::from_millis(1),
            created => return created,
        }
    }
}

/// The store-specific part of a backup.
///
/// An implementation promises that a backup gets its final name only when it is complete and its manifest exists, that
/// temporary files have the same name with the suffix `.half`, and that it stops soon after the stop flag is set.
pub(crate) trait BackupSource: Send + 'static {
    /// The path of the store; the names of its backups begin with its file stem.
    fn store_path(&self) -> &Path;

    /// The suffix of backup names.
    const SUFFIX: &'static str;

    /// Creates a backup. Stops early once the flag is set.
    fn create_backup(&self, destination: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError>;

    /// Whether a backup is complete and matches its checksum.
    fn is_intact(&self, backup: &Backup) -> bool;
}
