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
    context::Context,
    disk::ignore_not_found,
    doc::Doc,
    document_store::DocumentStore,
    file_codec,
    index::{FileEntry, Index},
    intent::{self, FileOp, INTENT_FILE},
};

/// What becomes of one file.
pub(super) struct Replacement {
    pub(super) context: Context,
    /// What it holds; `None` where there is none.
    pub(super) before: Option<Arc<Doc>>,
    /// What it will hold; `None` where it goes.
    pub(super) after: Option<Doc>,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum WriteResult {
    Done,
    /// Nothing was written.
    NotWritten(io::Error),
    /// It is there for whoever looks; whether it will be after a loss of power, nobody knows.
    Unknown(io::Error),
}

/// The one who writes.
pub(super) struct FileWriter {
    documents: Arc<DocumentStore>,
    compressed: bool,
    /// The number of the last write.
    write_seq: u64,
    /// The number of the last file that was made here.
    files_created: u64,
    /// Folders that are known to be there.
    known_folders: HashSet<PathBuf>,
    /// Whether a folder was made and not synced.
    has_unsynced_new_folder: bool,
    /// Folders in which names changed and were not synced.
    unsynced: HashSet<PathBuf>,
    /// What a note promises and could not be done yet.
    pending_intent: Option<PendingIntent>,
}

#[derive(Default)]
struct PendingIntent {
    replacements: Vec<Replacement>,
    /// What was made for it.
    staged_files: Vec<PathBuf>,
}

impl FileWriter {
    pub(super) fn new(shelf: Arc<DocumentStore>, packed: bool, write: u64) -> Self {
        let (folders, unsynced) = (HashSet::new(), HashSet::new());
        Self {
            documents: shelf,
            compressed: packed,
            write_seq: write,
            files_created: 0,
            known_folders: folders,
            has_unsynced_new_folder: true,
            unsynced,
            pending_intent: None,
        }
    }

    /// Replaces all these files, or none.
    pub(super) fn put(&mut self, mut replacements: Vec<Replacement>, level: Durability) -> Result<(), StoreError> {
        // What came and went in one go never had a file.
        replacements.retain(|one| one.before.is_some() || one.after.is_some());
        if replacements.is_empty() {
            return Ok(());
        }
        self.complete_intent()
            .map_err(|error| StoreError::Unavailable(format!("the store is not mended yet: {error}")))?;
        let one = if replacements.len() == 1 { replacements.pop() } else { None };
        let put = match one {
            Some(one) => self.put_one(one, level),
            None => self.put_many(replacements),
        };
        match put {
            WriteResult::Done => Ok(()),
            WriteResult::NotWritten(error) => Err(StoreError::Unavailable(error.to_string())),
            WriteResult::Unknown(error) => {
                tracing::error!(%error, "nobody knows whether a write of the store survives a loss of power");
                Err(StoreError::Unknown(error.to_string()))
            }
        }
    }

    /// Does what a note promised. Everything is written anew: what was done before may have been lost.
    pub(super) fn complete_intent(&mut self) -> io::Result<()> {
        let Some(mut owed) = self.pending_intent.take() else { return Ok(()) };
        let settled = self.try_complete_intent(&mut owed);
        if settled.is_err() {
            self.pending_intent = Some(owed);
        } else {
            tracing::info!("the store is mended");
        }
        settled
    }

    fn try_complete_intent(&mut self, owed: &mut PendingIntent) -> io::Result<()> {
        while let Some(Replacement { context, after: now, .. }) = owed.replacements.last() {
            let (context, now) = (context.clone(), now.clone());
            let before = now.clone().map(Arc::new);
            let again = Replacement { context, before: before.clone(), after: now };
            if let WriteResult::NotWritten(error) | WriteResult::Unknown(error) =
                self.put_one(again, Durability::PowerSafe)
            {
                // It is read in memory until its file is right.
                before.into_iter().for_each(|doc| self.documents.lock_index().pin(doc));
                return Err(error);
            }
            owed.replacements.pop();
        }
        let disk = &*self.documents.disk;
        ignore_not_found(disk.remove(&self.documents.staging_folder.join(INTENT_FILE)))?;
        owed.staged_files.iter().try_for_each(|ready| ignore_not_found(disk.remove(ready)))?;
        disk.sync_folder(&self.documents.staging_folder)
    }

    fn put_one(&mut self, Replacement { context, before, after: now }: Replacement, level: Durability) -> WriteResult {
        before.into_iter().for_each(|doc| self.documents.lock_index().pin(doc));
        let put = match now {
            Some(mut doc) => {
                self.write_seq += 1;
                doc.write_seq = self.write_seq;
                self.replace(doc, level)
            }
            None => self.remove(&context, level),
        };
        self.documents.lock_index().unpin(&context);
        put
    }

