//! Errors of opening a file store, and its quarantined files.

use std::{io, path::PathBuf};

use crate::lock::{LockError, LockHolder};

/// Why a folder could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store is open already. One process at a time can open a folder, and only once.
    #[error("the store {} is in use by {holder}", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process that has it open.
        holder: LockHolder,
    },
    /// It was written by a later version of Toolhub.
    #[error(
        "{} has format {found}, this version supports at most {known}; use the version that wrote it, or a later one",
        file.display()
    )]
    Newer {
        /// The file with the later format.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format this version supports.
        known: u32,
    },
    /// A file or folder could not be read or created.
    #[error("the store cannot be opened: {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

impl OpenError {
    /// Maps an error of taking the lock.
    pub(super) fn from_lock_error(folder: PathBuf, error: LockError) -> Self {
        match error {
            LockError::InUse(holder) => Self::InUse { folder, holder },
            LockError::Io(path, error) => Self::Io { path, error },
        }
    }
}

/// An unreadable file that was renamed (quarantined); the others are still served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedFile {
    /// Its current path.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}
