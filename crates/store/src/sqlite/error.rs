//! Errors of opening a SQLite store, and the mapping of SQLite errors to `StoreError`.
//!
//! Based on SQLite's error codes, never on its messages.

use std::{io, path::PathBuf};

use rusqlite::{Error, ErrorCode};
use smol_str::SmolStr;
use toolhub_storage::backend::{StoreError, Table};

use crate::lock::{LockError, LockHolder};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store is open already. One process at a time can open a store, and only once.
    #[error("the store {} is in use by {holder}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that has it open.
        holder: LockHolder,
    },
    /// It was written by a later version of Toolhub.
    #[error(
        "the store has schema {found}, this version supports at most {known}; use the version that wrote it, or a later one"
    )]
    Newer {
        /// The schema of the store.
        found: u32,
        /// The latest schema this version supports.
        known: u32,
    },
    /// It is a SQLite file, but not a Toolhub store.
    #[error("{} is a SQLite file that was not created by Toolhub", .0.display())]
    Foreign(PathBuf),
    /// The file system does not support WAL mode.
    #[error("{} cannot be used with a write-ahead log; a store belongs on a local disk", .0.display())]
    NoWal(PathBuf),
    /// Others may read the key that seals secrets.
    #[error("{} can be read by other users; it must belong to the user of the server alone: chmod 600 {}", .0.display(), .0.display())]
    ExposedKey(PathBuf),
    /// The linked SQLite version may damage files.
    #[error("SQLite {found} is linked, and 3.51.3 or later is needed: older ones may damage a write-ahead log")]
    OldSqlite {
        /// The linked version.
        found: &'static str,
    },
    /// The file cannot be read as a store.
    #[error(
        "the store {} is damaged: {reason}; restore a backup with `toolhub restore FILE`, or check that `store.path` is a Toolhub store",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        reason: String,
    },
    /// A file could not be opened or created.
    #[error("the store {} cannot be opened: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// SQLite failed to open or configure the file.
    #[error("the store {} cannot be opened: {reason}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        reason: String,
    },
}

impl OpenError {
    /// Maps an error of taking the lock.
    pub(super) fn from_lock_error(path: &std::path::Path, error: LockError) -> Self {
        match error {
            LockError::InUse(holder) => Self::InUse { path: path.to_owned(), holder },
            LockError::Io(path, error) => Self::Io { path, error },
        }
    }

    /// Maps a SQLite error during opening.
    pub(super) fn from_sqlite(path: &std::path::Path, error: &Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        if is_damage(error) { Self::Damaged { path, reason } } else { Self::Sqlite { path, reason } }
    }
}

/// Whether the file itself is damaged, as opposed to an access error.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        // A column has another type than it was written with.
        || matches!(error, Error::InvalidColumnType(..) | Error::FromSqlConversionFailure(..) | Error::Utf8Error(..))
}

/// Whether the disk is full.
pub(super) fn is_disk_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Begins the message of an error of a full disk or store.
const FULL: &str = "no space left";

/// The operation had no effect because of this error.
pub(super) fn unavailable(error: &Error) -> StoreError {
    StoreError::Unavailable(if is_disk_full(error) { format!("{FULL}: {error}") } else { error.to_string() })
}

/// Whether the operation failed because the disk or the store was full.
pub(super) fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(reason) if reason.starts_with(FULL))
}

/// The same for an error at a specific row.
pub(super) fn row_error(table: Table, id: &SmolStr, error: &Error) -> StoreError {
    if !is_damage(error) {
        return unavailable(error);
    }
    StoreError::Damaged { table, id: id.clone(), reason: error.to_string() }
}