    fn replace(&mut self, doc: Doc, level: Durability) -> WriteResult {
        let shelf = self.documents.clone();
        let (ready, target) = (self.next_staged_file().1, shelf.contexts.join(doc.context.file(self.compressed)));
        let made = file_codec::encode(&doc, self.compressed)
            .and_then(|content| shelf.disk.write(&ready, &content, true))
            .and_then(|()| self.make_folder(&target))
            .and_then(|()| shelf.disk.rename(&ready, &target));
        if let Err(error) = made {
            // What is left of it goes when the folder is opened next, at the latest.
            let _ = shelf.disk.remove(&ready);
            return WriteResult::NotWritten(error);
        }
        let had_other = shelf.lock_index().entry(&doc.context).is_some_and(|entry| entry.compressed != self.compressed);
        let other = had_other.then(|| shelf.contexts.join(doc.context.file(!self.compressed)));
        self.publish(&mut shelf.lock_index(), doc);
        let mut rest = Ok(());
        self.unsynced.extend(target.parent().map(Path::to_owned));
        if had_other || level == Durability::PowerSafe {
            rest = self.sync_folders([]);
        }
        if let Some(other) = other {
            // Not before the new one is sure to be there; and for good, so that it is not there again when that one goes.
            rest = rest
                .and_then(|()| ignore_not_found(shelf.disk.remove(&other)))
                .and_then(|()| self.sync_folders([&*target]));
        }
        rest.map_or_else(WriteResult::Unknown, |()| WriteResult::Done)
    }

    fn remove(&mut self, context: &Context, level: Durability) -> WriteResult {
        let shelf = self.documents.clone();
        // What an error may have left of another sort goes first: when this one is gone, so is the context.
        let packed = shelf.lock_index().entry(context).map_or(self.compressed, |entry| entry.compressed);
        let [other, target] = [!packed, packed].map(|packed| shelf.contexts.join(context.file(packed)));
        let removed =
            ignore_not_found(shelf.disk.remove(&other)).and_then(|()| ignore_not_found(shelf.disk.remove(&target)));
        if let Err(error) = removed {
            return WriteResult::NotWritten(error);
        }
        shelf.lock_index().remove(context);
        self.unsynced.extend(target.parent().map(Path::to_owned));
        if level < Durability::PowerSafe {
            return WriteResult::Done;
        }
        self.sync_folders([]).map_or_else(WriteResult::Unknown, |()| WriteResult::Done)
    }

