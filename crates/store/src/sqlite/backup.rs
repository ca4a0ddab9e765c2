//! Online backups of a SQLite store: consistent snapshots, verified before they are published.
//!
//! In: a destination. Out: a file that `restore` accepts. `crate::backup` schedules backups, `copy` creates one.

mod copy;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

pub(super) use copy::check_integrity;

use toolhub_types::store_role::StoreRole;

use super::Sqlite;
use crate::backup::{Backup, BackupError, BackupSource, copy_hashed, create_named};

/// Creates backups of the store in this file.
pub(super) struct SqliteBackupSource {
    pub(super) path: PathBuf,
    pub(super) role: StoreRole,
}

impl BackupSource for SqliteBackupSource {
    const SUFFIX: &'static str = ".db";

    fn store_path(&self) -> &Path {
        &self.path
    }

    fn create_backup(&self, destination: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError> {
        copy::create_backup(self, destination, stop)
    }

    fn is_intact(&self, backup: &Backup) -> bool {
        let hashed = std::fs::File::open(&backup.path).and_then(|file| copy_hashed(file, io::sink()));
        hashed.is_ok_and(|(sha256, bytes)| (sha256, bytes) == (backup.sha256.clone(), backup.bytes))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn to_backup_error(error: rusqlite::Error) -> BackupError {
    if super::error::is_damage(&error) {
        BackupError::Damaged(error.to_string())
    } else {
        BackupError::Sqlite(error.to_string())
    }
}

impl Sqlite {
    /// Creates an online backup: a consistent snapshot, while reads and writes continue.
    ///
    /// The result is a plain SQLite file with the given name and a manifest next to it (`….json`) that contains its checksum.
    /// The backup is either complete and durable, or absent. The store's WAL grows while the backup runs. The backup
    /// continues even if the returned future is dropped.
    ///
    /// # Errors
    /// When the destination exists, when the disk is full, and when the store itself is damaged.
    pub async fn backup(&self, destination: impl AsRef<Path>) -> Result<Backup, BackupError> {
        self.backup_worker.create_backup(destination.as_ref()).await
    }

    /// Like [`backup`](Self::backup), with a new name in this folder: the prefix and the time.
    ///
    /// # Errors
    /// When the disk is full, and when the store itself is damaged.
    pub async fn backup_in(&self, folder: impl AsRef<Path>, prefix: &str) -> Result<Backup, BackupError> {
        create_named(folder.as_ref(), (prefix, SqliteBackupSource::SUFFIX), |path| self.backup(path)).await
    }

    /// The backups in the folder of the options, latest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn backups(&self) -> io::Result<Vec<Backup>> {
        self.backup_worker.list()
    }

    /// The error of the last scheduled backup; `None` if it succeeded.
    #[must_use]
    pub fn last_backup_error(&self) -> Option<String> {
        self.backup_worker.last_error()
    }
}
