//! Puts documents into their files: one by a rename, several by a note that makes all renames one.
//!
//! In: what files are to hold. Out: that they do; or that nothing was written; or that nobody knows. A file is made
//! aside and gets its name when it is whole, so whoever looks sees the old content or the new. A sync that failed is
//! never tried again on the same file: what is to be safe is then written into a new one.
//!
//! What a file holds is always synced before it gets its name: otherwise a loss of power could leave half a file where a
//! safe one was. A write that need not survive one is spared the sync of the folder only, until the next that must.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use toolhub_storage::backend::{Durability, StoreError};

use super::super::{
    disk::gone,
    doc::Doc,
    index::{Entry, Index},
    intent::{self, NOTE, Step},
    name::Context,
    pack,
    shelf::Shelf,
};

/// What becomes of one file.
pub(super) struct Replacement {
    pub(super) context: Context,
    /// What it holds; `None` where there is none.
    pub(super) before: Option<Arc<Doc>>,
    /// What it will hold; `None` where it goes.
    pub(super) now: Option<Doc>,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Put {
    Done,
    /// Nothing was written.
    Nothing(io::Error),
    /// It is there for whoever looks; whether it will be after a loss of power, nobody knows.
    Unsure(io::Error),
}

/// The one who writes.
pub(super) struct Workshop {
    shelf: Arc<Shelf>,
    packed: bool,
    /// The number of the last write.
    write: u64,
    /// The number of the last file that was made here.
    made: u64,
    /// Folders that are known to be there.
    folders: HashSet<PathBuf>,
    /// Whether a folder was made and not synced.
    new_folders: bool,
    /// Folders in which names changed and were not synced.
    unsynced: HashSet<PathBuf>,
    /// What a note promises and could not be done yet.
    owed: Option<Owed>,
}

#[derive(Default)]
struct Owed {
    replacements: Vec<Replacement>,
    /// What was made for it.
    ready: Vec<PathBuf>,
}

impl Workshop {
    pub(super) fn new(shelf: Arc<Shelf>, packed: bool, write: u64) -> Self {
        let (folders, unsynced) = (HashSet::new(), HashSet::new());
        Self { shelf, packed, write, made: 0, folders, new_folders: true, unsynced, owed: None }
    }

    /// Replaces all these files, or none.
    pub(super) fn put(&mut self, mut replacements: Vec<Replacement>, level: Durability) -> Result<(), StoreError> {
        // What came and went in one go never had a file.
        replacements.retain(|one| one.before.is_some() || one.now.is_some());
        if replacements.is_empty() {
            return Ok(());
        }
        self.settle().map_err(|error| StoreError::Unavailable(format!("the store is not mended yet: {error}")))?;
        let one = if replacements.len() == 1 { replacements.pop() } else { None };
        let put = match one {
            Some(one) => self.put_one(one, level),
            None => self.put_many(replacements),
        };
        match put {
            Put::Done => Ok(()),
            Put::Nothing(error) => Err(StoreError::Unavailable(error.to_string())),
            Put::Unsure(error) => {
                tracing::error!(%error, "nobody knows whether a write of the store survives a loss of power");
                Err(StoreError::Unknown(error.to_string()))
            }
        }
    }

    /// Does what a note promised. Everything is written anew: what was done before may have been lost.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let Some(mut owed) = self.owed.take() else { return Ok(()) };
        let settled = self.settle_all(&mut owed);
        if settled.is_err() {
            self.owed = Some(owed);
        } else {
            tracing::info!("the store is mended");
        }
        settled
    }

    fn settle_all(&mut self, owed: &mut Owed) -> io::Result<()> {
        while let Some(Replacement { context, now, .. }) = owed.replacements.last() {
            let (context, now) = (context.clone(), now.clone());
            let before = now.clone().map(Arc::new);
            let again = Replacement { context, before: before.clone(), now };
            if let Put::Nothing(error) | Put::Unsure(error) = self.put_one(again, Durability::PowerSafe) {
                // It is read in memory until its file is right.
                before.into_iter().for_each(|doc| self.shelf.lock().begin(doc));
                return Err(error);
            }
            owed.replacements.pop();
        }
        let disk = &*self.shelf.disk;
        gone(disk.remove(&self.shelf.workshop.join(NOTE)))?;
        owed.ready.iter().try_for_each(|ready| gone(disk.remove(ready)))?;
        disk.sync_folder(&self.shelf.workshop)
    }

