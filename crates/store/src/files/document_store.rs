//! The files of a folder and what is known of them: reads documents, and sets aside what cannot be read.
//!
//! In: contexts. Out: their documents, all as of one moment. Whoever reads a file while it is replaced finds out, because
//! every write has its number, and reads again.

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

/// What is put behind the name of a file that cannot be read.
const QUARANTINE_SUFFIX: &str = ".damaged";
/// How often a file is read again that does not hold the write it should. With every turn somebody else has written.
const MAX_READ_ATTEMPTS: usize = 1_000;

/// How many of one context are set aside, each under a name of its own.
const MAX_QUARANTINED_COPIES: u32 = 1_000;

pub(super) struct DocumentStore {
    /// Below it are the files of all contexts.
    pub(super) contexts: PathBuf,
    /// Where files are made, before they get their names.
    pub(super) staging_folder: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    index: Mutex<Index>,
}

/// A context as it was at one moment.
pub(super) enum Content {
    Absent,
    Doc(Arc<Doc>),
    /// It was set aside, for this reason.
    Quarantined(String),
    /// Its file must be read first; then everything is asked for again.
    Unread,
}

/// All contexts as they are at one moment.
pub(super) struct View<'a> {
    pub(super) index: MutexGuard<'a, Index>,
    loaded: &'a HashMap<Context, Arc<Doc>>,
    unread: Vec<(Context, Location)>,
}

/// Where a file is, and which write it should hold.
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
            DocLookup::OnDisk { write_seq: write, compressed: packed } => match self.loaded.get(context) {
                Some(doc) if doc.write_seq == write => Content::Doc(doc.clone()),
                _ => {
                    self.unread.push((context.clone(), Location { write_seq: write, compressed: packed }));
                    Content::Unread
                }
            },
        }
    }

    /// How many files must be read first.
    pub(super) fn unread(&self) -> usize {
        self.unread.len()
    }
}

impl DocumentStore {
    pub(super) fn new(folder: &Path, disk: Arc<dyn Disk>) -> Self {
        let (contexts, workshop) = (folder.join("contexts"), folder.join("new"));
        Self { contexts, staging_folder: workshop, disk, index: Mutex::default() }
    }

    pub(super) fn lock_index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `make` makes of contexts as they are at one moment. It is asked again when files had to be read for it.
    /// `None` when a file would have to be read and this thread may not block.
    pub(super) fn view<T>(
        &self,
        may_block: bool,
        mut make: impl FnMut(&mut View<'_>) -> T,
    ) -> Option<Result<T, StoreError>> {
        let mut read = HashMap::new();
        for _ in 0..MAX_READ_ATTEMPTS {
            let (made, unread) = {
                let mut view = View { index: self.lock_index(), loaded: &read, unread: Vec::new() };
                let made = make(&mut view);
                // The lock ends here, before anything is read.
                (made, view.unread)
            };
            if unread.is_empty() {
                return Some(Ok(made));
            }
            if !may_block {
                return None;
            }
            for (context, location) in unread {
                match self.read(&context, &location) {
                    Ok(Some(doc)) => drop(read.insert(context, doc)),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        Some(Err(StoreError::Unavailable("somebody else changes the files of the store".into())))
    }

    /// One context; this may block.
    pub(super) fn get(&self, context: &Context) -> Result<Content, StoreError> {
        self.view(true, |view| view.get(context)).unwrap_or(Ok(Content::Absent))
    }

    /// The document in a file; `None` when it was set aside, or is being replaced.
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => "it is gone",
            Err(error) => return Err(failed(error.to_string())),
        };
        let mut index = self.lock_index();
        let is_it = index.entry(context).is_some_and(|entry| entry.write_seq == location.write_seq);
        // Otherwise it is being replaced, or has been, and was read halfway between.
        if is_it && !index.is_pinned(context) {
            index.remove(context);
            self.quarantine(&mut index, &path, context.stem(), reason);
        }
        Ok(None)
    }

    /// Gives a file that cannot be read another name, and says so. Nothing is ever thrown away.
    pub(super) fn quarantine(&self, index: &mut Index, path: &Path, stem: String, reason: &str) {
        let name = |number: u32| {
            let mut aside = path.as_os_str().to_owned();
            aside.push(QUARANTINE_SUFFIX);
            if number > 1 {
                aside.push(format!("-{number}"));
            }
            PathBuf::from(aside)
        };
        // Earlier ones stay.
        let is_free =
            |aside: &PathBuf| matches!(self.disk.read(aside, 0), Err(error) if error.kind() == io::ErrorKind::NotFound);
        let aside = (1..=MAX_QUARANTINED_COPIES).map(name).find(is_free);
        let moved = aside.filter(|aside| self.disk.rename(path, aside).is_ok());
        let file = moved.unwrap_or_else(|| path.to_owned());
        tracing::warn!(file = %file.display(), reason, "a file of the store cannot be read and is set aside");
        index.quarantine(stem, reason.into());
        index.quarantined_files.push(QuarantinedFile { file, reason: reason.into() });
    }
}

/// The name a file had before it was set aside; `None` for one that was not.
pub(super) fn original_name(name: &str) -> Option<&str> {
    let (before, behind) = name.rsplit_once(QUARANTINE_SUFFIX)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (behind.is_empty() || behind.strip_prefix('-').is_some_and(is_number)).then_some(before)
}
