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
    backup::{Problem, each, is_ours, names},
    doc::TABLES,
    epoch, intent,
    name::PACKED,
    open::{LAYOUT, prepare},
    pack,
    shelf::{Shelf, aside_of},
    text::{self, Unreadable},
};
use crate::{
    backup::{Backup, Restored, copy_hashed, free_name, remove, sync_folder},
    epoch::{after, of_version},
    failpoint,
    lock::Lock,
};

/// The files of a backup while they are fetched.
const RESTORING: &str = "contexts.restoring";
/// All of them, whole: they are about to take the place of the others.
const RESTORED: &str = "contexts.restored";

/// How many files are synced at a time.
const AT_ONCE: usize = 16;

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
pub fn restore(backup: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<Restored, RestoreError> {
    let (backup, folder) = (said(backup.as_ref())?, folder.as_ref());
    let broken = |error| RestoreError::Io { path: folder.to_owned(), error };
    fs::create_dir_all(folder).map_err(broken)?;
    let _lock = Lock::take(&folder.join("store")).map_err(|why| OpenError::of_lock(folder.to_owned(), why))?;
    finish(folder).map_err(broken)?;
    let shelf = Shelf::new(folder, Arc::new(LocalDisk));
    prepare(&shelf, folder)?;
    // What the old store had begun is its own: it must not be done to the new one.
    intent::recover(&shelf).map_err(broken)?;
    let new = folder.join(RESTORING);
    remove(&new).map_err(broken)?;
    let ready = fetch(&backup, &new).and_then(|()| raise(&shelf, &new));
    if let Err(error) = ready {
        let _ = remove(&new);
        return Err(error);
    }
    failpoint::reach("restore of files: before it counts");
    fs::rename(&new, folder.join(RESTORED)).and_then(|()| sync_folder(folder)).map_err(broken)?;
    failpoint::reach("restore of files: after it counts");
    let kept = finish(folder).map_err(broken)?;
    Ok(Restored { backup, kept })
}

/// Does what is left of a restore that was cut short after it had begun to count. Answers where the old files lie, if there were
/// some.
pub(super) fn finish(folder: &Path) -> io::Result<Option<PathBuf>> {
    let (new, contexts) = (folder.join(RESTORED), folder.join("contexts"));
    if fs::symlink_metadata(&new).is_err() {
        return Ok(None);
    }
    // A folder with nothing in it is not worth keeping.
    let there = contexts.exists() && fs::remove_dir(&contexts).is_err();
    let kept = there.then(|| free_name(&contexts, ".before-restore", &[""])).transpose()?;
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
fn said(path: &Path) -> Result<Backup, RestoreError> {
    let none = |reason: String| RestoreError::NoBackup { path: path.to_owned(), reason };
    if !fs::metadata(path).map_err(|error| none(error.to_string()))?.is_dir() {
        return Err(none("it is no folder".into()));
    }
    let said = Backup::read(path).map_err(|error| none(format!("its manifest cannot be read: {error}")))?;
    if said.schema > LAYOUT {
        return Err(OpenError::Newer { file: path.to_owned(), found: said.schema, known: LAYOUT }.into());
    }
    Ok(said)
}

/// Copies a backup, and sees that it is what was made.
fn fetch(backup: &Backup, new: &Path) -> Result<(), RestoreError> {
    let broken = |error| RestoreError::Io { path: new.to_owned(), error };
    fs::create_dir(new).map_err(broken)?;
    // Nobody else may read it than may read the backup.
    let allowed = fs::metadata(&backup.path).and_then(|backup| fs::set_permissions(new, backup.permissions()));
    allowed.map_err(broken)?;
    let fetched = each(backup, |file, mut from| {
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
        Problem::Damaged(reason) => RestoreError::Damaged { path: backup.path.clone(), reason },
        Problem::Io(error) => broken(error),
    })
}

/// Brings the fetched files into an epoch later than all that were, here and in the old store.
fn raise(shelf: &Shelf, new: &Path) -> Result<(), RestoreError> {
    let broken = |error| RestoreError::Io { path: new.to_owned(), error };
    let (theirs, newer) = highest(new).map_err(broken)?;
    if let Some((file, found)) = newer {
        return Err(OpenError::Newer { file, found, known: text::FORMAT }.into());
    }
    let (ours, _) = highest(&shelf.contexts).map_err(broken)?;
    let epoch = after(theirs.max(ours), SystemClock.now());
    let written = remove(&new.join(epoch::FILE)).and_then(|()| {
        let mut file = File::create_new(new.join(epoch::FILE))?;
        file.write_all(epoch::text(epoch).as_bytes())?;
        file.sync_all()
    });
    written.map_err(broken)?;
    sync_below(new).map_err(broken)
}

/// Returns when all files in the folders of a folder have reached the disk, and their names. Several wait at a time, because
/// those who wait together share what it costs.
fn sync_below(folder: &Path) -> io::Result<()> {
    let folders: Vec<PathBuf> =
        names(folder)?.into_iter().map(|name| folder.join(name)).filter(|path| path.is_dir()).collect();
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        while let Some(inner) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            names(inner)?.iter().try_for_each(|name| File::open(inner.join(name))?.sync_all())?;
            sync_folder(inner)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let fell = |_| Err(io::Error::other("the syncing fell over"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(fell))
    })?;
    sync_folder(folder)
}

/// The highest epoch a folder gives a sign of, by what it says of itself and by its rows; and a file of a later format, if
/// there is one.
fn highest(contexts: &Path) -> io::Result<(u64, Option<(PathBuf, u32)>)> {
    let (mut known, mut newer) = (epoch::said(&LocalDisk, contexts).map_err(io::Error::other)?, None);
    for folder in names(contexts)?.iter().filter(|name| name.len() == 2) {
        let path = contexts.join(folder);
        if !path.is_dir() {
            continue;
        }
        for name in names(&path)?.iter().filter(|name| is_ours(&format!("{folder}/{name}")) && aside_of(name).is_none())
        {
            match pack::read(&fs::read(path.join(name))?, name.ends_with(PACKED)) {
                Ok(doc) => {
                    let rows = TABLES.into_iter().flat_map(|table| doc.rows(table).values());
                    let version = rows.map(|kept| kept.row.seen.version).max().unwrap_or(0);
                    known = known.max(of_version(version));
                }
                // Whoever opens the store sets it aside.
                Err(Unreadable::Damaged(_)) => {}
                Err(Unreadable::Newer(found)) => newer = Some((path.join(name), found)),
            }
        }
    }
    Ok((known, newer))
}
