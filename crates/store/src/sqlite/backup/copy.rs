//! Makes one backup: copied beside its place, checked, synced, and only then given its name.
//!
//! In: the file of a store that is open, and where to. Out: the backup, or why there is none; then nothing is left of it.

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

use super::{super::connection, Backup, BackupError, copy_hashed, to_backup_error};
use crate::{
    backup::{TempPath, canonical_path, sync_folder, with_suffix},
    failpoint,
};

/// How many pages are copied before it is asked again whether the store is being closed.
const PAGES_PER_STEP: i32 = 512;

pub(super) fn create_backup(store: &Path, into: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError> {
    let path = canonical_path(into).map_err(BackupError::io(into))?;
    let taken = fs::symlink_metadata(&path).is_ok();
    // What SQLite and the lock keep beside the store is theirs, also when it is not there at the moment.
    if taken || ["-wal", "-shm", "-journal", ".lock"].iter().any(|theirs| path == with_suffix(store, theirs)) {
        return Err(BackupError::Exists(path));
    }
    if let Some(other) = Backup::conflicting_manifest(&path) {
        return Err(BackupError::Exists(other));
    }
    let half = TempPath::new(with_suffix(&path, ".half"), &["", "-wal", "-shm", "-journal"])
        .map_err(BackupError::io(&path))?;
    failpoint::reach("backup: before the copy");
    let (made_at, schema, rows) = copy(store, &half.path, stop)?;
    failpoint::reach("backup: after the copy");
    let broken = BackupError::io(&path);
    let file = File::open(&half.path).map_err(&broken)?;
    file.sync_all().map_err(&broken)?;
    failpoint::reach("backup: after the sync");
    let (sha256, bytes) = copy_hashed(file, io::sink()).map_err(&broken)?;
    let backup = Backup { path: path.clone(), made_at, schema, bytes, rows, sha256 };
    // The manifest first: a file that has its name has its manifest.
    backup.write().map_err(&broken)?;
    failpoint::reach("backup: after the manifest");
    match rename_no_replace(&half.path, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(BackupError::Exists(path.clone())),
        placed => placed.map_err(&broken)?,
    }
    failpoint::reach("backup: after the name");
    let folder = path.parent().unwrap_or(Path::new("/"));
    sync_folder(folder).map_err(&broken)?;
    Ok(backup)
}

/// Copies one moment of the store. Says when that was, the schema and the number of rows.
fn copy(
    store: &Path,
    half: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<(toolhub_storage::clock::Timestamp, u32, u64), BackupError> {
    let from = connection::open_reader(store).map_err(to_backup_error)?;
    // While this transaction lasts, nothing that is committed is seen by the copy: it is of one moment, and never has to
    // begin anew because somebody writes.
    from.execute_batch("BEGIN").map_err(to_backup_error)?;
    let schema = from.query_row("SELECT max(version) FROM steps", (), |row| row.get(0)).map_err(to_backup_error)?;
    let made_at = SystemClock.now();
    let mut to = Connection::open(half).map_err(to_backup_error)?;
    // Nobody else may read it than may read the store. Asking for this opens no descriptor of the store.
    let allowed = fs::metadata(store).and_then(|store| fs::set_permissions(half, store.permissions()));
    allowed.map_err(BackupError::io(half))?;
    // If it is cut short it is thrown away, and it is synced as a whole at the end.
    to.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF").map_err(to_backup_error)?;
    let copying = Copying::new(&from, &mut to).map_err(to_backup_error)?;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(BackupError::Closed);
        }
        match copying.step(PAGES_PER_STEP).map_err(to_backup_error)? {
            StepResult::Done => break,
            StepResult::More => {}
            _ => return Err(BackupError::Sqlite("somebody has the store or its copy locked".into())),
        }
    }
    drop(copying);
    // The store's log may be emptied again.
    drop(from);
    let watched = stop.clone();
    to.progress_handler(10_000, Some(move || watched.load(Ordering::Relaxed))).map_err(to_backup_error)?;
    // One file, which needs no log beside it.
    to.execute_batch("PRAGMA journal_mode = DELETE").map_err(to_backup_error)?;
    let checked = check_integrity(&to).and_then(|sound| {
        let rows: i64 = to.query_row("SELECT count(*) FROM rows", (), |row| row.get(0))?;
        Ok((sound, rows.cast_unsigned()))
    });
    let (sound, rows) = match checked {
        Err(_) if stop.load(Ordering::Relaxed) => return Err(BackupError::Closed),
        checked => checked.map_err(to_backup_error)?,
    };
    sound.map_err(BackupError::Damaged)?;
    to.close().map_err(|(_, error)| to_backup_error(error))?;
    Ok((made_at, schema, rows))
}

/// Whether SQLite finds nothing wrong with a file; the inner error is the first thing it finds.
pub(in super::super) fn check_integrity(connection: &Connection) -> Result<Result<(), String>> {
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    Ok(if verdict == "ok" { Ok(()) } else { Err(verdict) })
}

/// Gives a file its name, unless something has it.
fn rename_no_replace(half: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(half, path) {
        Ok(()) => fs::remove_file(half),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not every file system knows a second name.
        Err(_) if fs::symlink_metadata(path).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(half, path),
    }
}
