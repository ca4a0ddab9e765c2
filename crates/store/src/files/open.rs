//! Opens a file store: lock, format, crash recovery, then the head of every file.
//!
//! In: a folder, which may be new. Out: the store. The index is rebuilt from the files each time, in parallel: the files are
//! the only source of truth.

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
    change_feed::ChangeFeed,
    lock::Lock,
};

/// The beginning of the folder's format file.
const FORMAT_PREFIX: &str = "toolhub-files ";
/// The layout version of new folders.
pub(super) const LAYOUT_VERSION: u32 = 1;
/// Bytes read at first to decode a head. Few heads are longer.
const HEAD_READ_BYTES: usize = 4096;
const MAX_THREADS: usize = 8;

impl Files {
    /// Opens the store in this folder, or creates it.
    ///
    /// # Errors
    /// When the store is open already, when a later version wrote it, and when something cannot be read or created. A damaged
    /// file is not an error: it is quarantined and listed by [`quarantined_files`](Self::quarantined_files).
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(folder, options, Arc::new(LocalDisk))
    }

    /// The same on another file system, for tests of disk failures. The lock is always on the local file system.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(folder: impl AsRef<Path>, options: Options, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let folder = folder.as_ref().to_owned();
        let created = std::fs::create_dir_all(&folder);
        created.map_err(|error| OpenError::Io { path: folder.clone(), error })?;
        let lock =
            Lock::acquire(&folder.join("store")).map_err(|error| OpenError::from_lock_error(folder.clone(), error))?;
        let folder_error = |error| OpenError::Io { path: folder.clone(), error };
        restore::finish_interrupted(&folder).map_err(folder_error)?;
        backup::remove_if_exists(&folder.join(SNAPSHOT_FOLDER)).map_err(folder_error)?;
        let documents = Arc::new(DocumentStore::new(&folder, disk));
        prepare(&documents, &folder)?;
        let staging_error = |error| io_error(&documents.staging_folder, error);
        intent::recover(&documents).map_err(staging_error)?;
        let last_write_seq = build_index(&documents)?;
        let floor = crate::epoch::version_floor(
            epoch::resolve_on_open(&documents).map_err(|error| staging_error(io::Error::other(error)))?,
        );
        let change_feed = ChangeFeed::new();
        let setup = Setup {
            documents: documents.clone(),
            compressed: options.compression,
            last_write_seq,
            floor,
            change_feed: change_feed.clone(),
        };
        let writer = Arc::new(Writer::spawn(setup).map_err(staging_error)?);
        let readers = Readers::new(documents.clone());
        let source =
            FilesBackupSource { folder: canonical_path(&folder).map_err(folder_error)?, writer: writer.clone() };
        let backup_worker = BackupWorker::spawn(source, options.backups).map_err(folder_error)?;
        Ok(Self { folder, backup_worker, readers, writer, change_feed, documents, _lock: lock })
    }
}

/// Creates the folders of a new store, and checks the layout version of an existing one.
pub(super) fn prepare(documents: &DocumentStore, folder: &Path) -> Result<(), OpenError> {
    let (disk, format_file) = (&*documents.disk, folder.join("format"));
    let found = match disk.read(&format_file, HEAD_READ_BYTES) {
        Ok(content) => String::from_utf8_lossy(&content).trim().strip_prefix(FORMAT_PREFIX).map(str::to_owned),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(&format_file, error)),
    };
    let found: Option<u32> = found.and_then(|number| number.parse().ok());
    if let Some(found) = found.filter(|found| *found > LAYOUT_VERSION) {
        return Err(OpenError::Newer { file: format_file, found, known: LAYOUT_VERSION });
    }
    for inner in [folder, &documents.contexts, &documents.staging_folder] {
        disk.make_folder(inner).map_err(|error| io_error(inner, error))?;
    }
    if found.is_some() {
        return Ok(());
    }
    let content = format!("{FORMAT_PREFIX}{LAYOUT_VERSION}\n");
    disk.write(&format_file, content.as_bytes(), true).map_err(|error| io_error(&format_file, error))?;
    // The folder itself may be new as well.
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    [Some(folder), parent].into_iter().flatten().try_for_each(|new| disk.sync_folder(new).map_err(|e| io_error(new, e)))
}

