//! Why a file was not opened, and what SQLite's errors mean to whoever asked for rows.
//!
//! Decided by SQLite's codes, never by its texts.

use std::{io, path::PathBuf};

use rusqlite::{Error, ErrorCode};
use smol_str::SmolStr;
use toolhub_storage::backend::{StoreError, Table};

use crate::lock::{LockError, LockHolder};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Somebody has it open. One process at a time has a store, and opens it once.
    #[error("the store {} is in use by {holder}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who has it.
        holder: LockHolder,
    },
    /// It was written by a later version of Toolhub.
    #[error(
        "the store has schema {found}, this version knows {known} at most; use the version that wrote it, or a later one"
    )]
    Newer {
        /// What it has.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// It is a SQLite file, but not one of ours.
    #[error("{} is a SQLite file that Toolhub did not make", .0.display())]
    Foreign(PathBuf),
    /// The file system it lies on cannot do what is needed.
    #[error("{} cannot be used with a write-ahead log; a store belongs on a local disk", .0.display())]
    NoWal(PathBuf),
    /// The SQLite that was linked may damage files.
    #[error("SQLite {found} is linked, and 3.51.3 or later is needed: older ones may damage a write-ahead log")]
    OldSqlite {
        /// Its version.
        found: &'static str,
    },
    /// The file cannot be read as a store.
    #[error("the store {} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// A file could not be opened or made.
    #[error("the store {} cannot be opened: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// SQLite could not do what is needed to open it.
    #[error("the store {} cannot be opened: {reason}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
}

impl OpenError {
    /// Why the lock of a file was not taken.
    pub(super) fn from_lock_error(path: &std::path::Path, why: LockError) -> Self {
        match why {
            LockError::InUse(holder) => Self::InUse { path: path.to_owned(), holder },
            LockError::Io(path, error) => Self::Io { path, error },
        }
    }

    /// What SQLite says while a file is opened.
    pub(super) fn from_sqlite(path: &std::path::Path, error: &Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        if is_damage(error) { Self::Damaged { path, reason } } else { Self::Sqlite { path, reason } }
    }
}

/// Whether the file itself is wrong, rather than the way to it.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        // What was stored has another type than it was stored with.
        || matches!(error, Error::InvalidColumnType(..) | Error::FromSqlConversionFailure(..) | Error::Utf8Error(..))
}

/// Whether there was no room on the disk.
pub(super) fn is_disk_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Nothing was written, or could be read, because of this.
pub(super) fn unavailable(error: &Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// The same, while one row was in hand.
pub(super) fn row_error(table: Table, id: &SmolStr, error: &Error) -> StoreError {
    if !is_damage(error) {
        return unavailable(error);
    }
    StoreError::Damaged { table, id: id.clone(), reason: error.to_string() }
}
