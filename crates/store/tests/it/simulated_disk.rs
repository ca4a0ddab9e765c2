//! In-memory file system with fault injection: full disk, failed syncs, process stops and power failures.
//!
//! A power failure loses part of the unsynced data: any prefix of a file may remain, and any of the name changes in a folder
//! may be missing. A failed sync drops its dirty data, and a later sync of the same file or folder reports success.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use fastrand::Rng;
use toolhub_store::files::Disk;

/// The file system. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    names: BTreeMap<PathBuf, Arc<File>>,
    /// The names that are durable.
    durable: BTreeMap<PathBuf, Arc<File>>,
    folders: BTreeSet<PathBuf>,
    /// Name changes that are not durable yet, in order.
    changes: Vec<Change>,
    /// Number of operations so far.
    steps: usize,
    syncs: usize,
    /// At this operation the process stops: the operation is done, not started, or partial.
    stop: Option<(usize, Completion)>,
    stopped: bool,
    full: bool,
    /// This many syncs succeed, then this many fail.
    failing_syncs: (usize, usize),
    /// The next write panics.
    panics: bool,
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
    /// The removed name.
    removed: Option<PathBuf>,
    /// The added name.
    added: Option<(PathBuf, Arc<File>)>,
}

impl Change {
    fn concerns(&self, folder: &Path) -> bool {
        let added = self.added.as_ref().map(|(name, _)| name);
        [self.removed.as_ref(), added].into_iter().flatten().any(|name| name.parent() == Some(folder))
    }

    fn apply_to(&self, names: &mut BTreeMap<PathBuf, Arc<File>>) {
        self.removed.iter().for_each(|name| drop(names.remove(name)));
        self.added.iter().for_each(|(name, file)| drop(names.insert(name.clone(), file.clone())));
    }
}

impl SimulatedDisk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Stops the process after this many operations from now.
    pub(crate) fn stop_at(&self, steps: usize, completion: Completion) {
        let mut inner = self.lock();
        inner.stop = Some((inner.steps + steps, completion));
    }

    /// Restarts for another process; returns whether the process had stopped.
    pub(crate) fn restart(&self) -> bool {
        let mut inner = self.lock();
        inner.stop = None;
        std::mem::take(&mut inner.stopped)
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// After `after` syncs, the next `count` syncs fail.
    pub(crate) fn fail_syncs(&self, after: usize, count: usize) {
        self.lock().failing_syncs = (after, count);
    }

    /// The next write panics.
    pub(crate) fn panic_at_next_write(&self) {
        self.lock().panics = true;
    }

    /// Number of syncs since the last call.
    pub(crate) fn syncs(&self) -> usize {
        std::mem::take(&mut self.lock().syncs)
    }

    /// The state of the disk after a power failure now.
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

    /// The same with a folder renamed, for a second store while the first one holds its lock.
    pub(crate) fn with_folder_moved(&self, from: &Path, to: &Path) -> Self {
        let inner = self.lock();
        let name = |name: &PathBuf| name.strip_prefix(from).map_or_else(|_| name.clone(), |rest| to.join(rest));
        let names: BTreeMap<_, _> = inner.names.iter().map(|(path, file)| (name(path), file.clone())).collect();
        let folders = inner.folders.iter().map(name).collect();
        Self(Arc::new(Mutex::new(Inner { durable: names.clone(), names, folders, ..Inner::default() })))
    }

    /// All files with this suffix.
    pub(crate) fn files(&self, suffix: &str) -> Vec<PathBuf> {
        self.lock().names.keys().filter(|name| name.to_string_lossy().ends_with(suffix)).cloned().collect()
    }
}

impl Inner {
    /// Counts an operation; returns how far it is executed, or an error after the stop.
    fn step(&mut self) -> io::Result<Completion> {
        if self.stopped {
            return Err(stopped_error());
        }
        self.steps += 1;
        match self.stop {
            Some((at, completion)) if at == self.steps => {
                self.stopped = true;
                Ok(completion)
            }
            _ => Ok(Completion::Done),
        }
    }

    /// The result of an executed operation: an error if the process stopped with it.
    fn check_running(&self) -> io::Result<()> {
        if self.stopped { Err(stopped_error()) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) {
        change.apply_to(&mut self.names);
        self.changes.push(change);
    }

    /// Executes a sync, which may be set to fail.
    fn try_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        let (after, count) = &mut self.failing_syncs;
        if *after > 0 {
            *after -= 1;
        } else if *count > 0 {
            *count -= 1;
            return Err(io::Error::other("simulated sync failure"));
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
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        let content = &inner.names.get(path).ok_or_else(not_found_error)?.content;
        Ok(content[..limit.min(content.len())].to_vec())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inner = self.lock();
        let all = inner.names.keys().chain(&inner.folders).filter(|name| name.parent() == Some(folder));
        Ok(all.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect())
    }

    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
        // Not under the lock, which would be poisoned.
        let panics = std::mem::take(&mut self.lock().panics);
        assert!(!panics, "simulated panic");
        let mut inner = self.lock();
        let completion = inner.step()?;
        let full = inner.full;
        let written = if full || completion == Completion::Partial { content.len() / 2 } else { content.len() };
        if completion == Completion::NotStarted {
            return Err(stopped_error());
        }
        let is_complete = written == content.len();
        let synced = if sync && is_complete { inner.try_sync() } else { Ok(()) };
        let file = File { content: content[..written].to_vec(), synced: sync && is_complete && synced.is_ok() };
        inner.change(Change { removed: None, added: Some((path.to_owned(), Arc::new(file))) });
        if full {
            return Err(ErrorKind::StorageFull.into());
        }
        synced.and(inner.check_running())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let completion = inner.step()?;
        let file = inner.names.get(from).cloned().ok_or_else(not_found_error)?;
        if completion == Completion::Done {
            inner.change(Change { removed: Some(from.to_owned()), added: Some((to.to_owned(), file)) });
        }
        inner.check_running()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let completion = inner.step()?;
        if !inner.names.contains_key(path) {
            return Err(not_found_error());
        }
        if completion == Completion::Done {
            inner.change(Change { removed: Some(path.to_owned()), added: None });
        }
        inner.check_running()
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let completion = inner.step()?;
        if completion == Completion::Done {
            inner.folders.insert(path.to_owned());
        }
        inner.check_running()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.lock();
        let completion = inner.step()?;
        let synced = inner.try_sync();
        if completion == Completion::Done {
            let changes = std::mem::take(&mut inner.changes);
            let (synced_changes, others) = changes.into_iter().partition(|change| change.concerns(path));
            inner.changes = others;
            let synced_changes: Vec<Change> = synced_changes;
            if synced.is_ok() {
                synced_changes.iter().for_each(|change| change.apply_to(&mut inner.durable));
            }
        }
        synced.and(inner.check_running())
    }
}
