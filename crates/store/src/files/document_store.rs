//! Access to the files of a folder: reads documents through the index, and quarantines unreadable files.
//!
//! In: contexts. Out: their documents, all from one snapshot. A reader detects that a file was replaced while it was read,
//! because every write has a sequence number, and retries.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use toolhub_storage::backend::StoreError;

use super::{
    QuarantinedFile,
    context::Context,
    disk::Disk,
    doc::Doc,
    file_codec,
    index::{DocLookup, Index},
    text_format::DecodeError,
};

/// Suffix of a quarantined file.
const QUARANTINE_SUFFIX: &str = ".damaged";
/// How often a read is retried if the file does not contain the expected write. Each retry implies a concurrent write.
const MAX_READ_ATTEMPTS: usize = 1_000;

/// Maximum number of quarantined files per context, each with a unique name.
const MAX_QUARANTINED_COPIES: u32 = 1_000;

pub(super) struct DocumentStore {
    /// The root folder of the context files.
    pub(super) contexts: PathBuf,
    /// Where new files are written before they are renamed into place.
    pub(super) staging_folder: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    index: Mutex<Index>,
}

/// A context in a snapshot.
pub(super) enum Content {
    Absent,
    Doc(Arc<Doc>),
    /// The file is quarantined for this reason.
    Quarantined(String),
    /// The file must be read first; the view is then computed again.
    Unread,
}

/// A consistent view of all contexts, under the index lock.
pub(super) struct View<'a> {
    pub(super) index: MutexGuard<'a, Index>,
    loaded: &'a HashMap<Context, Arc<Doc>>,
    unread: Vec<(Context, Location)>,
}

/// The file to read and the write it should contain.
struct Location {
    write_seq: u64,
    compressed: bool,
}

impl View<'_> {
    pub(super) fn get(&mut self, context: &Context) -> Content {
        match self.index.lookup(context) {
            DocLookup::Absent => Content::Absent,
            DocLookup::InMemory(doc) => Content::Doc(doc),
            DocLookup::Quarantined(reason) => Content::Quarantined(reason),
            DocLookup::OnDisk { write_seq, compressed } => match self.loaded.get(context) {
                Some(doc) if doc.write_seq == write_seq => Content::Doc(doc.clone()),
                _ => {
                    self.unread.push((context.clone(), Location { write_seq, compressed }));
                    Content::Unread
                }
            },
        }
    }

    /// The number of files that must be read first.
    pub(super) fn unread(&self) -> usize {
        self.unread.len()
    }
}

impl DocumentStore {
    pub(super) fn new(folder: &Path, disk: Arc<dyn Disk>) -> Self {
        let (contexts, staging_folder) = (folder.join("contexts"), folder.join("new"));
        Self { contexts, staging_folder, disk, index: Mutex::default() }
    }

    pub(super) fn lock_index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes a value from a consistent view of contexts. `compute` is called again after files had to be read for it.
    /// Returns `None` if a file must be read and this thread may not block.
    pub(super) fn view<T>(
        &self,
        may_block: bool,
        mut compute: impl FnMut(&mut View<'_>) -> T,
    ) -> Option<Result<T, StoreError>> {
        let mut loaded = HashMap::new();
        for _ in 0..MAX_READ_ATTEMPTS {
            let (value, unread) = {
                let mut view = View { index: self.lock_index(), loaded: &loaded, unread: Vec::new() };
                let value = compute(&mut view);
                // Releases the lock before any file is read.
                (value, view.unread)
            };
            if unread.is_empty() {
                return Some(Ok(value));
            }
            if !may_block {
                return None;
            }
            for (context, location) in unread {
                match self.read(&context, &location) {
                    Ok(Some(doc)) => drop(loaded.insert(context, doc)),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        Some(Err(StoreError::Unavailable("another process modifies the files of the store".into())))
    }

    /// Reads one context; may block.
    pub(super) fn get(&self, context: &Context) -> Result<Content, StoreError> {
        self.view(true, |view| view.get(context)).unwrap_or(Ok(Content::Absent))
    }

    /// Reads a file; `None` if it was quarantined or is being replaced.
    fn read(&self, context: &Context, location: &Location) -> Result<Option<Arc<Doc>>, StoreError> {
        let path = self.contexts.join(context.file(location.compressed));
        let failed = |reason: String| StoreError::Unavailable(format!("{} cannot be read: {reason}", path.display()));
        let reason = match self.disk.read(&path, usize::MAX) {
            Ok(content) => match file_codec::decode(&content, location.compressed) {
                Ok(doc) if doc.context == *context => {
                    let doc = Arc::new(doc);
                    self.lock_index().cache_if_current(&doc);
                    return Ok(Some(doc));
                }
                Ok(_) => "it belongs to another context",
                Err(DecodeError::Newer(format)) => {
                    return Err(failed(format!("it has format {format}, which a later version wrote")));
                }
                Err(DecodeError::Damaged(reason)) => reason,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => "the file is missing",
            Err(error) => return Err(failed(error.to_string())),
        };
        let mut index = self.lock_index();
        let is_expected = index.entry(context).is_some_and(|entry| entry.write_seq == location.write_seq);
        // Otherwise the file was replaced while it was read.
        if is_expected && !index.is_pinned(context) {
            index.remove(context);
            self.quarantine(&mut index, &path, context.stem(), reason);
        }
        Ok(None)
    }

    /// Renames an unreadable file to a quarantine name and logs it. Quarantined files are never deleted.
    pub(super) fn quarantine(&self, index: &mut Index, path: &Path, stem: String, reason: &str) {
        let quarantine_path = |number: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(QUARANTINE_SUFFIX);
            if number > 1 {
                name.push(format!("-{number}"));
            }
            PathBuf::from(name)
        };
        // Earlier quarantined files are kept.
        let is_unused =
            |path: &PathBuf| matches!(self.disk.read(path, 0), Err(error) if error.kind() == io::ErrorKind::NotFound);
        let target = (1..=MAX_QUARANTINED_COPIES).map(quarantine_path).find(is_unused);
        let moved = target.filter(|target| self.disk.rename(path, target).is_ok());
        let file = moved.unwrap_or_else(|| path.to_owned());
        tracing::warn!(file = %file.display(), reason, "quarantined unreadable store file");
        index.quarantine(stem, reason.into());
        index.quarantined_files.push(QuarantinedFile { file, reason: reason.into() });
    }
}

/// The original name of a quarantined file; `None` for other files.
pub(super) fn original_name(name: &str) -> Option<&str> {
    let (original, rest) = name.rsplit_once(QUARANTINE_SUFFIX)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (rest.is_empty() || rest.strip_prefix('-').is_some_and(is_number)).then_some(original)
}