    fn put_one(&mut self, Replacement { context, before, now }: Replacement, level: Durability) -> Put {
        before.into_iter().for_each(|doc| self.shelf.lock().begin(doc));
        let put = match now {
            Some(mut doc) => {
                self.write += 1;
                doc.write = self.write;
                self.replace(doc, level)
            }
            None => self.remove(&context, level),
        };
        self.shelf.lock().end(&context);
        put
    }

    fn replace(&mut self, doc: Doc, level: Durability) -> Put {
        let shelf = self.shelf.clone();
        let (ready, target) = (self.ready().1, shelf.contexts.join(doc.context.file(self.packed)));
        let made = pack::write(&doc, self.packed)
            .and_then(|content| shelf.disk.write(&ready, &content, true))
            .and_then(|()| self.make_folder(&target))
            .and_then(|()| shelf.disk.rename(&ready, &target));
        if let Err(error) = made {
            // What is left of it goes when the folder is opened next, at the latest.
            let _ = shelf.disk.remove(&ready);
            return Put::Nothing(error);
        }
        let had_other = shelf.lock().entry(&doc.context).is_some_and(|entry| entry.packed != self.packed);
        let other = had_other.then(|| shelf.contexts.join(doc.context.file(!self.packed)));
        self.show(&mut shelf.lock(), doc);
        let mut rest = Ok(());
        self.unsynced.extend(target.parent().map(Path::to_owned));
        if had_other || level == Durability::PowerSafe {
            rest = self.sync_folders([]);
        }
        if let Some(other) = other {
            // Not before the new one is sure to be there; and for good, so that it is not there again when that one goes.
            rest = rest.and_then(|()| gone(shelf.disk.remove(&other))).and_then(|()| self.sync_folders([&*target]));
        }
        rest.map_or_else(Put::Unsure, |()| Put::Done)
    }

    fn remove(&mut self, context: &Context, level: Durability) -> Put {
        let shelf = self.shelf.clone();
        // What an error may have left of another sort goes first: when this one is gone, so is the context.
        let packed = shelf.lock().entry(context).map_or(self.packed, |entry| entry.packed);
        let [other, target] = [!packed, packed].map(|packed| shelf.contexts.join(context.file(packed)));
        let removed = gone(shelf.disk.remove(&other)).and_then(|()| gone(shelf.disk.remove(&target)));
        if let Err(error) = removed {
            return Put::Nothing(error);
        }
        shelf.lock().forget(context);
        self.unsynced.extend(target.parent().map(Path::to_owned));
        if level < Durability::PowerSafe {
            return Put::Done;
        }
        self.sync_folders([]).map_or_else(Put::Unsure, |()| Put::Done)
    }

