//! Restores a backup over a closed SQLite store.
//!
//! In: a backup, and the path of the store. Out: the restored store in a new epoch; the previous store is kept next to it.
//! The copy is prepared and verified under a temporary name, and a final rename activates it: after a crash at any time,
//! either the old store or the new one is in place.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};
use toolhub_storage::{
    backend::Table,
    clock::{Clock, SystemClock},
};
use toolhub_types::store_role::StoreRole;

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

/// Why a restore failed. The store is unchanged.
pub type RestoreError = backup::RestoreError<OpenError>;

/// Replaces a store, which must be closed, with a backup of a store with the same role; the folder must exist. Blocks until it
/// is done.
///
/// The previous store is kept as `….before-restore`. Rows written after the restore get higher versions than any assigned
/// before, so they are never mistaken for rows that were written after the backup and are now lost.
///
/// # Errors
/// When the store is open, when it is a backup of a store with another role, when the backup is damaged, when a later version made it, and when the disk is full. The store
/// is then unchanged.
pub fn restore(
    backup: impl AsRef<Path>,
    path: impl AsRef<Path>,
    role: StoreRole,
) -> Result<RestoreReport, RestoreError> {
    let path =
        canonical_path(path.as_ref()).map_err(|error| OpenError::Io { path: path.as_ref().to_owned(), error })?;
    let _lock = Lock::acquire(&path).map_err(|error| OpenError::from_lock_error(&path, error))?;
    let new = with_suffix(&path, ".restoring");
    let io_error = |error| RestoreError::Io { path: new.clone(), error };
    let clear =
        || ["", "-wal", "-shm", "-journal"].iter().try_for_each(|suffix| remove_if_exists(&with_suffix(&new, suffix)));
    clear().map_err(io_error)?;
    let restored = replace_store(backup.as_ref(), &path, &new, role);
    if restored.is_err() {
        let _ = clear();
    }
    restored
}

fn replace_store(backup: &Path, path: &Path, new: &Path, role: StoreRole) -> Result<RestoreReport, RestoreError> {
    let mut backup = copy_verified(backup, new, role)?;
    failpoint::reach("restore: after the copy");
    let known = checkpoint_old_store(path)?;
    failpoint::reach("restore: after the WAL checkpoint");
    prepare_copy(&mut backup, new, role, known)?;
    let io_error = |path: &Path, error| RestoreError::Io { path: path.to_owned(), error };
    File::open(new).and_then(|file| file.sync_all()).map_err(|error| io_error(new, error))?;
    failpoint::reach("restore: after the sync");
    let previous_store = archive_old_store(path).map_err(|error| io_error(path, error))?;
    failpoint::reach("restore: after the old store was archived");
    fs::rename(new, path).map_err(|error| io_error(path, error))?;
    failpoint::reach("restore: after the swap");
    sync_parent_folder(path)?;
    Ok(RestoreReport { backup, previous_store })
}

/// Copies a backup and verifies it against its manifest.
fn copy_verified(backup: &Path, new: &Path, role: StoreRole) -> Result<Backup, RestoreError> {
    let not_a_backup = |reason: String| RestoreError::NoBackup { path: backup.to_owned(), reason };
    let metadata = fs::metadata(backup).map_err(|error| not_a_backup(error.to_string()))?;
    let manifest =
        Backup::read(backup).map_err(|error| not_a_backup(format!("its manifest cannot be read: {error}")))?;
    manifest.check_role(role)?;
    if !metadata.is_file() {
        return Err(not_a_backup("it is not a file".into()));
    }
    let damaged = |reason: &str| RestoreError::Damaged { path: backup.to_owned(), reason: reason.into() };
    if metadata.len() != manifest.bytes {
        return Err(damaged("its length does not match its manifest"));
    }
    let from = File::open(backup).map_err(|error| not_a_backup(error.to_string()))?;
    let io_error = |error| RestoreError::Io { path: new.to_owned(), error };
    let mut to = File::create_new(new).map_err(io_error)?;
    // Limited, in case the file grows meanwhile.
    let (sha256, bytes) = copy_hashed(from.take(manifest.bytes), &mut to).map_err(io_error)?;
    if (sha256.as_str(), bytes) != (manifest.sha256.as_str(), manifest.bytes) {
        return Err(damaged("its checksum does not match its manifest"));
    }
    // Keep the permissions of the backup, except for read-only: a store must be writable.
    if !metadata.permissions().readonly() {
        fs::set_permissions(new, metadata.permissions()).map_err(io_error)?;
    }
    Ok(manifest)
}