/// Reads the heads of all files; returns the highest write sequence number.
fn build_index(documents: &DocumentStore) -> Result<u64, OpenError> {
    let folders = documents.disk.list(&documents.contexts).map_err(|error| io_error(&documents.contexts, error))?;
    let folders: Vec<String> = folders.into_iter().filter(|name| name.len() == 2).collect();
    let (next, last, failure) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(None));
    let work = || {
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            match FolderScan::read(documents, folder) {
                Ok(scan) => drop(last.fetch_max(scan.add_to_index(documents), Ordering::Relaxed)),
                Err(error) => {
                    next.store(folders.len(), Ordering::Relaxed);
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        // Reading a few folders takes less time than starting a thread.
        if folders.len() > 16 {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
        }
        work();
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(last.into_inner()),
    }
}

/// The files of one subfolder.
#[derive(Default)]
struct FolderScan {
    found: HashMap<Context, (FileHead, bool)>,
    /// Original names, without suffix, of files that were quarantined earlier.
    quarantined: Vec<String>,
}

impl FolderScan {
    fn read(documents: &DocumentStore, folder: &str) -> Result<Self, OpenError> {
        let path = documents.contexts.join(folder);
        let names = match documents.disk.list(&path) {
            // It may be a foreign file.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Vec::new(),
            names => names.map_err(|error| io_error(&path, error))?,
        };
        let mut scan = Self::default();
        for name in names {
            let (name, is_quarantined) =
                document_store::original_name(&name).map_or((&*name, false), |name| (name, true));
            let Some((stem, compressed)) = split_suffix(name) else { continue };
            let (stem, file) = (format!("{folder}/{stem}"), path.join(name));
            if is_quarantined {
                scan.quarantined.push(stem);
                continue;
            }
            match read_head(documents, &file, compressed)? {
                Ok(file_head) if file_head.context.stem() == stem => scan.add(documents, file_head, compressed)?,
                Ok(_) => documents.quarantine(
                    &mut documents.lock_index(),
                    &file,
                    stem,
                    "its name belongs to another context",
                ),
                Err(DecodeError::Damaged(reason)) => {
                    documents.quarantine(&mut documents.lock_index(), &file, stem, reason);
                }
                Err(DecodeError::Newer(found)) => {
                    return Err(OpenError::Newer { file, found, known: text_format::FORMAT_VERSION });
                }
            }
        }
        Ok(scan)
    }

    /// Adds a file. Of two files for one context, the older one was about to be removed; removes it.
    fn add(&mut self, documents: &DocumentStore, file_head: FileHead, compressed: bool) -> Result<(), OpenError> {
        let context = file_head.context.clone();
        let other = self.found.get(&context).map(|(other, compressed)| (other.write_seq, *compressed));
        let old_is_compressed = match other {
            Some((write_seq, _)) if write_seq > file_head.write_seq => compressed,
            Some((_, old_is_compressed)) => {
                self.found.insert(context.clone(), (file_head, compressed));
                old_is_compressed
            }
            None => {
                self.found.insert(context, (file_head, compressed));
                return Ok(());
            }
        };
        let old = documents.contexts.join(context.file(old_is_compressed));
        // Sync before the removal, so that the new file is durable first; and after it, so that the old file cannot reappear.
        let sync = || old.parent().map_or(Ok(()), |folder| documents.disk.sync_folder(folder));
        sync()
            .and_then(|()| ignore_not_found(documents.disk.remove(&old)))
            .and_then(|()| sync())
            .map_err(|error| io_error(&old, error))
    }

    /// Adds all files to the index; returns the highest write sequence number.
    fn add_to_index(self, documents: &DocumentStore) -> u64 {
        let mut index = documents.lock_index();
        self.quarantined.into_iter().for_each(|stem| index.quarantine(stem, "its file is quarantined".into()));
        let last = self.found.values().map(|(file_head, _)| file_head.write_seq).max().unwrap_or(0);
        for (context, (file_head, compressed)) in self.found {
            index.put(&context, FileEntry { write_seq: file_head.write_seq, compressed, head: file_head.head });
            // The context was rewritten after the quarantine; the quarantined file is kept only for inspection.
            index.clear_quarantine(&context);
        }
        last
    }
}

/// The name of a context file without its suffix, and whether it is compressed.
fn split_suffix(name: &str) -> Option<(&str, bool)> {
    let zstd = name.strip_suffix(ZSTD_SUFFIX).map(|stem| (stem, true));
    zstd.or_else(|| name.strip_suffix(JSON_SUFFIX).map(|stem| (stem, false)))
}

fn read_head(
    documents: &DocumentStore,
    file: &Path,
    compressed: bool,
) -> Result<Result<FileHead, DecodeError>, OpenError> {
    for limit in [HEAD_READ_BYTES, usize::MAX] {
        let content = documents.disk.read(file, limit).map_err(|error| io_error(file, error))?;
        if let Some(file_head) = file_codec::decode_prefix(&content, compressed) {
            return Ok(file_head);
        }
    }
    Ok(Err(DecodeError::Damaged("it is truncated or not a store file")))
}

fn io_error(path: &Path, error: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), error }
}
