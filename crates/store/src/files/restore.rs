//! Restores a backup over a closed file store.
//!
//! In: a backup, and the folder of the store. Out: the restored store in a new epoch; the previous files are kept next to it.
//! All files are copied and verified in a temporary folder. Renaming that folder to `contexts.restored` commits the restore, which
//! is then completed now or at the next opening: after a crash at any time, either the old store or the new one is in place.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use toolhub_storage::clock::{Clock, SystemClock};
use toolhub_types::store_role::StoreRole;

use super::{
    LocalDisk, OpenError,
    backup::{ListError, for_each_file, is_store_file, sorted_names},
    context::ZSTD_SUFFIX,
    doc::TABLES,
    document_store::{DocumentStore, original_name},
    epoch, file_codec, intent,
    open::{LAYOUT_VERSION, prepare},
    text_format::{self, DecodeError},
};
use crate::{
    backup::{Backup, RestoreReport, copy_hashed, remove_if_exists, sync_folder, unused_path},
    epoch::{epoch_after, of_version},
    failpoint,
    lock::Lock,
};

/// The files of a backup while they are copied.
const RESTORING: &str = "contexts.restoring";
/// The complete copy: the restore is committed and will replace the contexts.
const RESTORED: &str = "contexts.restored";

/// Number of threads that sync files.
const SYNC_CONCURRENCY: usize = 16;

/// Why a restore failed. The store is unchanged.
pub type RestoreError = crate::backup::RestoreError<OpenError>;

