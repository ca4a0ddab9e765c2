//! Writes documents to files atomically: one by a rename, several by an intent file that makes their renames atomic.
//!
//! In: the new contents of files. Out: success; or nothing was written; or the outcome is unknown. A file is staged and
//! renamed into place when it is complete, so readers see the old content or the new. A failed sync is never retried on the
//! same file: the content is written to a new file instead.
//!
//! The content of a file is always synced before the rename: otherwise a power failure could leave half a file in place of a
//! durable one. A write that need not survive a power failure skips only the sync of the folder, until the next durable write.

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

/// The replacement of one file.
pub(super) struct Replacement {
    pub(super) context: Context,
    /// The current content; `None` if there is no file.
    pub(super) before: Option<Arc<Doc>>,
    /// The new content; `None` to remove the file.
    pub(super) after: Option<Doc>,
}

/// The outcome of a write.
#[derive(Debug)]
pub(super) enum WriteResult {
    Done,
    /// Nothing was written.
    NotWritten(io::Error),
    /// The new content is visible to readers, but may not survive a power failure.
    Unknown(io::Error),
}

/// Writes the files of the store; owned by the writer thread.
pub(super) struct FileWriter {
    documents: Arc<DocumentStore>,
    compressed: bool,
    /// The sequence number of the last write.
    write_seq: u64,
    /// The number of staged files created so far, for unique names.
    files_created: u64,
    /// Folders that are known to exist.
    known_folders: HashSet<PathBuf>,
    /// Whether a new folder is not synced yet.
    has_unsynced_new_folder: bool,
    /// Folders with changed names that are not synced yet.
    unsynced: HashSet<PathBuf>,
    /// An acknowledged intent whose operations are not complete yet.
    pending_intent: Option<PendingIntent>,
}

#[derive(Default)]
struct PendingIntent {
    replacements: Vec<Replacement>,
    /// The staged files of the intent.
    staged_files: Vec<PathBuf>,
}

impl FileWriter {
    pub(super) fn new(documents: Arc<DocumentStore>, compressed: bool, write_seq: u64) -> Self {
        let (known_folders, unsynced) = (HashSet::new(), HashSet::new());
        Self {
            documents,
            compressed,
            write_seq,
            files_created: 0,
            known_folders,
            has_unsynced_new_folder: true,
            unsynced,
            pending_intent: None,
        }
    }

    /// Replaces all these files or none.
    pub(super) fn put(&mut self, mut replacements: Vec<Replacement>, level: Durability) -> Result<(), StoreError> {
        // A context that was created and removed in the same group never had a file.
        replacements.retain(|item| item.before.is_some() || item.after.is_some());
        if replacements.is_empty() {
            return Ok(());
        }
        self.complete_intent()
            .map_err(|error| StoreError::Unavailable(format!("an earlier write is still incomplete: {error}")))?;
        let single = if replacements.len() == 1 { replacements.pop() } else { None };
        let result = match single {
            Some(replacement) => self.put_one(replacement, level),
            None => self.put_many(replacements),
        };
        match result {
            WriteResult::Done => Ok(()),
            WriteResult::NotWritten(error) => Err(StoreError::Unavailable(error.to_string())),
            WriteResult::Unknown(error) => {
                let folder = self.documents.contexts.display();
                tracing::error!(%folder, %error, "fsync failed; a store write may not survive a power failure");
                Err(StoreError::Unknown(error.to_string()))
            }
        }
    }

    /// Completes a pending intent. Rewrites all its files: earlier attempts may have been lost.
    pub(super) fn complete_intent(&mut self) -> io::Result<()> {
        let Some(mut pending) = self.pending_intent.take() else { return Ok(()) };
        let completed = self.try_complete_intent(&mut pending);
        if completed.is_err() {
            self.pending_intent = Some(pending);
        } else {
            let folder = self.documents.staging_folder.display();
            tracing::info!(%folder, "intent file (multi-file write) completed");
        }
        completed
    }

