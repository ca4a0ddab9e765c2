//! Creates one backup: copies to a temporary file, verifies and syncs it, and only then gives it its final name.
//!
//! In: the file of an open store, and the destination. Out: the backup, or an error; then no file is left.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rusqlite::{
    Connection, Result,
    backup::{Backup as Copying, StepResult},
};
use toolhub_storage::clock::{Clock, SystemClock};

use super::{super::connection, Backup, BackupError, SqliteBackupSource, copy_hashed, to_backup_error};
use crate::{
    backup::{TempPath, canonical_path, sync_folder, with_suffix},
    failpoint,
};

/// Pages copied between two checks of the stop flag.
const PAGES_PER_STEP: i32 = 512;

pub(super) fn create_backup(
    source: &SqliteBackupSource,
    destination: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Backup, BackupError> {
    let store = &source.path;
    let path = canonical_path(destination).map_err(BackupError::io(destination))?;
    let exists = fs::symlink_metadata(&path).is_ok();
    // The names of SQLite's files and of the lock file are reserved, even if the files do not exist now.
    if exists || ["-wal", "-shm", "-journal", ".lock"].iter().any(|suffix| path == with_suffix(store, suffix)) {
        return Err(BackupError::Exists(path));
    }
    if let Some(other) = Backup::conflicting_manifest(&path) {
        return Err(BackupError::Exists(other));
    }
    let partial = TempPath::new(with_suffix(&path, ".half"), &["", "-wal", "-shm", "-journal"])
        .map_err(BackupError::io(&path))?;
    failpoint::reach("backup: before the copy");
    let (made_at, schema, rows) = copy(store, &partial.path, stop)?;
    failpoint::reach("backup: after the copy");
    let io_error = BackupError::io(&path);
    let file = File::open(&partial.path).map_err(&io_error)?;
    file.sync_all().map_err(&io_error)?;
    failpoint::reach("backup: after the sync");
    let (sha256, bytes) = copy_hashed(file, io::sink()).map_err(&io_error)?;
    let backup = Backup { path: path.clone(), store: Some(source.role), made_at, schema, bytes, rows, sha256 };
    // The manifest first: a backup with its final name always has a manifest.
    backup.write().map_err(&io_error)?;
    failpoint::reach("backup: after the manifest");
    match rename_no_replace(&partial.path, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(BackupError::Exists(path.clone())),
        renamed => renamed.map_err(&io_error)?,
    }
    failpoint::reach("backup: after the name");
    let folder = path.parent().unwrap_or(Path::new("/"));
    sync_folder(folder).map_err(&io_error)?;
    Ok(backup)
}

/// Copies a snapshot of the store. Returns its time, the schema and the number of rows.
fn copy(
    store: &Path,
    partial: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<(toolhub_storage::clock::Timestamp, u32, u64), BackupError> {
    let from = connection::open_reader(store).map_err(to_backup_error)?;
    // This read transaction fixes the snapshot: the copy is consistent, and concurrent commits do not restart it.
    from.execute_batch("BEGIN").map_err(to_backup_error)?;
    let schema = from.query_row("SELECT max(version) FROM steps", (), |row| row.get(0)).map_err(to_backup_error)?;
    let made_at = SystemClock.now();
    let mut to = Connection::open(partial).map_err(to_backup_error)?;
    // Same permissions as the store. `fs::metadata` opens no descriptor of the store (see `connection`).
    let permissions = fs::metadata(store).and_then(|store| fs::set_permissions(partial, store.permissions()));
    permissions.map_err(BackupError::io(partial))?;
    // An interrupted copy is discarded, and a complete one is synced as a whole at the end.
    to.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF").map_err(to_backup_error)?;
    let copying = Copying::new(&from, &mut to).map_err(to_backup_error)?;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(BackupError::Closed);
        }
        match copying.step(PAGES_PER_STEP).map_err(to_backup_error)? {
            StepResult::Done => break,
            StepResult::More => {}
            _ => return Err(BackupError::Sqlite("the store or its copy is locked".into())),
        }
    }
    drop(copying);
    // End the snapshot, so that the store's WAL can be reset again.
    drop(from);
    let stop_flag = stop.clone();
    to.progress_handler(10_000, Some(move || stop_flag.load(Ordering::Relaxed))).map_err(to_backup_error)?;
    // A single file without a WAL.
    to.execute_batch("PRAGMA journal_mode = DELETE").map_err(to_backup_error)?;
    let checked = check_integrity(&to).and_then(|integrity| {
        let rows: i64 = to.query_row("SELECT count(*) FROM rows", (), |row| row.get(0))?;
        Ok((integrity, rows.cast_unsigned()))
    });
    let (integrity, rows) = match checked {
        Err(_) if stop.load(Ordering::Relaxed) => return Err(BackupError::Closed),
        checked => checked.map_err(to_backup_error)?,
    };
    integrity.map_err(BackupError::Damaged)?;
    to.close().map_err(|(_, error)| to_backup_error(error))?;
    Ok((made_at, schema, rows))
}

/// Runs SQLite's integrity check; the inner error is the first problem it reports.
pub(in super::super) fn check_integrity(connection: &Connection) -> Result<Result<(), String>> {
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    Ok(if verdict == "ok" { Ok(()) } else { Err(verdict) })
}

/// Renames a file unless the destination exists.
fn rename_no_replace(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // The file system has no hard links.
        Err(_) if fs::symlink_metadata(path).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(partial, path),
    }
}
