//! Backups of a state manager's store on demand, and their restore.
//!
//! In: the stores that `store_factory` opened, or the config of a closed one. Out: a backup in the manager's folder, or the restored
//! store. The handle keeps no store open.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use toolhub_types::{
    state_config::{PersistenceFormat, StateManagerConfig},
    store_role::StoreRole,
};

use super::DATABASE_FILE;
use crate::{
    Files, Sqlite, WriteBehind,
    backup::{Backup, BackupError, RestoreReport, create_named},
    files, sqlite,
};

/// The prefix of the names of these backups.
const PREFIX: &str = "state-";

/// Makes backups of a state manager's store while it is in use.
#[derive(Debug)]
pub struct StateBackups {
    folder: PathBuf,
    sqlite: Weak<Sqlite>,
    files: Weak<Files>,
    write_behind: Weak<WriteBehind>,
}

impl StateBackups {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, sqlite: Weak::new(), files: Weak::new(), write_behind: Weak::new() }
    }

    pub(super) fn set_sqlite(&mut self, store: &Arc<Sqlite>) {
        self.sqlite = Arc::downgrade(store);
    }

    pub(super) fn set_files(&mut self, store: &Arc<Files>) {
        self.files = Arc::downgrade(store);
    }

    pub(super) fn set_write_behind(&mut self, buffer: &Arc<WriteBehind>) {
        self.write_behind = Arc::downgrade(buffer);
    }

    /// Makes a backup in the folder `backups` of the state manager: a file for SQLite, a folder for JSON files. What write-behind
    /// has buffered is written first.
    ///
    /// # Errors
    /// When the disk is full, when the store is damaged, and when it was closed.
    pub async fn create(&self) -> Result<Backup, BackupError> {
        if let Some(buffer) = self.write_behind.upgrade() {
            buffer.flush().await.map_err(BackupError::Flush)?;
        }
        fs::create_dir_all(&self.folder).map_err(BackupError::io(&self.folder))?;
        match (self.sqlite.upgrade(), self.files.upgrade()) {
            (Some(store), _) => store.backup_in(&self.folder, PREFIX).await,
            (None, Some(store)) => create_named(&self.folder, (PREFIX, ""), |path| store.backup(path)).await,
            (None, None) => Err(BackupError::Closed),
        }
    }
}

/// Why the backup of a state manager's store cannot be restored. The store is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreStoreError {
    /// The folder of the state manager cannot be created.
    #[error("cannot create the store folder {}: {error}; check `persistence_path` and its permissions", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// It is a backup of a store in another format.
    #[error("{} is a backup of a store with `persistence_format = {found}`, but the config says `{expected}`", path.display())]
    Format {
        /// The backup.
        path: PathBuf,
        /// Its format.
        found: &'static str,
        /// The format of the config.
        expected: &'static str,
    },
    /// The SQLite store cannot be restored.
    #[error(transparent)]
    Sqlite(#[from] sqlite::RestoreError),
    /// The file store cannot be restored.
    #[error(transparent)]
    Files(#[from] files::RestoreError),
}

/// Replaces the store that [`open_store`](super::open_store) would open for this config, and which must be closed, with a backup.
/// Blocks until it is done. The previous store is kept next to the new one.
///
/// # Errors
/// When the store is open, when it is no backup of a state manager's store in this format, when the backup is damaged, and when
/// the disk is full.
pub fn restore_store(
    backup: impl AsRef<Path>,
    manager: &StateManagerConfig,
) -> Result<RestoreReport, RestoreStoreError> {
    let (backup, folder) = (backup.as_ref(), &manager.persistence_path);
    let (sqlite, json) = ("sqlite", "json");
    match (manager.persistence_format, backup.is_dir()) {
        (PersistenceFormat::Sqlite, true) => {
            Err(RestoreStoreError::Format { path: backup.to_owned(), found: json, expected: sqlite })
        }
        // The backup of a hub's store is a file too, and gets the better error below.
        (PersistenceFormat::Json, false)
            if Backup::read(backup).is_ok_and(|backup| backup.store != Some(StoreRole::Hub)) =>
        {
            Err(RestoreStoreError::Format { path: backup.to_owned(), found: sqlite, expected: json })
        }
        (PersistenceFormat::Sqlite, false) => {
            fs::create_dir_all(folder).map_err(|error| RestoreStoreError::Folder { path: folder.clone(), error })?;
            Ok(sqlite::restore(backup, folder.join(DATABASE_FILE), StoreRole::State)?)
        }
        (PersistenceFormat::Json, _) => Ok(files::restore(backup, folder)?),
    }
}
