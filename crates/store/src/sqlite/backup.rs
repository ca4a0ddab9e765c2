//! Backups of a store: copies of one moment, made while others work, and checked before they count.
//!
//! In: where to, and how often. Out: files that `restore` puts back. `clerk` is the thread that makes them, `copy` makes
//! one, `manifest` is the text beside it that says what it must be like.

mod clerk;
mod copy;
mod manifest;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

pub(super) use clerk::Clerk;
pub(super) use copy::{copy_hashed, is_sound, link_or_copy, remove};
pub use manifest::Backup;
pub(super) use manifest::beside;

use super::Sqlite;

/// How a store makes backups of itself.
///
/// ```
/// # use std::time::Duration;
/// use toolhub_store::sqlite::{Backups, Options};
///
/// let day = Duration::from_secs(24 * 3600);
/// let options = Options::default().backups(Backups { every: day, keep_for: 30 * day, ..Backups::into("backups") });
/// ```
#[derive(Debug, Clone)]
pub struct Backups {
    /// Where they are laid. The folder is made when it is missing, and holds the backups of one store.
    pub folder: PathBuf,
    /// The time from one to the next, also over restarts. One hour unless it is said otherwise.
    pub every: Duration,
    /// How old one becomes before it is removed. Seven days unless it is said otherwise. The latest that is sound stays,
    /// however old it is.
    pub keep_for: Duration,
}

impl Backups {
    /// Every hour, for seven days.
    pub fn into(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), every: Duration::from_secs(3600), keep_for: Duration::from_secs(7 * 24 * 3600) }
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
    fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |error| Self::Io { path: path.to_owned(), error }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn sqlite(error: rusqlite::Error) -> BackupError {
    if super::error::is_damage(&error) {
        BackupError::Damaged(error.to_string())
    } else {
        BackupError::Sqlite(error.to_string())
    }
}

impl Sqlite {
    /// Makes a backup: a copy of the store as it is at one moment, while everybody goes on reading and writing.
    ///
    /// It is a plain SQLite file under the name that is given, with a text beside it (`….json`) that holds its checksum.
    /// Either it is whole and on the disk, or it is not there. The log of the store grows while it is made. It is made to
    /// its end also when nobody waits for it any more.
    ///
    /// # Errors
    /// When there is a file of that name, when the disk is full, and when the store itself is damaged.
    pub async fn backup(&self, into: impl AsRef<Path>) -> Result<Backup, BackupError> {
        self.clerk.make(into.as_ref()).await
    }

    /// The backups in the folder that was named in the options, the latest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn backups(&self) -> io::Result<Vec<Backup>> {
        self.clerk.folder().map_or_else(|| Ok(Vec::new()), Backup::all_in)
    }

    /// Why the last backup the store was to make by itself was not made; `None` when it was.
    #[must_use]
    pub fn backup_trouble(&self) -> Option<String> {
        self.clerk.trouble()
    }
}
