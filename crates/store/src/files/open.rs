//! Opens a folder: the lock, the format, what a crash left behind, then the beginning of every file.
//!
//! In: a folder, which may be new. Out: the store. The index is made of the files each time, on as many threads as the
//! machine has: nothing on the disk tells what the files do not.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    Files, Options,
    backup::{FilesBackupSource, SNAPSHOT_FOLDER},
    context::{Context, JSON_SUFFIX, ZSTD_SUFFIX},
    disk::{Disk, LocalDisk, ignore_not_found},
    document_store::{self, DocumentStore},
    epoch,
    error::OpenError,
    file_codec,
    index::FileEntry,
    intent,
    read::Readers,
    restore,
    text_format::{self, DecodeError, FileHead},
    writer::{Setup, Writer},
};
use crate::{
    backup::{self, BackupWorker, canonical_path},
    lock::Lock,
    watch::ChangeFeed,
};

/// What the folder's own file begins with.
const FORMAT_PREFIX: &str = "toolhub-files ";
/// The layout of the folder that this version makes.
pub(super) const LAYOUT_VERSION: u32 = 1;
/// How much of a file is read to learn what it holds. Few have a longer head.
const HEAD_READ_BYTES: usize = 4096;
const MAX_THREADS: usize = 8;

impl Files {
    /// Opens the store in this folder, or makes it.
    ///
    /// # Errors
    /// When somebody has it open, when a later version wrote it, and when something cannot be read or made. A file that is
    /// damaged is no error: it is set aside, and told by [`damaged`](Self::damaged).
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(folder, options, Arc::new(LocalDisk))
    }

    /// The same on another file system, for tests of what this machine's does not do on demand. The lock is always on this
    /// machine's.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(folder: impl AsRef<Path>, options: Options, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let folder = folder.as_ref().to_owned();
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|error| OpenError::Io { path: folder.clone(), error })?;
        let lock =
            Lock::acquire(&folder.join("store")).map_err(|why| OpenError::from_lock_error(folder.clone(), why))?;
        let broken = |error| OpenError::Io { path: folder.clone(), error };
        restore::finish_interrupted(&folder).map_err(broken)?;
        backup::remove_if_exists(&folder.join(SNAPSHOT_FOLDER)).map_err(broken)?;
        let shelf = Arc::new(DocumentStore::new(&folder, disk));
        prepare(&shelf, &folder)?;
        let failed = |error| io_error(&shelf.staging_folder, error);
        intent::recover(&shelf).map_err(failed)?;
        let write = build_index(&shelf)?;
        let floor = crate::epoch::version_floor(
            epoch::resolve_on_open(&shelf).map_err(|error| failed(io::Error::other(error)))?,
        );
        let news = ChangeFeed::new();
        let setup = Setup {
            documents: shelf.clone(),
            compressed: options.compression,
            last_write_seq: write,
            floor,
            change_feed: news.clone(),
        };
        let writer = Arc::new(Writer::spawn(setup).map_err(failed)?);
        let readers = Readers::new(shelf.clone());
        let copier = FilesBackupSource { folder: canonical_path(&folder).map_err(broken)?, writer: writer.clone() };
        let clerk = BackupWorker::spawn(copier, options.backups).map_err(broken)?;
        Ok(Self { folder, backup_worker: clerk, readers, writer, change_feed: news, documents: shelf, _lock: lock })
    }
}

/// Makes the folders of a new store, and sees that an old one is of a known layout.
pub(super) fn prepare(shelf: &DocumentStore, folder: &Path) -> Result<(), OpenError> {
    let (disk, about) = (&*shelf.disk, folder.join("format"));
    let found = match disk.read(&about, HEAD_READ_BYTES) {
        Ok(content) => String::from_utf8_lossy(&content).trim().strip_prefix(FORMAT_PREFIX).map(str::to_owned),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(&about, error)),
    };
    let found: Option<u32> = found.and_then(|number| number.parse().ok());
    if let Some(found) = found.filter(|found| *found > LAYOUT_VERSION) {
        return Err(OpenError::Newer { file: about, found, known: LAYOUT_VERSION });
    }
    for inner in [folder, &shelf.contexts, &shelf.staging_folder] {
        disk.make_folder(inner).map_err(|error| io_error(inner, error))?;
    }
    if found.is_some() {
        return Ok(());
    }
    let content = format!("{FORMAT_PREFIX}{LAYOUT_VERSION}\n");
    disk.write(&about, content.as_bytes(), true).map_err(|error| io_error(&about, error))?;
    // The folder itself may be new as well.
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    [Some(folder), above].into_iter().flatten().try_for_each(|new| disk.sync_folder(new).map_err(|e| io_error(new, e)))
}

