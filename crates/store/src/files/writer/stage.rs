//! One batch after the other, in memory: all of it, or a refusal that leaves no trace.
//!
//! In: batches on one partition. Out: versions, what watchers are to be told, and the documents that must be written for
//! all of it to become true.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Action, Applied, Batch, Change, Durability, PriorRow, Row, RowKey, StoreError, Write, WriteContext},
    clock::Timestamp,
};

use super::{
    super::{
        context::Context,
        doc::Doc,
        document_store::{Content, DocumentStore},
    },
    file_writer::Replacement,
};

/// What a batch did.
pub(super) struct BatchOutput {
    pub(super) versions: Vec<u64>,
    pub(super) changes: Vec<(RowKey, Option<u64>)>,
}

/// What is to become of a partition.
pub(super) struct Stage<'a> {
    documents: &'a DocumentStore,
    partition_key: Arc<str>,
    /// The lowest version a row is written with.
    floor: u64,
    contexts: BTreeMap<Context, Staged>,
    level: Durability,
}

struct Staged {
    before: Option<Arc<Doc>>,
    after: Arc<Doc>,
    /// Why the file was set aside, if it was and nobody has replaced it.
    quarantined: Option<String>,
    changed: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(shelf: &'a DocumentStore, home: Arc<str>, floor: u64) -> Self {
        Self { documents: shelf, partition_key: home, floor, contexts: BTreeMap::new(), level: Durability::KillSafe }
    }

    /// Makes a batch, on top of those before it.
    pub(super) fn apply(&mut self, batch: &Batch, now: Timestamp) -> Result<BatchOutput, StoreError> {
        let fence = Context::fence(&self.partition_key);
        if let Some(given) = batch.fence {
            let staged = self.load(&fence)?;
            if staged.quarantined.is_some() {
                let why = format!(
                    "the fence of {} cannot be read any more, so nobody knows who may write",
                    self.partition_key
                );
                return Err(StoreError::Unavailable(why));
            }
            let seen = staged.after.fence;
            if given < seen {
                return Err(StoreError::Fenced { given, seen });
            }
        }
        // All are looked at before the first is made, so a refusal leaves nothing to undo.
        for write in &batch.writes {
            let staged = self.load(&Context::of_row(&self.partition_key, &write.id))?;
            write.check(&staged.before(RowId { table: write.table, id: &write.id }, now))?;
        }
        if let Some(given) = batch.fence {
            let staged = self.load(&fence)?;
            if given > staged.after.fence {
                staged.doc_mut().fence = given;
            }
        }
        let writing = WriteContext { stamp: batch.stamp, floor: self.floor, now };
        let mut made = BatchOutput { versions: Vec::with_capacity(batch.writes.len()), changes: Vec::new() };
        for Write { table, id, change, .. } in &batch.writes {
            let staged = self.load(&Context::of_row(&self.partition_key, id))?;
            let (version, changed) = staged.apply(RowId { table: *table, id }, change, writing);
            made.versions.push(version);
            if changed {
                let key = RowKey { partition: batch.partition.clone(), table: *table, id: id.clone() };
                made.changes.push((key, (version > 0).then_some(version)));
            }
        }
        self.level = self.level.max(batch.durability());
        Ok(made)
    }

    /// The files that must be written, and how much that must survive.
    pub(super) fn replacements(self) -> (Vec<Replacement>, Durability) {
        let changed = self.contexts.into_iter().filter(|(_, staged)| staged.changed);
        let replacements = changed.map(|(context, staged)| {
            let now = Some(staged.after).filter(|doc| !doc.is_empty());
            Replacement { context, before: staged.before, after: now.map(Arc::unwrap_or_clone) }
        });
        (replacements.collect(), self.level)
    }

    fn load(&mut self, context: &Context) -> Result<&mut Staged, StoreError> {
        if !self.contexts.contains_key(context) {
            let (before, aside) = match self.documents.get(context)? {
                Content::Doc(doc) => (Some(doc), None),
                Content::Quarantined(reason) => (None, Some(reason)),
                Content::Absent | Content::Unread => (None, None),
            };
            let now = before.clone().unwrap_or_else(|| Arc::new(Doc::empty(context.clone())));
            self.contexts.insert(context.clone(), Staged { before, after: now, quarantined: aside, changed: false });
        }
        let missing = || StoreError::Unavailable("a context was lost on the way".into());
        self.contexts.get_mut(context).ok_or_else(missing)
    }
}

#[derive(Clone, Copy)]
struct RowId<'a> {
    table: toolhub_storage::backend::Table,
    id: &'a SmolStr,
}

impl Staged {
    fn doc_mut(&mut self) -> &mut Doc {
        self.changed = true;
        Arc::make_mut(&mut self.after)
    }

    /// The row as it is now; `None` where its time has passed.
    fn row(&self, name: RowId<'_>, now: Timestamp) -> Option<&Row> {
        self.after.get(name.table, name.id).filter(|row| !row.is_expired(now))
    }

    /// The row before a write. Nobody knows what was in a file that was set aside.
    fn before(&self, name: RowId<'_>, now: Timestamp) -> PriorRow {
        match self.quarantined.clone() {
            Some(reason) => {
                let error = StoreError::Damaged { table: name.table, id: name.id.clone(), reason };
                PriorRow::Damaged { version: 0, error }
            }
            None => PriorRow::from_found(self.row(name, now).map(|row| (row.version, row.created))),
        }
    }

    /// Makes one change; answers the row's version afterwards, and whether there is anything to tell.
    fn apply(&mut self, name: RowId<'_>, change: &Change, writing: WriteContext) -> (u64, bool) {
        let Applied { version, changed, action } = change.apply(&self.before(name, writing.now), writing);
        match (action, change) {
            (
                Action::Put { row_version: seen, created },
                Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
            ) => {
                let (schema, value, expires) = (*schema, value.clone(), *expires);
                self.quarantined = None;
                let row = Row { version: seen, schema, value, expires, created, updated: writing.now };
                self.doc_mut().put(name.table, name.id.clone(), row);
            }
            (Action::Touch, Change::Touch { expires }) => {
                if let Some(row) = self.row(name, writing.now).filter(|row| row.expires != *expires) {
                    let row = Row { expires: *expires, ..row.clone() };
                    self.doc_mut().put(name.table, name.id.clone(), row);
                }
            }
            (Action::Remove, _) if self.after.get(name.table, name.id).is_some() => {
                self.doc_mut().remove(name.table, name.id);
            }
            (Action::Keep | Action::Put { .. } | Action::Touch | Action::Remove, _) => {}
        }
        (version, changed)
    }
}