    fn try_complete_intent(&mut self, pending: &mut PendingIntent) -> io::Result<()> {
        while let Some(Replacement { context, after, .. }) = pending.replacements.last() {
            let (context, after) = (context.clone(), after.clone());
            let before = after.clone().map(Arc::new);
            let retry = Replacement { context, before: before.clone(), after };
            if let WriteResult::NotWritten(error) | WriteResult::Unknown(error) =
                self.put_one(retry, Durability::PowerSafe)
            {
                // Serve it from memory until its file is correct.
                before.into_iter().for_each(|doc| self.documents.lock_index().pin(doc));
                return Err(error);
            }
            pending.replacements.pop();
        }
        let disk = &*self.documents.disk;
        ignore_not_found(disk.remove(&self.documents.staging_folder.join(INTENT_FILE)))?;
        pending.staged_files.iter().try_for_each(|ready| ignore_not_found(disk.remove(ready)))?;
        disk.sync_folder(&self.documents.staging_folder)
    }

    fn put_one(&mut self, Replacement { context, before, after }: Replacement, level: Durability) -> WriteResult {
        before.into_iter().for_each(|doc| self.documents.lock_index().pin(doc));
        let result = match after {
            Some(mut doc) => {
                self.write_seq += 1;
                doc.write_seq = self.write_seq;
                self.replace(doc, level)
            }
            None => self.remove(&context, level),
        };
        self.documents.lock_index().unpin(&context);
        result
    }

    fn replace(&mut self, doc: Doc, level: Durability) -> WriteResult {
        let documents = self.documents.clone();
        let (ready, target) = (self.next_staged_file().1, documents.contexts.join(doc.context.file(self.compressed)));
        let written = file_codec::encode(&doc, self.compressed)
            .and_then(|content| documents.disk.write(&ready, &content, true))
            .and_then(|()| self.make_folder(&target))
            .and_then(|()| documents.disk.rename(&ready, &target));
        if let Err(error) = written {
            // A leftover is removed at the next opening at the latest.
            let _ = documents.disk.remove(&ready);
            return WriteResult::NotWritten(error);
        }
        let had_other =
            documents.lock_index().entry(&doc.context).is_some_and(|entry| entry.compressed != self.compressed);
        let other = had_other.then(|| documents.contexts.join(doc.context.file(!self.compressed)));
        self.publish(&mut documents.lock_index(), doc);
        let mut synced = Ok(());
        self.unsynced.extend(target.parent().map(Path::to_owned));
        if had_other || level == Durability::PowerSafe {
            synced = self.sync_folders([]);
        }
        if let Some(other) = other {
            // After the sync, so that the new file is durable first; and synced again, so that the old file cannot reappear.
            synced = synced
                .and_then(|()| ignore_not_found(documents.disk.remove(&other)))
                .and_then(|()| self.sync_folders([&*target]));
        }
        synced.map_or_else(WriteResult::Unknown, |()| WriteResult::Done)
    }

    fn remove(&mut self, context: &Context, level: Durability) -> WriteResult {
        let documents = self.documents.clone();
        // Remove a leftover with the other suffix first: once the current file is removed, the context must be gone.
        let compressed = documents.lock_index().entry(context).map_or(self.compressed, |entry| entry.compressed);
        let [other, target] =
            [!compressed, compressed].map(|compressed| documents.contexts.join(context.file(compressed)));
        let removed = ignore_not_found(documents.disk.remove(&other))
            .and_then(|()| ignore_not_found(documents.disk.remove(&target)));
        if let Err(error) = removed {
            return WriteResult::NotWritten(error);
        }
        documents.lock_index().remove(context);
        self.unsynced.extend(target.parent().map(Path::to_owned));
        if level < Durability::PowerSafe {
            return WriteResult::Done;
        }
        self.sync_folders([]).map_or_else(WriteResult::Unknown, |()| WriteResult::Done)
    }

