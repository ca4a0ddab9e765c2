//! Which contexts there are, in every order that is asked for.
//!
//! In: what the beginnings of files tell. Out: contexts of a partition, states in order, contexts in which something may
//! have expired. It is made of the files each time a folder is opened, and lies in memory only.

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
    context::{Context, Part},
    doc::{Doc, DocHead, NO_EXPIRY},
};

/// A file as it is known.
pub(super) struct FileEntry {
    /// The number of its last write.
    pub(super) write_seq: u64,
    pub(super) compressed: bool,
    pub(super) head: DocHead,
}

/// Where the rows of a context are to be had.
pub(super) enum DocLookup {
    Absent,
    InMemory(Arc<Doc>),
    /// In its file, as of this write.
    OnDisk {
        write_seq: u64,
        compressed: bool,
    },
    /// In a file that was set aside, for this reason.
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
    /// Read here and not on the disk, where they are being replaced.
    pinned: HashMap<Context, Arc<Doc>>,
    /// Files that were set aside, by the names they had without their ending, and why.
    quarantined: HashMap<String, String>,
    /// The same as they are told, as far as they were set aside since the folder was opened.
    pub(super) quarantined_files: Vec<QuarantinedFile>,
}

impl Index {
    pub(super) fn lookup(&mut self, context: &Context) -> DocLookup {
        let Some(FileEntry { write_seq: write, compressed: packed, .. }) = self.contexts.get(context) else {
            if self.quarantined.is_empty() {
                return DocLookup::Absent;
            }
            return self
                .quarantined
                .get(&context.stem())
                .map_or(DocLookup::Absent, |reason| DocLookup::Quarantined(reason.clone()));
        };
        let (write, packed) = (*write, *packed);
        let doc = self.pinned.get(context).cloned().or_else(|| self.cache.get(context));
        doc.filter(|doc| doc.write_seq == write)
            .map_or(DocLookup::OnDisk { write_seq: write, compressed: packed }, DocLookup::InMemory)
    }

    pub(super) fn entry(&self, context: &Context) -> Option<&FileEntry> {
        self.contexts.get(context)
    }

    /// Keeps a document that was read, if it is still the one that counts.
    pub(super) fn cache_if_current(&mut self, doc: &Arc<Doc>) {
        if self.contexts.get(&doc.context).is_some_and(|entry| entry.write_seq == doc.write_seq) {
            self.cache.put(doc.clone());
        }
    }

    /// A file has this content from now on.
    pub(super) fn put(&mut self, context: &Context, entry: FileEntry) {
        self.remove(context);
        self.states.extend(entry.head.states.iter().map(|id| (id.clone(), context.partition_key.clone())));
        if entry.head.earliest_expiry != NO_EXPIRY {
            self.expirations.insert((entry.head.earliest_expiry, context.clone()));
        }
        self.contexts.insert(context.clone(), entry);
    }

    /// There is no such file any more.
    pub(super) fn remove(&mut self, context: &Context) {
        self.cache.remove(context);
        if let Some(FileEntry { head, .. }) = self.contexts.remove(context) {
            for id in head.states {
                self.states.remove(&(id, context.partition_key.clone()));
            }
            self.expirations.remove(&(head.earliest_expiry, context.clone()));
        }
    }

    /// From here on this document is read in place of its file.
    pub(super) fn pin(&mut self, doc: Arc<Doc>) {
        self.pinned.insert(doc.context.clone(), doc);
    }

    /// Its file is read again.
    pub(super) fn unpin(&mut self, context: &Context) {
        self.pinned.remove(context);
    }

    pub(super) fn is_pinned(&self, context: &Context) -> bool {
        self.pinned.contains_key(context)
    }

    pub(super) fn quarantine(&mut self, stem: String, reason: String) {
        self.quarantined.insert(stem, reason);
    }

    /// What was set aside has been replaced.
    pub(super) fn clear_quarantine(&mut self, context: &Context) {
        if !self.quarantined.is_empty() {
            self.quarantined.remove(&context.stem());
        }
    }

    /// The contexts of a partition, in the order of their ids.
    pub(super) fn contexts_in(&self, home: &Arc<str>) -> impl DoubleEndedIterator<Item = (&Context, &FileEntry)> {
        let first = Context { partition_key: home.clone(), part: Part::Rows(SmolStr::default()) };
        // No text comes between a text and the same with a zero behind it.
        let end = Context { partition_key: format!("{home}\0").into(), part: Part::Fence };
        self.contexts.range(first..end)
    }

    /// States between two places, in order.
    pub(super) fn states(
        &self,
        from: Bound<StateKey>,
        to: Bound<StateKey>,
    ) -> impl DoubleEndedIterator<Item = &StateKey> {
        // A range that ends before it begins is no range to a tree.
        let empty = match (&from, &to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => from >= to,
        };
        (!empty).then(|| self.states.range((from, to))).into_iter().flatten()
    }

    /// The contexts with rows of a table, and their first and last ids.
    pub(super) fn contexts_with_spans(&self, table: Table) -> impl Iterator<Item = (&Context, &SmolStr, &SmolStr)> {
        self.contexts.iter().filter_map(move |(context, entry)| {
            let (first, last) = entry.head.span(table)?;
            Some((context, first, last))
        })
    }

    /// A context in which something has expired, behind the one that was looked at last.
    pub(super) fn next_expired(
        &self,
        after: Option<&(Timestamp, Context)>,
        now: Timestamp,
    ) -> Option<(Timestamp, Context)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.expirations.range((from, Bound::Unbounded)).next().filter(|(soonest, _)| *soonest <= now).cloned()
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }
}
