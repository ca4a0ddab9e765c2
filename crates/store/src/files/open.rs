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
    backup::{Copier, MOMENT},
    disk::{Disk, LocalDisk, gone},
    epoch,
    error::OpenError,
    index::Entry,
    intent,
    name::{Context, PACKED, PLAIN},
    pack,
    read::Readers,
    restore,
    shelf::{self, Shelf},
    text::{self, Beginning, Unreadable},
    writer::{Setup, Writer},
};
use crate::{
    backup::{self, Clerk, whole},
    lock::Lock,
    watch::News,
};

/// What the folder's own file begins with.
const FORMAT: &str = "toolhub-files ";
/// The layout of the folder that this version makes.
pub(super) const LAYOUT: u32 = 1;
/// How much of a file is read to learn what it holds. Few have a longer head.
const BEGINNING: usize = 4096;
const MOST_THREADS: usize = 8;

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
        let lock = Lock::take(&folder.join("store")).map_err(|why| OpenError::of_lock(folder.clone(), why))?;
        let broken = |error| OpenError::Io { path: folder.clone(), error };
        restore::finish(&folder).map_err(broken)?;
        backup::remove(&folder.join(MOMENT)).map_err(broken)?;
        let shelf = Arc::new(Shelf::new(&folder, disk));
        prepare(&shelf, &folder)?;
        let failed = |error| failed(&shelf.workshop, error);
        intent::recover(&shelf).map_err(failed)?;
        let write = survey(&shelf)?;
        let floor = crate::epoch::floor(epoch::of(&shelf).map_err(|error| failed(io::Error::other(error)))?);
        let news = News::new();
        let setup = Setup { shelf: shelf.clone(), packed: options.compression, write, floor, news: news.clone() };
        let writer = Arc::new(Writer::begin(setup).map_err(failed)?);
        let readers = Readers::new(shelf.clone());
        let copier = Copier { folder: whole(&folder).map_err(broken)?, writer: writer.clone() };
        let clerk = Clerk::begin(copier, options.backups).map_err(broken)?;
        Ok(Self { folder, clerk, readers, writer, news, shelf, _lock: lock })
    }
}

/// Makes the folders of a new store, and sees that an old one is of a known layout.
pub(super) fn prepare(shelf: &Shelf, folder: &Path) -> Result<(), OpenError> {
    let (disk, about) = (&*shelf.disk, folder.join("format"));
    let found = match disk.read(&about, BEGINNING) {
        Ok(content) => String::from_utf8_lossy(&content).trim().strip_prefix(FORMAT).map(str::to_owned),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&about, error)),
    };
    let found: Option<u32> = found.and_then(|number| number.parse().ok());
    if let Some(found) = found.filter(|found| *found > LAYOUT) {
        return Err(OpenError::Newer { file: about, found, known: LAYOUT });
    }
    for inner in [folder, &shelf.contexts, &shelf.workshop] {
        disk.make_folder(inner).map_err(|error| failed(inner, error))?;
    }
    if found.is_some() {
        return Ok(());
    }
    let content = format!("{FORMAT}{LAYOUT}\n");
    disk.write(&about, content.as_bytes(), true).map_err(|error| failed(&about, error))?;
    // The folder itself may be new as well.
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    [Some(folder), above].into_iter().flatten().try_for_each(|new| disk.sync_folder(new).map_err(|e| failed(new, e)))
}

/// Reads the beginnings of all files; answers the greatest number of a write.
fn survey(shelf: &Shelf) -> Result<u64, OpenError> {
    let folders = shelf.disk.list(&shelf.contexts).map_err(|error| failed(&shelf.contexts, error))?;
    let folders: Vec<String> = folders.into_iter().filter(|name| name.len() == 2).collect();
    let (next, last, wrong) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(None));
    let work = || {
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            match Survey::of(shelf, folder) {
                Ok(survey) => drop(last.fetch_max(survey.note(shelf), Ordering::Relaxed)),
                Err(error) => {
                    next.store(folders.len(), Ordering::Relaxed);
                    *wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
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
struct Survey {
    found: HashMap<Context, (Beginning, bool)>,
    /// The names of files that were set aside before, without their endings.
    aside: Vec<String>,
}

impl Survey {
    fn of(shelf: &Shelf, folder: &str) -> Result<Self, OpenError> {
        let path = shelf.contexts.join(folder);
        let names = match shelf.disk.list(&path) {
            // It may be a file of somebody else.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Vec::new(),
            names => names.map_err(|error| failed(&path, error))?,
        };
        let mut survey = Self::default();
        for name in names {
            let (name, was_set_aside) = shelf::aside_of(&name).map_or((&*name, false), |name| (name, true));
            let Some((stem, packed)) = stem(name) else { continue };
            let (stem, file) = (format!("{folder}/{stem}"), path.join(name));
            if was_set_aside {
                survey.aside.push(stem);
                continue;
            }
            match beginning(shelf, &file, packed)? {
                Ok(begin) if begin.context.stem() == stem => survey.add(shelf, begin, packed)?,
                Ok(_) => shelf.set_aside(&mut shelf.lock(), &file, stem, "it has the name of another context"),
                Err(Unreadable::Damaged(reason)) => shelf.set_aside(&mut shelf.lock(), &file, stem, reason),
                Err(Unreadable::Newer(found)) => return Err(OpenError::Newer { file, found, known: text::FORMAT }),
            }
        }
        Ok(survey)
    }

    /// Of two files for one context, one was about to be removed.
    fn add(&mut self, shelf: &Shelf, begin: Beginning, packed: bool) -> Result<(), OpenError> {
        let context = begin.context.clone();
        let other = self.found.get(&context).map(|(other, packed)| (other.write, *packed));
        let old = match other {
            Some((write, _)) if write > begin.write => packed,
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
        sync().and_then(|()| gone(shelf.disk.remove(&old))).and_then(|()| sync()).map_err(|error| failed(&old, error))
    }

    /// Puts all of it into the index; answers the greatest number of a write.
    fn note(self, shelf: &Shelf) -> u64 {
        let mut index = shelf.lock();
        self.aside.into_iter().for_each(|stem| index.set_aside(stem, "its file was set aside".into()));
        let last = self.found.values().map(|(begin, _)| begin.write).max().unwrap_or(0);
        for (context, (begin, packed)) in self.found {
            index.put(&context, Entry { write: begin.write, packed, head: begin.head });
            // What was set aside of it before is only kept for people to look at.
            index.replaced(&context);
        }
        last
    }
}

/// The name of a context's file without its ending, and whether it is compressed.
fn stem(name: &str) -> Option<(&str, bool)> {
    let packed = name.strip_suffix(PACKED).map(|stem| (stem, true));
    packed.or_else(|| name.strip_suffix(PLAIN).map(|stem| (stem, false)))
}

fn beginning(shelf: &Shelf, file: &Path, packed: bool) -> Result<Result<Beginning, Unreadable>, OpenError> {
    for most in [BEGINNING, usize::MAX] {
        let content = shelf.disk.read(file, most).map_err(|error| failed(file, error))?;
        if let Some(begin) = pack::beginning(&content, packed) {
            return Ok(begin);
        }
    }
    Ok(Err(Unreadable::Damaged("it is cut short, or not ours")))
}

fn failed(path: &Path, error: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), error }
}
