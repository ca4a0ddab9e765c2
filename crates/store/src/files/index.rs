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
    Damaged,
    cache::Cache,
    doc::{Doc, Head, NEVER},
    name::{Context, Part},
};

/// A file as it is known.
pub(super) struct Entry {
    /// The number of its last write.
    pub(super) write: u64,
    pub(super) packed: bool,
    pub(super) head: Head,
}

/// Where the rows of a context are to be had.
pub(super) enum Held {
    Nowhere,
    Here(Arc<Doc>),
    /// In its file, as of this write.
    OnDisk {
        write: u64,
        packed: bool,
    },
    /// In a file that was set aside, for this reason.
    Aside(String),
}

/// A state: its id and its partition.
pub(super) type State = (SmolStr, Arc<str>);

#[derive(Default)]
pub(super) struct Index {
    contexts: BTreeMap<Context, Entry>,
    states: BTreeSet<State>,
    ends: BTreeSet<(Timestamp, Context)>,
    cache: Cache,
    /// Read here and not on the disk, where they are being replaced.
    busy: HashMap<Context, Arc<Doc>>,
    /// Files that were set aside, by the names they had without their ending, and why.
    aside: HashMap<String, String>,
    /// The same as they are told, as far as they were set aside since the folder was opened.
    pub(super) damaged: Vec<Damaged>,
}

impl Index {
    pub(super) fn held(&mut self, context: &Context) -> Held {
        let Some(Entry { write, packed, .. }) = self.contexts.get(context) else {
            if self.aside.is_empty() {
                return Held::Nowhere;
            }
            return self.aside.get(&context.stem()).map_or(Held::Nowhere, |reason| Held::Aside(reason.clone()));
        };
        let (write, packed) = (*write, *packed);
        let doc = self.busy.get(context).cloned().or_else(|| self.cache.get(context));
        doc.filter(|doc| doc.write == write).map_or(Held::OnDisk { write, packed }, Held::Here)
    }

    pub(super) fn entry(&self, context: &Context) -> Option<&Entry> {
        self.contexts.get(context)
    }

    /// Keeps a document that was read, if it is still the one that counts.
    pub(super) fn keep(&mut self, doc: &Arc<Doc>) {
        if self.contexts.get(&doc.context).is_some_and(|entry| entry.write == doc.write) {
            self.cache.put(doc.clone());
        }
    }

    /// A file has this content from now on.
    pub(super) fn put(&mut self, context: &Context, entry: Entry) {
        self.forget(context);
        self.states.extend(entry.head.states.iter().map(|id| (id.clone(), context.home.clone())));
        if entry.head.soonest != NEVER {
            self.ends.insert((entry.head.soonest, context.clone()));
        }
        self.contexts.insert(context.clone(), entry);
    }

    /// There is no such file any more.
    pub(super) fn forget(&mut self, context: &Context) {
        self.cache.remove(context);
        if let Some(Entry { head, .. }) = self.contexts.remove(context) {
            for id in head.states {
                self.states.remove(&(id, context.home.clone()));
            }
            self.ends.remove(&(head.soonest, context.clone()));
        }
    }

    /// From here on this document is read in place of its file.
    pub(super) fn begin(&mut self, doc: Arc<Doc>) {
        self.busy.insert(doc.context.clone(), doc);
    }

    /// Its file is read again.
    pub(super) fn end(&mut self, context: &Context) {
        self.busy.remove(context);
    }

    pub(super) fn is_busy(&self, context: &Context) -> bool {
        self.busy.contains_key(context)
    }

    pub(super) fn set_aside(&mut self, stem: String, reason: String) {
        self.aside.insert(stem, reason);
    }

    /// What was set aside has been replaced.
    pub(super) fn replaced(&mut self, context: &Context) {
        if !self.aside.is_empty() {
            self.aside.remove(&context.stem());
        }
    }

    /// The contexts of a partition, in the order of their ids.
    pub(super) fn of_home(&self, home: &Arc<str>) -> impl DoubleEndedIterator<Item = (&Context, &Entry)> {
        let first = Context { home: home.clone(), part: Part::Rows(SmolStr::default()) };
        // No text comes between a text and the same with a zero behind it.
        let end = Context { home: format!("{home}\0").into(), part: Part::Fence };
        self.contexts.range(first..end)
    }

    /// States between two places, in order.
    pub(super) fn states(&self, from: Bound<State>, to: Bound<State>) -> impl DoubleEndedIterator<Item = &State> {
        // A range that ends before it begins is no range to a tree.
        let empty = match (&from, &to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => from >= to,
        };
        (!empty).then(|| self.states.range((from, to))).into_iter().flatten()
    }

    /// The contexts with rows of a table, and their first and last ids.
    pub(super) fn spans(&self, table: Table) -> impl Iterator<Item = (&Context, &SmolStr, &SmolStr)> {
        self.contexts.iter().filter_map(move |(context, entry)| {
            let (first, last) = entry.head.span(table)?;
            Some((context, first, last))
        })
    }

    /// A context in which something has expired, behind the one that was looked at last.
    pub(super) fn expired(&self, after: Option<&(Timestamp, Context)>, now: Timestamp) -> Option<(Timestamp, Context)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ends.range((from, Bound::Unbounded)).next().filter(|(soonest, _)| *soonest <= now).cloned()
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }
}