    /// Several files, always synced: one that is lost would break what belongs together.
    fn put_many(&mut self, mut replacements: Vec<Replacement>) -> Put {
        let shelf = self.shelf.clone();
        self.write += 1;
        let mut owed = Owed::default();
        let steps = self.make(&mut replacements, &mut owed.ready);
        owed.replacements = replacements;
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                owed.ready.iter().for_each(|ready| drop(shelf.disk.remove(ready)));
                return Put::Nothing(error);
            }
        };
        {
            let mut index = shelf.lock();
            let before = owed.replacements.iter().filter_map(|one| one.before.clone());
            before.for_each(|doc| index.begin(doc));
        }
        let note = shelf.workshop.join(NOTE);
        let noted = intent::write(&steps)
            .and_then(|content| shelf.disk.write(&note, &content, true))
            .and_then(|()| shelf.disk.sync_folder(&shelf.workshop));
        if let Err(error) = noted {
            let undone = gone(shelf.disk.remove(&note)).and_then(|()| shelf.disk.sync_folder(&shelf.workshop));
            if undone.is_err() {
                // The note may be there after a crash, so what it promises is to be done.
                self.owe(owed);
                return Put::Unsure(error);
            }
            owed.ready.iter().for_each(|ready| drop(shelf.disk.remove(ready)));
            let mut index = shelf.lock();
            owed.replacements.iter().for_each(|one| index.end(&one.context));
            return Put::Nothing(error);
        }
        // From here on it will happen, whatever happens.
        if let Err(error) = self.do_all(&steps) {
            tracing::warn!(%error, "files of the store could not be put into place; it is tried again before the next write");
            self.owe(owed);
            return Put::Done;
        }
        {
            // Under one lock: nobody sees some of them new and the others old.
            let mut index = shelf.lock();
            for Replacement { context, now, .. } in owed.replacements {
                match now {
                    Some(doc) => self.show(&mut index, doc),
                    None => index.forget(&context),
                }
                index.end(&context);
            }
        }
        // Should it stay or come back, there is nothing left for it to do.
        let _ = shelf.disk.remove(&note);
        Put::Done
    }

    /// Makes all files, aside, and the steps that will put them into place.
    fn make(&mut self, replacements: &mut [Replacement], made: &mut Vec<PathBuf>) -> io::Result<Vec<Step>> {
        let (shelf, write) = (self.shelf.clone(), self.write);
        let mut steps = Vec::with_capacity(replacements.len());
        for Replacement { context, now, .. } in replacements {
            let step = |packed: bool, ready| Step { file: context.file(packed), ready, write };
            let (known, other) = (shelf.lock().entry(context).is_some(), step(!self.packed, None));
            let ready = match now {
                Some(doc) => {
                    doc.write = write;
                    let (name, ready) = self.ready();
                    made.push(ready.clone());
                    shelf.disk.write(&ready, &pack::write(doc, self.packed)?, true)?;
                    self.make_folder(&shelf.contexts.join(context.file(self.packed)))?;
                    Some(name.into())
                }
                None => None,
            };
            steps.push(step(self.packed, ready));
            steps.extend(known.then_some(other));
        }
        Ok(steps)
    }

    fn do_all(&mut self, steps: &[Step]) -> io::Result<()> {
        let shelf = self.shelf.clone();
        let targets: Vec<PathBuf> = steps.iter().map(|step| shelf.contexts.join(&step.file)).collect();
        for (step, target) in steps.iter().zip(&targets) {
            match &step.ready {
                Some(ready) => shelf.disk.rename(&shelf.workshop.join(ready), target)?,
                None => gone(shelf.disk.remove(target))?,
            }
        }
        self.sync_folders(targets.iter().map(PathBuf::as_path))
    }

    /// The documents are what counts, though their files are not right yet.
    fn owe(&mut self, owed: Owed) {
        let packed = self.packed;
        let mut index = self.shelf.lock();
        for Replacement { context, now, .. } in &owed.replacements {
            match now {
                Some(doc) => {
                    index.put(context, Entry { write: doc.write, packed, head: doc.head() });
                    index.begin(Arc::new(doc.clone()));
                }
                None => {
                    index.forget(context);
                    index.end(context);
                }
            }
        }
        drop(index);
        self.owed = Some(owed);
    }

    /// Everybody may see this document from here on.
    fn show(&self, index: &mut Index, doc: Doc) {
        let (doc, packed) = (Arc::new(doc), self.packed);
        index.put(&doc.context, Entry { write: doc.write, packed, head: doc.head() });
        index.keep(&doc);
        index.replaced(&doc.context);
    }

    /// The name and the path of a file to be made.
    fn ready(&mut self) -> (String, PathBuf) {
        self.made += 1;
        // No name that a file had before: after a loss of power that one may come back.
        let name = format!("{}-{}", self.write, self.made);
        let path = self.shelf.workshop.join(&name);
        (name, path)
    }

    fn make_folder(&mut self, target: &Path) -> io::Result<()> {
        let Some(folder) = target.parent().filter(|folder| !self.folders.contains(*folder)) else { return Ok(()) };
        self.shelf.disk.make_folder(folder)?;
        self.new_folders = true;
        self.folders.insert(folder.to_owned());
        Ok(())
    }

    /// The names of these files have reached the disk afterwards, and all that were spared it before: whoever is told that
    /// something is safe may rely on what was there when it was written.
    fn sync_folders<'p>(&mut self, files: impl IntoIterator<Item = &'p Path>) -> io::Result<()> {
        self.unsynced.extend(files.into_iter().filter_map(Path::parent).map(Path::to_owned));
        while let Some(folder) = self.unsynced.iter().next().cloned() {
            self.shelf.disk.sync_folder(&folder)?;
            self.unsynced.remove(&folder);
        }
        if self.new_folders {
            self.shelf.disk.sync_folder(&self.shelf.contexts)?;
            self.new_folders = false;
        }
        Ok(())
    }
}
