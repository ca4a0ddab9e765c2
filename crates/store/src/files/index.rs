//! In-memory index of all contexts, in every order that requests need.
//!
//! In: the heads of files. Out: contexts of a partition, states in order, contexts that may have expired rows. Rebuilt from
//! the files each time a folder is opened; never stored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use smol_str::SmolStr;
use toolhub_storage::{backend::Table, clock::Timestamp};

use super::{
    QuarantinedFile,
    cache::Cache,
    context::Context,
    doc::{Doc, DocHead, NO_EXPIRY},
};

/// What the index knows about a file.
pub(super) struct FileEntry {
    /// The sequence number of its last write.
    pub(super) write_seq: u64,
    pub(super) compressed: bool,
    pub(super) head: DocHead,
}

/// Where the rows of a context are.
pub(super) enum DocLookup {
    Absent,
    InMemory(Arc<Doc>),
    /// In its file, as of this write.
    OnDisk {
        write_seq: u64,
        compressed: bool,
    },
    /// In a quarantined file, for this reason.
    Quarantined(String),
}

/// A state: its id and its partition.
pub(super) type StateKey = (SmolStr, Arc<str>);

#[derive(Default)]
pub(super) struct Index {
    contexts: BTreeMap<Context, FileEntry>,
    states: BTreeSet<StateKey>,
    expirations: BTreeSet<(Timestamp, Context)>,
    cache: Cache,
    /// Documents to use instead of their files, which are being replaced.
    pinned: HashMap<Context, Arc<Doc>>,
    /// Quarantined files by their original name without suffix, and the reasons.
    quarantined: HashMap<String, String>,
    /// The files quarantined since the folder was opened.
    pub(super) quarantined_files: Vec<QuarantinedFile>,
}

impl Index {
    pub(super) fn lookup(&mut self, context: &Context) -> DocLookup {
        let Some(FileEntry { write_seq, compressed, .. }) = self.contexts.get(context) else {
            if self.quarantined.is_empty() {
                return DocLookup::Absent;
            }
            return self
                .quarantined
                .get(&context.stem())
                .map_or(DocLookup::Absent, |reason| DocLookup::Quarantined(reason.clone()));
        };
        let (write_seq, compressed) = (*write_seq, *compressed);
        let doc = self.pinned.get(context).cloned().or_else(|| self.cache.get(context));
        doc.filter(|doc| doc.write_seq == write_seq)
            .map_or(DocLookup::OnDisk { write_seq, compressed }, DocLookup::InMemory)
    }

    pub(super) fn entry(&self, context: &Context) -> Option<&FileEntry> {
        self.contexts.get(context)
    }

    /// Caches a document if it is still current.
    pub(super) fn cache_if_current(&mut self, doc: &Arc<Doc>) {
        if self.contexts.get(&doc.context).is_some_and(|entry| entry.write_seq == doc.write_seq) {
            self.cache.put(doc.clone());
        }
    }

    /// Records the new content of a file.
    pub(super) fn put(&mut self, context: &Context, entry: FileEntry) {
        self.remove(context);
        self.states.extend(entry.head.states.iter().map(|id| (id.clone(), context.partition_key.clone())));
        if entry.head.earliest_expiry != NO_EXPIRY {
            self.expirations.insert((entry.head.earliest_expiry, context.clone()));
        }
        self.contexts.insert(context.clone(), entry);
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, context: &Context) {
        self.cache.remove(context);
        if let Some(FileEntry { head, .. }) = self.contexts.remove(context) {
            for id in head.states {
                self.states.remove(&(id, context.partition_key.clone()));
            }
            self.expirations.remove(&(head.earliest_expiry, context.clone()));
        }
    }

    /// Serves this document instead of its file.
    pub(super) fn pin(&mut self, doc: Arc<Doc>) {
        self.pinned.insert(doc.context.clone(), doc);
    }

    /// Serves the file again.
    pub(super) fn unpin(&mut self, context: &Context) {
        self.pinned.remove(context);
    }

    pub(super) fn is_pinned(&self, context: &Context) -> bool {
        self.pinned.contains_key(context)
    }

    pub(super) fn quarantine(&mut self, stem: String, reason: String) {
        self.quarantined.insert(stem, reason);
    }

    pub(super) fn quarantined_count(&self) -> usize {
        self.quarantined.len()
    }

    /// Clears the quarantine of a context after it was replaced.
    pub(super) fn clear_quarantine(&mut self, context: &Context) {
        if !self.quarantined.is_empty() {
            self.quarantined.remove(&context.stem());
        }
    }

    /// The contexts of a partition, ordered by id prefix.
    pub(super) fn contexts_in(
        &self,
        partition_key: &Arc<str>,
    ) -> impl DoubleEndedIterator<Item = (&Context, &FileEntry)> {
        let first = Context { partition_key: partition_key.clone(), id_prefix: SmolStr::default() };
        // A text with NUL appended is the immediate successor of the text.
        let end = Context { partition_key: format!("{partition_key}\0").into(), id_prefix: SmolStr::default() };
        self.contexts.range(first..end)
    }

    /// States between two keys, in order.
    pub(super) fn states(
        &self,
        from: Bound<StateKey>,
        to: Bound<StateKey>,
    ) -> impl DoubleEndedIterator<Item = &StateKey> {
        // `BTreeSet::range` panics if the end is before the start.
        let empty = match (&from, &to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => from >= to,
        };
        (!empty).then(|| self.states.range((from, to))).into_iter().flatten()
    }

    /// The contexts with rows of a table, with their first and last ids.
    pub(super) fn contexts_with_spans(&self, table: Table) -> impl Iterator<Item = (&Context, &SmolStr, &SmolStr)> {
        self.contexts.iter().filter_map(move |(context, entry)| {
            let (first, last) = entry.head.span(table)?;
            Some((context, first, last))
        })
    }

    /// The next context with expired rows after the given one.
    pub(super) fn next_expired(
        &self,
        after: Option<&(Timestamp, Context)>,
        now: Timestamp,
    ) -> Option<(Timestamp, Context)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.expirations.range((from, Bound::Unbounded)).next().filter(|(expiry, _)| *expiry <= now).cloned()
    }

    /// The number of files.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }
}
