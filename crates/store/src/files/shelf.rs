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
    Damaged,
    disk::Disk,
    doc::Doc,
    index::{Held, Index},
    name::Context,
    pack,
    text::Unreadable,
};

/// What is put behind the name of a file that cannot be read.
const ASIDE: &str = ".damaged";
/// How often a file is read again that does not hold the write it should. With every turn somebody else has written.
const TURNS: usize = 1_000;

/// How many of one context are set aside, each under a name of its own.
const MOST_ASIDE: u32 = 1_000;

pub(super) struct Shelf {
    /// Below it are the files of all contexts.
    pub(super) contexts: PathBuf,
    /// Where files are made, before they get their names.
    pub(super) workshop: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    index: Mutex<Index>,
}

/// A context as it was at one moment.
pub(super) enum Content {
    Nothing,
    Doc(Arc<Doc>),
    /// It was set aside, for this reason.
    Aside(String),
    /// Its file must be read first; then everything is asked for again.
    Unread,
}

/// All contexts as they are at one moment.
pub(super) struct View<'a> {
    pub(super) index: MutexGuard<'a, Index>,
    read: &'a HashMap<Context, Arc<Doc>>,
    unread: Vec<(Context, Location)>,
}

/// Where a file is, and which write it should hold.
struct Location {
    write: u64,
    packed: bool,
}

impl View<'_> {
    pub(super) fn get(&mut self, context: &Context) -> Content {
        match self.index.held(context) {
            Held::Nowhere => Content::Nothing,
            Held::Here(doc) => Content::Doc(doc),
            Held::Aside(reason) => Content::Aside(reason),
            Held::OnDisk { write, packed } => match self.read.get(context) {
                Some(doc) if doc.write == write => Content::Doc(doc.clone()),
                _ => {
                    self.unread.push((context.clone(), Location { write, packed }));
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

impl Shelf {
    pub(super) fn new(folder: &Path, disk: Arc<dyn Disk>) -> Self {
        let (contexts, workshop) = (folder.join("contexts"), folder.join("new"));
        Self { contexts, workshop, disk, index: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Index> {
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
        for _ in 0..TURNS {
            let (made, unread) = {
                let mut view = View { index: self.lock(), read: &read, unread: Vec::new() };
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
        self.view(true, |view| view.get(context)).unwrap_or(Ok(Content::Nothing))
    }

    /// The document in a file; `None` when it was set aside, or is being replaced.
    fn read(&self, context: &Context, location: &Location) -> Result<Option<Arc<Doc>>, StoreError> {
        let path = self.contexts.join(context.file(location.packed));
        let failed = |reason: String| StoreError::Unavailable(format!("{} cannot be read: {reason}", path.display()));
        let reason = match self.disk.read(&path, usize::MAX) {
            Ok(content) => match pack::read(&content, location.packed) {
                Ok(doc) if doc.context == *context => {
                    let doc = Arc::new(doc);
                    self.lock().keep(&doc);
                    return Ok(Some(doc));
                }
                Ok(_) => "it belongs to another context",
                Err(Unreadable::Newer(format)) => {
                    return Err(failed(format!("it has format {format}, which a later version wrote")));
                }
                Err(Unreadable::Damaged(reason)) => reason,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => "it is gone",
            Err(error) => return Err(failed(error.to_string())),
        };
        let mut index = self.lock();
        let is_it = index.entry(context).is_some_and(|entry| entry.write == location.write);
        // Otherwise it is being replaced, or has been, and was read halfway between.
        if is_it && !index.is_busy(context) {
            index.forget(context);
            self.set_aside(&mut index, &path, context.stem(), reason);
        }
        Ok(None)
    }

    /// Gives a file that cannot be read another name, and says so. Nothing is ever thrown away.
    pub(super) fn set_aside(&self, index: &mut Index, path: &Path, stem: String, reason: &str) {
        let name = |number: u32| {
            let mut aside = path.as_os_str().to_owned();
            aside.push(ASIDE);
            if number > 1 {
                aside.push(format!("-{number}"));
            }
            PathBuf::from(aside)
        };
        // Earlier ones stay.
        let is_free =
            |aside: &PathBuf| matches!(self.disk.read(aside, 0), Err(error) if error.kind() == io::ErrorKind::NotFound);
        let aside = (1..=MOST_ASIDE).map(name).find(is_free);
        let moved = aside.filter(|aside| self.disk.rename(path, aside).is_ok());
        let file = moved.unwrap_or_else(|| path.to_owned());
        tracing::warn!(file = %file.display(), reason, "a file of the store cannot be read and is set aside");
        index.set_aside(stem, reason.into());
        index.damaged.push(Damaged { file, reason: reason.into() });
    }
}

/// The name a file had before it was set aside; `None` for one that was not.
pub(super) fn aside_of(name: &str) -> Option<&str> {
    let (before, behind) = name.rsplit_once(ASIDE)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (behind.is_empty() || behind.strip_prefix('-').is_some_and(is_number)).then_some(before)
}