    /// Several files, always synced: one that is lost would break what belongs together.
    fn put_many(&mut self, mut replacements: Vec<Replacement>) -> WriteResult {
        let shelf = self.documents.clone();
        self.write_seq += 1;
        let mut owed = PendingIntent::default();
        let steps = self.stage_files(&mut replacements, &mut owed.staged_files);
        owed.replacements = replacements;
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                owed.staged_files.iter().for_each(|ready| drop(shelf.disk.remove(ready)));
                return WriteResult::NotWritten(error);
            }
        };
        {
            let mut index = shelf.lock_index();
            let before = owed.replacements.iter().filter_map(|one| one.before.clone());
            before.for_each(|doc| index.pin(doc));
        }
        let note = shelf.staging_folder.join(INTENT_FILE);
        let noted = intent::encode(&steps)
            .and_then(|content| shelf.disk.write(&note, &content, true))
            .and_then(|()| shelf.disk.sync_folder(&shelf.staging_folder));
        if let Err(error) = noted {
            let undone =
                ignore_not_found(shelf.disk.remove(&note)).and_then(|()| shelf.disk.sync_folder(&shelf.staging_folder));
            if undone.is_err() {
                // The note may be there after a crash, so what it promises is to be done.
                self.defer_intent(owed);
                return WriteResult::Unknown(error);
            }
            owed.staged_files.iter().for_each(|ready| drop(shelf.disk.remove(ready)));
            let mut index = shelf.lock_index();
            owed.replacements.iter().for_each(|one| index.unpin(&one.context));
            return WriteResult::NotWritten(error);
        }
        // From here on it will happen, whatever happens.
        if let Err(error) = self.apply_ops(&steps) {
            tracing::warn!(%error, "files of the store could not be put into place; it is tried again before the next write");
            self.defer_intent(owed);
            return WriteResult::Done;
        }
        {
            // Under one lock: nobody sees some of them new and the others old.
            let mut index = shelf.lock_index();
            for Replacement { context, after: now, .. } in owed.replacements {
                match now {
                    Some(doc) => self.publish(&mut index, doc),
                    None => index.remove(&context),
                }
                index.unpin(&context);
            }
        }
        // Should it stay or come back, there is nothing left for it to do.
        let _ = shelf.disk.remove(&note);
        WriteResult::Done
    }

    /// Makes all files, aside, and the steps that will put them into place.
    fn stage_files(&mut self, replacements: &mut [Replacement], made: &mut Vec<PathBuf>) -> io::Result<Vec<FileOp>> {
        let (shelf, write) = (self.documents.clone(), self.write_seq);
        let mut steps = Vec::with_capacity(replacements.len());
        for Replacement { context, after: now, .. } in replacements {
            let step = |packed: bool, ready| FileOp { file: context.file(packed), ready, write };
            let (known, other) = (shelf.lock_index().entry(context).is_some(), step(!self.compressed, None));
            let ready = match now {
                Some(doc) => {
                    doc.write_seq = write;
                    let (name, ready) = self.next_staged_file();
                    made.push(ready.clone());
                    shelf.disk.write(&ready, &file_codec::encode(doc, self.compressed)?, true)?;
                    self.make_folder(&shelf.contexts.join(context.file(self.compressed)))?;
                    Some(name.into())
                }
                None => None,
            };
            steps.push(step(self.compressed, ready));
            steps.extend(known.then_some(other));
        }
        Ok(steps)
    }

    fn apply_ops(&mut self, steps: &[FileOp]) -> io::Result<()> {
        let shelf = self.documents.clone();
        let targets: Vec<PathBuf> = steps.iter().map(|step| shelf.contexts.join(&step.file)).collect();
        for (step, target) in steps.iter().zip(&targets) {
            match &step.ready {
                Some(ready) => shelf.disk.rename(&shelf.staging_folder.join(ready), target)?,
                None => ignore_not_found(shelf.disk.remove(target))?,
            }
        }
        self.sync_folders(targets.iter().map(PathBuf::as_path))
    }

    /// The documents are what counts, though their files are not right yet.
    fn defer_intent(&mut self, owed: PendingIntent) {
        let packed = self.compressed;
        let mut index = self.documents.lock_index();
        for Replacement { context, after: now, .. } in &owed.replacements {
            match now {
                Some(doc) => {
                    index.put(context, FileEntry { write_seq: doc.write_seq, compressed: packed, head: doc.head() });
                    index.pin(Arc::new(doc.clone()));
                }
                None => {
                    index.remove(context);
                    index.unpin(context);
                }
            }
        }
        drop(index);
        self.pending_intent = Some(owed);
    }

    /// Everybody may see this document from here on.
    fn publish(&self, index: &mut Index, doc: Doc) {
        let (doc, packed) = (Arc::new(doc), self.compressed);
        index.put(&doc.context, FileEntry { write_seq: doc.write_seq, compressed: packed, head: doc.head() });
        index.cache_if_current(&doc);
        index.clear_quarantine(&doc.context);
    }

    /// The name and the path of a file to be made.
    fn next_staged_file(&mut self) -> (String, PathBuf) {
        self.files_created += 1;
        // No name that a file had before: after a loss of power that one may come back.
        let name = format!("{}-{}", self.write_seq, self.files_created);
        let path = self.documents.staging_folder.join(&name);
        (name, path)
    }

    fn make_folder(&mut self, target: &Path) -> io::Result<()> {
        let Some(folder) = target.parent().filter(|folder| !self.known_folders.contains(*folder)) else {
            return Ok(());
        };
        self.documents.disk.make_folder(folder)?;
        self.has_unsynced_new_folder = true;
        self.known_folders.insert(folder.to_owned());
        Ok(())
    }

    /// The names of these files have reached the disk afterwards, and all that were spared it before: whoever is told that
    /// something is safe may rely on what was there when it was written.
    fn sync_folders<'p>(&mut self, files: impl IntoIterator<Item = &'p Path>) -> io::Result<()> {
        self.unsynced.extend(files.into_iter().filter_map(Path::parent).map(Path::to_owned));
        while let Some(folder) = self.unsynced.iter().next().cloned() {
            self.documents.disk.sync_folder(&folder)?;
            self.unsynced.remove(&folder);
        }
        if self.has_unsynced_new_folder {
            self.documents.disk.sync_folder(&self.documents.contexts)?;
            self.has_unsynced_new_folder = false;
        }
        Ok(())
    }
}
