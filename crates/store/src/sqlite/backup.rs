//! Backups of a store: copies of one moment, made while others work, and checked before they count.
//!
//! In: where to, and how often. Out: files that `restore` puts back. `crate::backup` says when they are made, `copy` makes one.

mod copy;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

pub(super) use copy::check_integrity;

use super::Sqlite;
use crate::backup::{Backup, BackupError, BackupSource, copy_hashed};

/// Makes backups of the store in a file.
pub(super) struct SqliteBackupSource(pub(super) PathBuf);

impl BackupSource for SqliteBackupSource {
    const SUFFIX: &'static str = ".db";

    fn store_path(&self) -> &Path {
        &self.0
    }

    fn create_backup(&self, into: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError> {
        copy::create_backup(&self.0, into, stop)
    }

    fn is_intact(&self, backup: &Backup) -> bool {
        let read = std::fs::File::open(&backup.path).and_then(|file| copy_hashed(file, io::sink()));
        read.is_ok_and(|(sha256, bytes)| (sha256, bytes) == (backup.sha256.clone(), backup.bytes))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn to_backup_error(error: rusqlite::Error) -> BackupError {
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
        self.backup_worker.create_backup(into.as_ref()).await
    }

    /// The backups in the folder that was named in the options, the latest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn backups(&self) -> io::Result<Vec<Backup>> {
        self.backup_worker.list()
    }

    /// Why the last backup the store was to make by itself was not made; `None` when it was.
    #[must_use]
    pub fn last_backup_error(&self) -> Option<String> {
        self.backup_worker.last_error()
    }
}