/// Reads the beginnings of all files; answers the greatest number of a write.
fn build_index(shelf: &DocumentStore) -> Result<u64, OpenError> {
    let folders = shelf.disk.list(&shelf.contexts).map_err(|error| io_error(&shelf.contexts, error))?;
    let folders: Vec<String> = folders.into_iter().filter(|name| name.len() == 2).collect();
    let (next, last, wrong) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(None));
    let work = || {
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            match FolderScan::read(shelf, folder) {
                Ok(survey) => drop(last.fetch_max(survey.add_to_index(shelf), Ordering::Relaxed)),
                Err(error) => {
                    next.store(folders.len(), Ordering::Relaxed);
                    *wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        // A folder or two are read sooner than a thread is begun.
        if folders.len() > 16 {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
        }
        work();
    });
    match wrong.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(last.into_inner()),
    }
}

/// What lies in one of the folders.
#[derive(Default)]
struct FolderScan {
    found: HashMap<Context, (FileHead, bool)>,
    /// The names of files that were set aside before, without their endings.
    quarantined: Vec<String>,
}

impl FolderScan {
    fn read(shelf: &DocumentStore, folder: &str) -> Result<Self, OpenError> {
        let path = shelf.contexts.join(folder);
        let names = match shelf.disk.list(&path) {
            // It may be a file of somebody else.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Vec::new(),
            names => names.map_err(|error| io_error(&path, error))?,
        };
        let mut survey = Self::default();
        for name in names {
            let (name, was_set_aside) =
                document_store::original_name(&name).map_or((&*name, false), |name| (name, true));
            let Some((stem, packed)) = split_suffix(name) else { continue };
            let (stem, file) = (format!("{folder}/{stem}"), path.join(name));
            if was_set_aside {
                survey.quarantined.push(stem);
                continue;
            }
            match read_head(shelf, &file, packed)? {
                Ok(begin) if begin.context.stem() == stem => survey.add(shelf, begin, packed)?,
                Ok(_) => shelf.quarantine(&mut shelf.lock_index(), &file, stem, "it has the name of another context"),
                Err(DecodeError::Damaged(reason)) => shelf.quarantine(&mut shelf.lock_index(), &file, stem, reason),
                Err(DecodeError::Newer(found)) => {
                    return Err(OpenError::Newer { file, found, known: text_format::FORMAT_VERSION });
                }
            }
        }
        Ok(survey)
    }

    /// Of two files for one context, one was about to be removed.
    fn add(&mut self, shelf: &DocumentStore, begin: FileHead, packed: bool) -> Result<(), OpenError> {
        let context = begin.context.clone();
        let other = self.found.get(&context).map(|(other, packed)| (other.write_seq, *packed));
        let old = match other {
            Some((write, _)) if write > begin.write_seq => packed,
            Some((_, old)) => {
                self.found.insert(context.clone(), (begin, packed));
                old
            }
            None => {
                self.found.insert(context, (begin, packed));
                return Ok(());
            }
        };
        let old = shelf.contexts.join(context.file(old));
        // Not before the new one is sure to be there; and for good, so that it is not there again when that one goes.
        let sync = || old.parent().map_or(Ok(()), |folder| shelf.disk.sync_folder(folder));
        sync()
            .and_then(|()| ignore_not_found(shelf.disk.remove(&old)))
            .and_then(|()| sync())
            .map_err(|error| io_error(&old, error))
    }

    /// Puts all of it into the index; answers the greatest number of a write.
    fn add_to_index(self, shelf: &DocumentStore) -> u64 {
        let mut index = shelf.lock_index();
        self.quarantined.into_iter().for_each(|stem| index.quarantine(stem, "its file was set aside".into()));
        let last = self.found.values().map(|(begin, _)| begin.write_seq).max().unwrap_or(0);
        for (context, (begin, packed)) in self.found {
            index.put(&context, FileEntry { write_seq: begin.write_seq, compressed: packed, head: begin.head });
            // What was set aside of it before is only kept for people to look at.
            index.clear_quarantine(&context);
        }
        last
    }
}

/// The name of a context's file without its ending, and whether it is compressed.
fn split_suffix(name: &str) -> Option<(&str, bool)> {
    let packed = name.strip_suffix(ZSTD_SUFFIX).map(|stem| (stem, true));
    packed.or_else(|| name.strip_suffix(JSON_SUFFIX).map(|stem| (stem, false)))
}

fn read_head(shelf: &DocumentStore, file: &Path, packed: bool) -> Result<Result<FileHead, DecodeError>, OpenError> {
    for most in [HEAD_READ_BYTES, usize::MAX] {
        let content = shelf.disk.read(file, most).map_err(|error| io_error(file, error))?;
        if let Some(begin) = file_codec::decode_prefix(&content, packed) {
            return Ok(begin);
        }
    }
    Ok(Err(DecodeError::Damaged("it is cut short, or not ours")))
}

fn io_error(path: &Path, error: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), error }
}
