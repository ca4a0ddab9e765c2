//! A file system in memory that is full, fails, stops and loses power when a test wants it to.
//!
//! What was not synced is lost in part when the power is cut: of a file any beginning may be left, and of the names in a
//! folder any of the changes may be missing. A sync that failed has dropped what it was to write, and a later one of the
//! same file or folder says that all is well.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use fastrand::Rng;
use toolhub_store::files::Disk;

/// The file system. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    names: BTreeMap<PathBuf, Arc<File>>,
    /// The names as they are on the disk.
    durable: BTreeMap<PathBuf, Arc<File>>,
    folders: BTreeSet<PathBuf>,
    /// Changes to names that are not on the disk yet, in order.
    changes: Vec<Change>,
    /// How many things were done.
    steps: usize,
    syncs: usize,
    /// At this step the process stops: the step is done, or not, or by halves.
    stop: Option<(usize, Completion)>,
    stopped: bool,
    full: bool,
    /// So many syncs work, then so many fail.
    failing_syncs: (usize, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    NotStarted,
    Partial,
    Done,
}

struct File {
    content: Vec<u8>,
    synced: bool,
}

#[derive(Clone)]
struct Change {
    /// The name that goes.
    removed: Option<PathBuf>,
    /// The name that comes.
    added: Option<(PathBuf, Arc<File>)>,
}

impl Change {
    fn concerns(&self, folder: &Path) -> bool {
        let come = self.added.as_ref().map(|(name, _)| name);
        [self.removed.as_ref(), come].into_iter().flatten().any(|name| name.parent() == Some(folder))
    }

    fn apply_to(&self, names: &mut BTreeMap<PathBuf, Arc<File>>) {
        self.removed.iter().for_each(|gone| drop(names.remove(gone)));
        self.added.iter().for_each(|(name, file)| drop(names.insert(name.clone(), file.clone())));
    }
}

impl SimulatedDisk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// The process stops at so many steps from now.
    pub(crate) fn stop_at(&self, steps: usize, half: Completion) {
        let mut inner = self.lock();
        inner.stop = Some((inner.steps + steps, half));
    }

    /// Whether it has stopped; from here on everything works again, for another process.
    pub(crate) fn restart(&self) -> bool {
        let mut inner = self.lock();
        inner.stop = None;
        std::mem::take(&mut inner.stopped)
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// After so many syncs so many fail.
    pub(crate) fn fail_syncs(&self, after: usize, many: usize) {
        self.lock().failing_syncs = (after, many);
    }

    /// How many syncs there were since it was asked last.
    pub(crate) fn syncs(&self) -> usize {
        std::mem::take(&mut self.lock().syncs)
    }

    /// What is on the disk after the power was cut now.
    pub(crate) fn cut_power(&self, random: &mut Rng) -> Self {
        let inner = self.lock();
        let mut names = inner.durable.clone();
        inner.changes.iter().filter(|_| random.bool()).for_each(|change| change.apply_to(&mut names));
        for file in names.values_mut().filter(|file| !file.synced) {
            let content = match random.u8(0..4) {
                0 => Vec::new(),
                1 => file.content[..random.usize(0..=file.content.len())].to_vec(),
                2 => vec![0; file.content.len()],
                _ => file.content.clone(),
            };
            *file = Arc::new(File { content, synced: true });
        }
        let after = Inner { durable: names.clone(), names, folders: inner.folders.clone(), ..Inner::default() };
        Self(Arc::new(Mutex::new(after)))
    }

    /// The same with a folder under another name, for a second store while the first has its lock.
    pub(crate) fn with_folder_moved(&self, from: &Path, to: &Path) -> Self {
        let inner = self.lock();
        let name = |name: &PathBuf| name.strip_prefix(from).map_or_else(|_| name.clone(), |rest| to.join(rest));
        let names: BTreeMap<_, _> = inner.names.iter().map(|(path, file)| (name(path), file.clone())).collect();
        let folders = inner.folders.iter().map(name).collect();
        Self(Arc::new(Mutex::new(Inner { durable: names.clone(), names, folders, ..Inner::default() })))
    }

    /// Every file whose name ends like this.
    pub(crate) fn files(&self, ending: &str) -> Vec<PathBuf> {
        self.lock().names.keys().filter(|name| name.to_string_lossy().ends_with(ending)).cloned().collect()
    }
}

impl Inner {
    /// Counts a step; how far it goes, or that nothing goes any more.
    fn step(&mut self) -> io::Result<Completion> {
        if self.stopped {
            return Err(stopped_error());
        }
        self.steps += 1;
        match self.stop {
            Some((at, half)) if at == self.steps => {
                self.stopped = true;
                Ok(half)
            }
            _ => Ok(Completion::Done),
        }
    }

    /// The answer of a step that was done.
    fn check_running(&self) -> io::Result<()> {
        if self.stopped { Err(stopped_error()) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) {
        change.apply_to(&mut self.names);
        self.changes.push(change);
    }

    /// Whether a sync works.
    fn try_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        let (after, many) = &mut self.failing_syncs;
        if *after > 0 {
            *after -= 1;
        } else if *many > 0 {
            *many -= 1;
            return Err(io::Error::other("the disk does not answer"));
        }
        Ok(())
    }
}

fn stopped_error() -> io::Error {
    io::Error::other("the process has stopped")
}

fn not_found_error() -> io::Error {
    io::Error::from(ErrorKind::NotFound)
}

impl Disk for SimulatedDisk {
    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        let content = &inner.names.get(path).ok_or_else(not_found_error)?.content;
        Ok(content[..most.min(content.len())].to_vec())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inner = self.lock();
        let all = inner.names.keys().chain(&inner.folders).filter(|name| name.parent() == Some(folder));
        Ok(all.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect())
    }

    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
        let mut inner = self.lock();
        let half = inner.step()?;
        let full = inner.full;
        let part = if full || half == Completion::Partial { content.len() / 2 } else { content.len() };
        if half == Completion::NotStarted {
            return Err(stopped_error());
        }
        let whole = part == content.len();
        let synced = if sync && whole { inner.try_sync() } else { Ok(()) };
        let file = File { content: content[..part].to_vec(), synced: sync && whole && synced.is_ok() };
        inner.change(Change { removed: None, added: Some((path.to_owned(), Arc::new(file))) });
        if full {
            return Err(ErrorKind::StorageFull.into());
        }
        synced.and(inner.check_running())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let half = inner.step()?;
        let file = inner.names.get(from).cloned().ok_or_else(not_found_error)?;
        if half == Completion::Done {
            inner.change(Change { removed: Some(from.to_owned()), added: Some((to.to_owned(), file)) });
        }
        inner.check_running()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let half = inner.step()?;
        if !inner.names.contains_key(path) {
            return Err(not_found_error());
        }
        if half == Completion::Done {
            inner.change(Change { removed: Some(path.to_owned()), added: None });
        }
        inner.check_running()
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let half = inner.step()?;
        if half == Completion::Done {
            inner.folders.insert(path.to_owned());
        }
        inner.check_running()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let half = inner.step()?;
        let synced = inner.try_sync();
        if half == Completion::Done {
            let changes = std::mem::take(&mut inner.changes);
            let (ours, others) = changes.into_iter().partition(|change| change.concerns(path));
            inner.changes = others;
            let ours: Vec<Change> = ours;
            if synced.is_ok() {
                ours.iter().for_each(|change| change.apply_to(&mut inner.durable));
            }
        }
        synced.and(inner.check_running())
    }
}
