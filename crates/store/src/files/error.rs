//! Why a folder was not opened, and which of its files cannot be read.

use std::{io, path::PathBuf};

use crate::lock::{LockError, LockHolder};

/// Why a folder could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Somebody has it open. One process at a time has a folder, and opens it once.
    #[error("the store {} is in use by {holder}", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Who has it.
        holder: LockHolder,
    },
    /// It was written by a later version of Toolhub.
    #[error(
        "{} has format {found}, this version knows {known} at most; use the version that wrote it, or a later one",
        file.display()
    )]
    Newer {
        /// The file that says so.
        file: PathBuf,
        /// What it has.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// A file or folder could not be read or made.
    #[error("the store cannot be opened: {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl OpenError {
    /// Why the lock of a folder was not taken.
    pub(super) fn from_lock_error(folder: PathBuf, why: LockError) -> Self {
        match why {
            LockError::InUse(holder) => Self::InUse { folder, holder },
            LockError::Io(path, error) => Self::Io { path, error },
        }
    }
}

/// A file that cannot be read. It was set aside, under another name; the rest is served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantinedFile {
    /// Where it lies now.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}
