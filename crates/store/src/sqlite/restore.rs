//! Puts a backup in the place of a store that is closed.
//!
//! In: a backup, and where the store is. Out: the store as it was, in a new epoch; what was there before is kept beside
//! it. Everything is made and checked under another name, and one renaming at the end makes it count: whenever the
//! process dies, the old store is there, or the new one.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};
use toolhub_storage::clock::{Clock, SystemClock};

use super::{OpenError, backup::check_integrity, epoch, error::is_damage, open::sync_parent_folder, schema};
use crate::{
    backup::{
        self, Backup, RestoreReport, canonical_path, copy_hashed, link_or_copy, remove_if_exists, unused_path,
        with_suffix,
    },
    epoch::epoch_after,
    failpoint,
    lock::Lock,
};

/// Why a backup was not restored. The store is as it was.
pub type RestoreError = backup::RestoreError<OpenError>;

/// Puts a backup in the place of a store, which must be closed; the folder must be there. Blocks until it is done.
///
/// What was there before is kept as `….before-restore`. Rows that are written after this have higher versions than any
/// that was given out before, so nobody takes them for what was written after the backup was made and is now gone.
///
/// # Errors
/// When somebody has the store open, when the backup is not what was made, when a later version made it, and when the
/// disk is full. The store is then as it was.
pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<RestoreReport, RestoreError> {
    let path =
        canonical_path(path.as_ref()).map_err(|error| OpenError::Io { path: path.as_ref().to_owned(), error })?;
    let _lock = Lock::acquire(&path).map_err(|why| OpenError::from_lock_error(&path, why))?;
    let new = with_suffix(&path, ".restoring");
    let broken = |error| RestoreError::Io { path: new.clone(), error };
    let clear =
        || ["", "-wal", "-shm", "-journal"].iter().try_for_each(|ending| remove_if_exists(&with_suffix(&new, ending)));
    clear().map_err(broken)?;
    let restored = replace_store(backup.as_ref(), &path, &new);
    if restored.is_err() {
        let _ = clear();
    }
    restored
}

fn replace_store(backup: &Path, path: &Path, new: &Path) -> Result<RestoreReport, RestoreError> {
    let backup = copy_verified(backup, new)?;
    failpoint::reach("restore: after the copy");
    let known = checkpoint_old_store(path)?;
    failpoint::reach("restore: after the log was emptied");
    prepare_copy(&backup, new, known)?;
    let broken = |path: &Path, error| RestoreError::Io { path: path.to_owned(), error };
    File::open(new).and_then(|file| file.sync_all()).map_err(|error| broken(new, error))?;
    failpoint::reach("restore: after the sync");
    let kept = archive_old_store(path).map_err(|error| broken(path, error))?;
    failpoint::reach("restore: after the old was kept");
    fs::rename(new, path).map_err(|error| broken(path, error))?;
    failpoint::reach("restore: after the swap");
    sync_parent_folder(path)?;
    Ok(RestoreReport { backup, previous_store: kept })
}

/// Copies a backup, and sees that it is what was made.
fn copy_verified(backup: &Path, new: &Path) -> Result<Backup, RestoreError> {
    let none = |reason: String| RestoreError::NoBackup { path: backup.to_owned(), reason };
    let found = fs::metadata(backup).map_err(|error| none(error.to_string()))?;
    if !found.is_file() {
        return Err(none("it is no file".into()));
    }
    let said = Backup::read(backup).map_err(|error| none(format!("its manifest cannot be read: {error}")))?;
    let damaged = |reason: &str| RestoreError::Damaged { path: backup.to_owned(), reason: reason.into() };
    if found.len() != said.bytes {
        return Err(damaged("it has another length than its manifest says"));
    }
    let from = File::open(backup).map_err(|error| none(error.to_string()))?;
    let broken = |error| RestoreError::Io { path: new.to_owned(), error };
    let mut to = File::create_new(new).map_err(broken)?;
    // Should it grow meanwhile, no more is taken than belongs to it.
    let (sha256, bytes) = copy_hashed(from.take(said.bytes), &mut to).map_err(broken)?;
    if (sha256.as_str(), bytes) != (said.sha256.as_str(), said.bytes) {
        return Err(damaged("its checksum is wrong"));
    }
    // Nobody else may read it than may read the backup. One that is locked away is not, once it is a store.
    if !found.permissions().readonly() {
        fs::set_permissions(new, found.permissions()).map_err(broken)?;
    }
    Ok(said)
}

/// Empties the log of the old store into its file, so that no log is left that SQLite would apply to the new one.
/// Answers the highest epoch the old store gives a sign of.
fn checkpoint_old_store(path: &Path) -> Result<u64, RestoreError> {
    if !path.exists() {
        return Ok(0);
    }
    let empty = || -> rusqlite::Result<u64> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let old = Connection::open_with_flags(path, flags)?;
        old.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA synchronous = FULL")?;
        let known = epoch::highest(&old);
        old.query_row("PRAGMA journal_mode = DELETE", (), |_| Ok(()))?;
        old.close().map_err(|(_, error)| error)?;
        known
    };
    match empty() {
        Ok(known) => Ok(known),
        // Nothing to be saved by SQLite: what there is, is moved out of the way as it is.
        Err(error) if is_damage(&error) || error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => Ok(0),
        Err(error) => Err(OpenError::from_sqlite(path, &error).into()),
    }
}

/// Brings the copy to today's schema and into an epoch later than all that were.
fn prepare_copy(backup: &Backup, new: &Path, known: u64) -> Result<(), RestoreError> {
    let damaged = |reason: String| RestoreError::Damaged { path: backup.path.clone(), reason };
    let failed = |error: rusqlite::Error| {
        if is_damage(&error) { damaged(error.to_string()) } else { RestoreError::PrepareFailed(error.to_string()) }
    };
    let mut copy = Connection::open(new).map_err(failed)?;
    copy.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA synchronous = FULL").map_err(failed)?;
    check_integrity(&copy).map_err(failed)?.map_err(damaged)?;
    let found = schema::check_version(&backup.path, &copy, schema::MIGRATIONS)?;
    schema::migrate_copy(&mut copy, found).map_err(failed)?;
    let known = known.max(epoch::highest(&copy).map_err(failed)?);
    epoch::set(&copy, epoch_after(known, SystemClock.now())).map_err(failed)?;
    copy.query_row("PRAGMA journal_mode = DELETE", (), |_| Ok(())).map_err(failed)?;
    copy.close().map_err(|(_, error)| failed(error))
}

/// Gives the old store a second name, and takes a log away from its first: one that could not be emptied, or whose file is
/// gone.
fn archive_old_store(path: &Path) -> io::Result<Option<PathBuf>> {
    let kept = unused_path(path, ".before-restore", &["", "-wal", "-journal"])?;
    let there = path.exists();
    if there {
        link_or_copy(path, &kept)?;
    }
    for log in ["-wal", "-journal"] {
        match fs::rename(with_suffix(path, log), with_suffix(&kept, log)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
    }
    remove_if_exists(&with_suffix(path, "-shm"))?;
    // No log may come back after a loss of power once the new file has the name.
    backup::sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    Ok(there.then_some(kept))
}
