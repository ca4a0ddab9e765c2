//! Result and errors of restoring a backup.

use std::{io, path::PathBuf};

use toolhub_types::store_role::StoreRole;

use super::Backup;

impl Backup {
    /// Refuses a backup of a store with another role. One without a role passes.
    pub(crate) fn check_role<Open>(&self, expected: StoreRole) -> Result<(), RestoreError<Open>> {
        match self.store {
            Some(found) if found != expected => {
                Err(RestoreError::WrongStore { path: self.path.clone(), found, expected })
            }
            _ => Ok(()),
        }
    }
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The restored backup.
    pub backup: Backup,
    /// Where the previous store was moved; `None` if there was none.
    pub previous_store: Option<PathBuf>,
}

/// Why a restore failed. The store is unchanged. `Open` is the error of opening this kind of store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError<Open> {
    /// The store is in use or not accessible, or the backup was made by a later version.
    #[error(transparent)]
    Store(#[from] Open),
    /// The backup or its manifest is missing or unusable.
    #[error("{} is not a backup: {reason}", path.display())]
    NoBackup {
        /// The given path.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// It is a backup of another store.
    #[error("{} is a backup of {found}, not of {expected}", path.display())]
    WrongStore {
        /// The backup.
        path: PathBuf,
        /// What it is a backup of.
        found: StoreRole,
        /// What was to be restored.
        expected: StoreRole,
    },
    /// The backup does not match its manifest.
    #[error("the backup {} is damaged: {reason}", path.display())]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The backup could not be copied; the disk may be full.
    #[error("the backup cannot be copied to {}: {error}", path.display())]
    Io {
        /// The path that could not be written.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// The copy could not be prepared; the disk may be full.
    #[error("the backup cannot be prepared: {0}")]
    PrepareFailed(String),
}