/// Checkpoints the WAL of the old store into its file, so that no WAL is left that SQLite would apply to the new one.
/// Returns the highest epoch of the old store.
fn checkpoint_old_store(path: &Path) -> Result<u64, RestoreError> {
    if !path.exists() {
        return Ok(0);
    }
    let checkpoint = || -> rusqlite::Result<u64> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let old = Connection::open_with_flags(path, flags)?;
        old.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA synchronous = FULL")?;
        let known = epoch::highest(&old);
        old.query_row("PRAGMA journal_mode = DELETE", (), |_| Ok(()))?;
        old.close().map_err(|(_, error)| error)?;
        known
    };
    match checkpoint() {
        Ok(known) => Ok(known),
        // SQLite cannot read the old store, so it is archived as it is.
        Err(error) if is_damage(&error) || error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => Ok(0),
        Err(error) => Err(OpenError::from_sqlite(path, &error).into()),
    }
}

/// Migrates the copy to the current schema and raises its epoch above all earlier ones. Checks the role of a backup whose
/// manifest does not name it.
fn prepare_copy(backup: &mut Backup, new: &Path, role: StoreRole, known: u64) -> Result<(), RestoreError> {
    let path = backup.path.clone();
    let damaged = |reason: String| RestoreError::Damaged { path: path.clone(), reason };
    let failed = |error: rusqlite::Error| {
        if is_damage(&error) { damaged(error.to_string()) } else { RestoreError::PrepareFailed(error.to_string()) }
    };
    let mut copy = Connection::open(new).map_err(failed)?;
    copy.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA synchronous = FULL").map_err(failed)?;
    check_integrity(&copy).map_err(failed)?.map_err(damaged)?;
    let found = schema::check_version(&backup.path, &copy, schema::MIGRATIONS)?;
    if backup.store.is_none() {
        backup.store = role_of_rows(&copy).map_err(failed)?;
        backup.check_role(role)?;
        backup.store = Some(role);
    }
    schema::migrate_copy(&mut copy, found).map_err(failed)?;
    let known = known.max(epoch::highest(&copy).map_err(failed)?);
    epoch::set(&copy, epoch_after(known, SystemClock.now())).map_err(failed)?;
    copy.query_row("PRAGMA journal_mode = DELETE", (), |_| Ok(())).map_err(failed)?;
    copy.close().map_err(|(_, error)| failed(error))
}

/// What a store with these rows is: a state manager's if it holds nothing but states; `None` if it is empty.
fn role_of_rows(copy: &Connection) -> rusqlite::Result<Option<StoreRole>> {
    let [state, versions, history] = [Table::State, Table::Versions, Table::History].map(Table::as_str);
    let has_rows: bool = copy.query_row("SELECT EXISTS (SELECT 1 FROM rows)", (), |row| row.get(0))?;
    let has_others = copy.query_row(
        "SELECT EXISTS (SELECT 1 FROM rows INDEXED BY by_id WHERE tab NOT IN (?1, ?2, ?3))",
        (state, versions, history),
        |row| row.get(0),
    )?;
    Ok(has_rows.then_some(if has_others { StoreRole::Hub } else { StoreRole::State }))
}

/// Links the old store under an archive name, and moves away a WAL or journal that is left: one that could not be checkpointed,
/// or whose database file is missing.
fn archive_old_store(path: &Path) -> io::Result<Option<PathBuf>> {
    let archive = unused_path(path, ".before-restore", &["", "-wal", "-journal"])?;
    let exists = path.exists();
    if exists {
        link_or_copy(path, &archive)?;
    }
    for log in ["-wal", "-journal"] {
        match fs::rename(with_suffix(path, log), with_suffix(&archive, log)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
    }
    remove_if_exists(&with_suffix(path, "-shm"))?;
    // After a power failure no old WAL may reappear once the new file has the store's name.
    backup::sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    Ok(exists.then_some(archive))
}
