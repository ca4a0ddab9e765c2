//! Puts a backup in the place of a store that is closed.
//!
//! In: a backup, and the folder of the store. Out: the store as it was, in a new epoch; what was there before is kept beside it.
//! All files are made and checked under another name. Once that name says that they are whole the restore will happen, now or
//! when the folder is opened next: whenever the process dies, the old store is there, or the new one.

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

/// The files of a backup while they are fetched.
const RESTORING: &str = "contexts.restoring";
/// All of them, whole: they are about to take the place of the others.
const RESTORED: &str = "contexts.restored";

/// How many files are synced at a time.
const SYNC_CONCURRENCY: usize = 16;

/// Why a backup was not restored. The store is as it was.
pub type RestoreError = crate::backup::RestoreError<OpenError>;

/// Puts a backup in the place of the store in a folder, which must be closed; where there is none, one is made. Blocks until it is
/// done.
///
/// What was there before is kept as `contexts.before-restore` in the folder. Rows that are written after this have higher versions
/// than any that was given out before, so nobody takes them for what was written after the backup was made and is now gone.
///
/// # Errors
/// When somebody has the store open, when the backup is not what was made, when a later version made it, and when the disk is
/// full. The store is then as it was.
pub fn restore(backup: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<RestoreReport, RestoreError> {
    let (backup, folder) = (read_manifest(backup.as_ref())?, folder.as_ref());
    let broken = |error| RestoreError::Io { path: folder.to_owned(), error };
    fs::create_dir_all(folder).map_err(broken)?;
    let _lock =
        Lock::acquire(&folder.join("store")).map_err(|why| OpenError::from_lock_error(folder.to_owned(), why))?;
    finish_interrupted(folder).map_err(broken)?;
    let shelf = DocumentStore::new(folder, Arc::new(LocalDisk));
    prepare(&shelf, folder)?;
    // What the old store had begun is its own: it must not be done to the new one.
    intent::recover(&shelf).map_err(broken)?;
    let new = folder.join(RESTORING);
    remove_if_exists(&new).map_err(broken)?;
    let ready = copy_verified(&backup, &new).and_then(|()| raise_epoch(&shelf, &new));
    if let Err(error) = ready {
        let _ = remove_if_exists(&new);
        return Err(error);
    }
    failpoint::reach("restore of files: before it counts");
    fs::rename(&new, folder.join(RESTORED)).and_then(|()| sync_folder(folder)).map_err(broken)?;
    failpoint::reach("restore of files: after it counts");
    let kept = finish_interrupted(folder).map_err(broken)?;
    Ok(RestoreReport { backup, previous_store: kept })
}

/// Does what is left of a restore that was cut short after it had begun to count. Answers where the old files lie, if there were
/// some.
pub(super) fn finish_interrupted(folder: &Path) -> io::Result<Option<PathBuf>> {
    let (new, contexts) = (folder.join(RESTORED), folder.join("contexts"));
    if fs::symlink_metadata(&new).is_err() {
        return Ok(None);
    }
    // A folder with nothing in it is not worth keeping.
    let there = contexts.exists() && fs::remove_dir(&contexts).is_err();
    let kept = there.then(|| unused_path(&contexts, ".before-restore", &[""])).transpose()?;
    if let Some(kept) = &kept {
        fs::rename(&contexts, kept)?;
    }
    sync_folder(folder)?;
    failpoint::reach("restore of files: after the old was kept");
    fs::rename(&new, &contexts)?;
    failpoint::reach("restore of files: after the swap");
    sync_folder(folder)?;
    Ok(kept)
}

/// What the manifest of a backup says.
fn read_manifest(path: &Path) -> Result<Backup, RestoreError> {
    let none = |reason: String| RestoreError::NoBackup { path: path.to_owned(), reason };
    if !fs::metadata(path).map_err(|error| none(error.to_string()))?.is_dir() {
        return Err(none("it is no folder".into()));
    }
    let said = Backup::read(path).map_err(|error| none(format!("its manifest cannot be read: {error}")))?;
    if said.schema > LAYOUT_VERSION {
        return Err(OpenError::Newer { file: path.to_owned(), found: said.schema, known: LAYOUT_VERSION }.into());
    }
    Ok(said)
}

/// Copies a backup, and sees that it is what was made.
fn copy_verified(backup: &Backup, new: &Path) -> Result<(), RestoreError> {
    let broken = |error| RestoreError::Io { path: new.to_owned(), error };
    fs::create_dir(new).map_err(broken)?;
    // Nobody else may read it than may read the backup.
    let allowed = fs::metadata(&backup.path).and_then(|backup| fs::set_permissions(new, backup.permissions()));
    allowed.map_err(broken)?;
    let fetched = for_each_file(backup, |file, mut from| {
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
    failpoint::reach("restore of files: after the copy");
    fetched.map_err(|problem| match problem {
        ListError::Damaged(reason) => RestoreError::Damaged { path: backup.path.clone(), reason },
        ListError::Io(error) => broken(error),
    })
}

/// Brings the fetched files into an epoch later than all that were, here and in the old store.
fn raise_epoch(shelf: &DocumentStore, new: &Path) -> Result<(), RestoreError> {
    let broken = |error| RestoreError::Io { path: new.to_owned(), error };
    let (theirs, newer) = highest_epoch(new).map_err(broken)?;
    if let Some((file, found)) = newer {
        return Err(OpenError::Newer { file, found, known: text_format::FORMAT_VERSION }.into());
    }
    let (ours, _) = highest_epoch(&shelf.contexts).map_err(broken)?;
    let epoch = epoch_after(theirs.max(ours), SystemClock.now());
    let written = remove_if_exists(&new.join(epoch::EPOCH_FILE)).and_then(|()| {
        let mut file = File::create_new(new.join(epoch::EPOCH_FILE))?;
        file.write_all(epoch::encode(epoch).as_bytes())?;
        file.sync_all()
    });
    written.map_err(broken)?;
    sync_tree(new).map_err(broken)
}

/// Returns when all files in the folders of a folder have reached the disk, and their names. Several wait at a time, because
/// those who wait together share what it costs.
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
        let fell = |_| Err(io::Error::other("the syncing fell over"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(fell))
    })?;
    sync_folder(folder)
}

/// The highest epoch a folder gives a sign of, by what it says of itself and by its rows; and a file of a later format, if
/// there is one.
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
                    let version = rows.map(|kept| kept.row.version.number).max().unwrap_or(0);
                    known = known.max(of_version(version));
                }
                // Whoever opens the store sets it aside.
                Err(DecodeError::Damaged(_)) => {}
                Err(DecodeError::Newer(found)) => newer = Some((path.join(name), found)),
            }
        }
    }
    Ok((known, newer))
}