/// Replaces the store in a folder, which must be closed, with a backup; creates the folder if it does not exist. Blocks until it
/// is done.
///
/// The previous files are kept as `contexts.before-restore` in the folder. Rows written after the restore get higher versions
/// than any assigned before, so they are never mistaken for rows that were written after the backup and are now lost.
///
/// # Errors
/// When the store is open, when the backup is damaged, when a later version made it, and when the disk is full. The store is
/// then unchanged.
pub fn restore(backup: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<RestoreReport, RestoreError> {
    let (backup, folder) = (read_manifest(backup.as_ref())?, folder.as_ref());
    let io_error = |error| RestoreError::Io { path: folder.to_owned(), error };
    fs::create_dir_all(folder).map_err(io_error)?;
    let _lock =
        Lock::acquire(&folder.join("store")).map_err(|error| OpenError::from_lock_error(folder.to_owned(), error))?;
    finish_interrupted(folder).map_err(io_error)?;
    let documents = DocumentStore::new(folder, Arc::new(LocalDisk));
    prepare(&documents, folder)?;
    // Complete a pending intent of the old store now, so that it is not applied to the new one.
    intent::recover(&documents).map_err(io_error)?;
    let new = folder.join(RESTORING);
    remove_if_exists(&new).map_err(io_error)?;
    let prepared = copy_verified(&backup, &new).and_then(|()| raise_epoch(&documents, &new));
    if let Err(error) = prepared {
        let _ = remove_if_exists(&new);
        return Err(error);
    }
    failpoint::reach("files restore: before the commit");
    fs::rename(&new, folder.join(RESTORED)).and_then(|()| sync_folder(folder)).map_err(io_error)?;
    failpoint::reach("files restore: after the commit");
    let previous_store = finish_interrupted(folder).map_err(io_error)?;
    Ok(RestoreReport { backup, previous_store })
}

/// Completes a committed restore that was interrupted. Returns where the old files are, if there were any.
pub(super) fn finish_interrupted(folder: &Path) -> io::Result<Option<PathBuf>> {
    let (new, contexts) = (folder.join(RESTORED), folder.join("contexts"));
    if fs::symlink_metadata(&new).is_err() {
        return Ok(None);
    }
    // An empty folder is removed instead of archived.
    let has_files = contexts.exists() && fs::remove_dir(&contexts).is_err();
    let archive = has_files.then(|| unused_path(&contexts, ".before-restore", &[""])).transpose()?;
    if let Some(archive) = &archive {
        fs::rename(&contexts, archive)?;
    }
    sync_folder(folder)?;
    failpoint::reach("files restore: after the old store was archived");
    fs::rename(&new, &contexts)?;
    failpoint::reach("files restore: after the swap");
    sync_folder(folder)?;
    Ok(archive)
}

/// Reads and checks the manifest of a backup.
fn read_manifest(path: &Path) -> Result<Backup, RestoreError> {
    let not_a_backup = |reason: String| RestoreError::NoBackup { path: path.to_owned(), reason };
    let metadata = fs::metadata(path).map_err(|error| not_a_backup(error.to_string()))?;
    let mut manifest =
        Backup::read(path).map_err(|error| not_a_backup(format!("its manifest cannot be read: {error}")))?;
    // A file store holds nothing but states.
    manifest.check_role(StoreRole::State)?;
    if !metadata.is_dir() {
        return Err(not_a_backup("it is not a folder".into()));
    }
    manifest.store = Some(StoreRole::State);
    if manifest.schema > LAYOUT_VERSION {
        return Err(OpenError::Newer { file: path.to_owned(), found: manifest.schema, known: LAYOUT_VERSION }.into());
    }
    Ok(manifest)
}

/// Copies a backup and verifies it against its manifest.
fn copy_verified(backup: &Backup, new: &Path) -> Result<(), RestoreError> {
    let io_error = |error| RestoreError::Io { path: new.to_owned(), error };
    fs::create_dir(new).map_err(io_error)?;
    // Same permissions as the backup.
    let permissions = fs::metadata(&backup.path).and_then(|backup| fs::set_permissions(new, backup.permissions()));
    permissions.map_err(io_error)?;
    let copied = for_each_file(backup, |file, mut from| {
        let to = new.join(file);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        let permissions = from.get_ref().metadata()?.permissions();
        let mut to = File::create_new(to)?;
        let hashed = copy_hashed(&mut from, &mut to)?;
        if !permissions.readonly() {
            to.set_permissions(permissions)?;
        }
        Ok(hashed)
    });
    failpoint::reach("files restore: after the copy");
    copied.map_err(|error| match error {
        ListError::Damaged(reason) => RestoreError::Damaged { path: backup.path.clone(), reason },
        ListError::Io(error) => io_error(error),
    })
}

/// Raises the epoch of the copied files above all earlier ones, of the backup and of the old store.
fn raise_epoch(documents: &DocumentStore, new: &Path) -> Result<(), RestoreError> {
    let io_error = |error| RestoreError::Io { path: new.to_owned(), error };
    let (backup_epoch, newer) = highest_epoch(new).map_err(io_error)?;
    if let Some((file, found)) = newer {
        return Err(OpenError::Newer { file, found, known: text_format::FORMAT_VERSION }.into());
    }
    let (store_epoch, _) = highest_epoch(&documents.contexts).map_err(io_error)?;
    let epoch = epoch_after(backup_epoch.max(store_epoch), SystemClock.now());
    let written = remove_if_exists(&new.join(epoch::EPOCH_FILE)).and_then(|()| {
        let mut file = File::create_new(new.join(epoch::EPOCH_FILE))?;
        file.write_all(epoch::encode(epoch).as_bytes())?;
        file.sync_all()
    });
    written.map_err(io_error)?;
    sync_tree(new).map_err(io_error)
}

/// Syncs all files and subfolders of a folder. In parallel, because the file system can group concurrent syncs.
fn sync_tree(folder: &Path) -> io::Result<()> {
    let folders: Vec<PathBuf> =
        sorted_names(folder)?.into_iter().map(|name| folder.join(name)).filter(|path| path.is_dir()).collect();
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        while let Some(inner) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            sorted_names(inner)?.iter().try_for_each(|name| File::open(inner.join(name))?.sync_all())?;
            sync_folder(inner)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SYNC_CONCURRENCY).map(|_| scope.spawn(work)).collect();
        let panicked = |_| Err(io::Error::other("a sync thread panicked"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })?;
    sync_folder(folder)
}

/// The highest epoch of a folder, by its epoch file and by the versions of its rows; and a file of a later format, if there is
/// one.
fn highest_epoch(contexts: &Path) -> io::Result<(u64, Option<(PathBuf, u32)>)> {
    let (mut known, mut newer) = (epoch::read_file(&LocalDisk, contexts).map_err(io::Error::other)?, None);
    for folder in sorted_names(contexts)?.iter().filter(|name| name.len() == 2) {
        let path = contexts.join(folder);
        if !path.is_dir() {
            continue;
        }
        for name in sorted_names(&path)?
            .iter()
            .filter(|name| is_store_file(&format!("{folder}/{name}")) && original_name(name).is_none())
        {
            match file_codec::decode(&fs::read(path.join(name))?, name.ends_with(ZSTD_SUFFIX)) {
                Ok(doc) => {
                    let rows = TABLES.into_iter().flat_map(|table| doc.rows(table).values());
                    let version = rows.map(|stored| stored.row.version.number).max().unwrap_or(0);
                    known = known.max(of_version(version));
                }
                // It is quarantined when the store is opened.
                Err(DecodeError::Damaged(_)) => {}
                Err(DecodeError::Newer(found)) => newer = Some((path.join(name), found)),
            }
        }
    }
    Ok((known, newer))
}