    /// Replaces several files, always synced: losing one of them would break atomicity.
    fn put_many(&mut self, mut replacements: Vec<Replacement>) -> WriteResult {
        let documents = self.documents.clone();
        self.write_seq += 1;
        let mut pending = PendingIntent::default();
        let ops = self.stage_files(&mut replacements, &mut pending.staged_files);
        pending.replacements = replacements;
        let ops = match ops {
            Ok(ops) => ops,
            Err(error) => {
                pending.staged_files.iter().for_each(|ready| drop(documents.disk.remove(ready)));
                return WriteResult::NotWritten(error);
            }
        };
        {
            let mut index = documents.lock_index();
            let before = pending.replacements.iter().filter_map(|item| item.before.clone());
            before.for_each(|doc| index.pin(doc));
        }
        let intent_path = documents.staging_folder.join(INTENT_FILE);
        let recorded = intent::encode(&ops)
            .and_then(|content| documents.disk.write(&intent_path, &content, true))
            .and_then(|()| documents.disk.sync_folder(&documents.staging_folder));
        if let Err(error) = recorded {
            let removed = ignore_not_found(documents.disk.remove(&intent_path))
                .and_then(|()| documents.disk.sync_folder(&documents.staging_folder));
            if removed.is_err() {
                // The intent may exist after a crash, so its operations must be completed.
                self.defer_intent(pending);
                return WriteResult::Unknown(error);
            }
            pending.staged_files.iter().for_each(|ready| drop(documents.disk.remove(ready)));
            let mut index = documents.lock_index();
            pending.replacements.iter().for_each(|item| index.unpin(&item.context));
            return WriteResult::NotWritten(error);
        }
        // From here on the write is committed: recovery completes it after a crash.
        if let Err(error) = self.apply_ops(&ops) {
            let folder = documents.staging_folder.display();
            tracing::warn!(%folder, %error, "cannot complete intent file; will retry before the next write");
            self.defer_intent(pending);
            return WriteResult::Done;
        }
        {
            // Under one lock, so that readers see all of them new or all of them old.
            let mut index = documents.lock_index();
            for Replacement { context, after, .. } in pending.replacements {
                match after {
                    Some(doc) => self.publish(&mut index, doc),
                    None => index.remove(&context),
                }
                index.unpin(&context);
            }
        }
        // If it stays or reappears, replaying it has no effect.
        let _ = documents.disk.remove(&intent_path);
        WriteResult::Done
    }

    /// Writes all staged files, and returns the operations that put them into place.
    fn stage_files(&mut self, replacements: &mut [Replacement], staged: &mut Vec<PathBuf>) -> io::Result<Vec<FileOp>> {
        let (documents, write_seq) = (self.documents.clone(), self.write_seq);
        let mut ops = Vec::with_capacity(replacements.len());
        for Replacement { context, after, .. } in replacements {
            let op = |compressed: bool, ready| FileOp { file: context.file(compressed), ready, write: write_seq };
            let (exists, remove_other) = (documents.lock_index().entry(context).is_some(), op(!self.compressed, None));
            let ready = match after {
                Some(doc) => {
                    doc.write_seq = write_seq;
                    let (name, ready) = self.next_staged_file();
                    staged.push(ready.clone());
                    documents.disk.write(&ready, &file_codec::encode(doc, self.compressed)?, true)?;
                    self.make_folder(&documents.contexts.join(context.file(self.compressed)))?;
                    Some(name.into())
                }
                None => None,
            };
            ops.push(op(self.compressed, ready));
            ops.extend(exists.then_some(remove_other));
        }
        Ok(ops)
    }

    fn apply_ops(&mut self, ops: &[FileOp]) -> io::Result<()> {
        let documents = self.documents.clone();
        let targets: Vec<PathBuf> = ops.iter().map(|op| documents.contexts.join(&op.file)).collect();
        for (op, target) in ops.iter().zip(&targets) {
            match &op.ready {
                Some(ready) => documents.disk.rename(&documents.staging_folder.join(ready), target)?,
                None => ignore_not_found(documents.disk.remove(target))?,
            }
        }
        self.sync_folders(targets.iter().map(PathBuf::as_path))
    }

    /// Serves the new documents from memory until their files are complete.
    fn defer_intent(&mut self, pending: PendingIntent) {
        let compressed = self.compressed;
        let mut index = self.documents.lock_index();
        for Replacement { context, after, .. } in &pending.replacements {
            match after {
                Some(doc) => {
                    index.put(context, FileEntry { write_seq: doc.write_seq, compressed, head: doc.head() });
                    index.pin(Arc::new(doc.clone()));
                }
                None => {
                    index.remove(context);
                    index.unpin(context);
                }
            }
        }
        drop(index);
        self.pending_intent = Some(pending);
    }

    /// Makes a document visible to readers.
    fn publish(&self, index: &mut Index, doc: Doc) {
        let (doc, compressed) = (Arc::new(doc), self.compressed);
        index.put(&doc.context, FileEntry { write_seq: doc.write_seq, compressed, head: doc.head() });
        index.cache_if_current(&doc);
        index.clear_quarantine(&doc.context);
    }

    /// The name and path of the next staged file.
    fn next_staged_file(&mut self) -> (String, PathBuf) {
        self.files_created += 1;
        // Never reuse a name: after a power failure an old file may reappear.
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

    /// Syncs the folders of these files and all folders whose sync was skipped before: a durable write also makes earlier writes
    /// durable.
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
