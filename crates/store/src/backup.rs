//! What the backups of all stores have in common: when they are made, what lies beside them, how long they are kept.
//!
//! In: where to, how often, and a `Maker` that makes one and knows one that is whole. Out: backups in a folder. `clerk` is the
//! thread that has them made, `manifest` the text beside each, `bytes` what is done with files on the way.

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

pub(crate) use file_ops::{
    TempPath, canonical_path, copy_hashed, link_or_copy, remove_if_exists, sync_folder, unused_path, with_suffix,
};
pub use manifest::Backup;
pub use restore::{RestoreError, RestoreReport};
pub(crate) use worker::BackupWorker;

/// How a store makes backups of itself.
///
/// ```
/// # use std::time::Duration;
/// use toolhub_store::sqlite::{Backups, Options};
///
/// let day = Duration::from_secs(24 * 3600);
/// let options = Options::default().backups(Backups { every: day, keep_for: 30 * day, ..Backups::into("backups") });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupOptions {
    /// Where they are laid. The folder is made when it is missing, and holds the backups of one store.
    pub folder: PathBuf,
    /// The time from one to the next, also over restarts. One hour unless it is said otherwise.
    pub interval: Duration,
    /// How old one becomes before it is removed. Seven days unless it is said otherwise. The latest that is sound stays,
    /// however old it is.
    pub retention: Duration,
}

impl BackupOptions {
    /// Every hour, for seven days.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            interval: Duration::from_secs(3600),
            retention: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is a file already, and no backup takes the place of another file.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The copy is not sound, so the store is not: it can be read, but not relied on.
    #[error("the store is damaged, and so would be its backup: {0}")]
    Damaged(String),
    /// A file could not be written or read; the disk may be full.
    #[error("{} cannot be written: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// SQLite could not copy it; the disk may be full.
    #[error("the store cannot be copied: {0}")]
    Sqlite(String),
    /// The store was closed before the backup was made.
    #[error("the store was closed before the backup was made")]
    Closed,
}

impl BackupError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |error| Self::Io { path: path.to_owned(), error }
    }
}

/// What differs from store to store.
///
/// An implementation promises that a backup has its name only when it is whole and its manifest lies beside it, that what it
/// makes before that has the same name with `.half` behind it, and that it stops soon when it is told to.
pub(crate) trait BackupSource: Send + 'static {
    /// The store, whose name those of its backups begin with.
    fn store_path(&self) -> &Path;

    /// How their names end.
    const SUFFIX: &'static str;

    /// Makes one. The flag says when it is not wanted any more.
    fn create_backup(&self, into: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError>;

    /// Whether a backup is still what was made.
    fn is_intact(&self, backup: &Backup) -> bool;
}
