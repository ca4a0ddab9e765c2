//! What became of the wish to put a backup in the place of a store.

use std::{io, path::PathBuf};

use super::Backup;

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The backup.
    pub backup: Backup,
    /// Where what was there before lies now; none if there was nothing.
    pub previous_store: Option<PathBuf>,
}

/// Why a backup was not restored. The store is as it was. `Open` is why a store of its sort is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError<Open> {
    /// The store is in use, or cannot be reached; or a later version made the backup.
    #[error(transparent)]
    Store(#[from] Open),
    /// There is no backup there, or nothing that says what it must be like.
    #[error("{} is no backup: {reason}", path.display())]
    NoBackup {
        /// Where it should be.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// It is not what it was when it was made.
    #[error("the backup {} is damaged: {reason}", path.display())]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It could not be copied; the disk may be full.
    #[error("the backup cannot be copied to {}: {error}", path.display())]
    Io {
        /// What could not be written.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The copy could not be made ready; the disk may be full.
    #[error("the backup cannot be prepared: {0}")]
    PrepareFailed(String),
}
