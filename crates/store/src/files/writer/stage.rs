//! Applies batches to documents in memory: each is applied completely or not at all.
//!
//! In: batches on one partition. Out: versions, change events, and the documents that must be written to commit them.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Action, Applied, Batch, Change, Durability, PriorRow, Row, RowKey, StoreError, Terms, WriteContext},
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

/// The result of a batch.
pub(super) struct BatchOutput {
    pub(super) versions: Vec<u64>,
    pub(super) changes: Vec<(RowKey, Option<u64>)>,
}

/// The pending documents of a partition.
pub(super) struct Stage<'a> {
    documents: &'a DocumentStore,
    partition_key: Arc<str>,
    /// The lowest version to assign.
    floor: u64,
    contexts: BTreeMap<Context, Staged>,
    level: Durability,
}

struct Staged {
    before: Option<Arc<Doc>>,
    after: Arc<Doc>,
    /// Why the file is quarantined, unless it was replaced since.
    quarantined: Option<String>,
    changed: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(documents: &'a DocumentStore, partition_key: Arc<str>, floor: u64) -> Self {
        Self { documents, partition_key, floor, contexts: BTreeMap::new(), level: Durability::KillSafe }
    }

    /// Applies a batch on top of the previous ones.
    pub(super) fn apply(&mut self, batch: &Batch, now: Timestamp) -> Result<BatchOutput, StoreError> {
        // Check all writes before the first is applied, so that a refusal leaves nothing to undo.
        for write in &batch.writes {
            let staged = self.load(&Context::of_row(&self.partition_key, &write.id))?;
            write.check(&staged.before(RowId { table: write.table, id: &write.id }, now))?;
        }
        if batch.no_other_rows && self.has_other_rows(batch, now)? {
            return Err(StoreError::OtherRows);
        }
        let context = WriteContext { stamp: batch.stamp, floor: self.floor, now };
        let mut output = BatchOutput { versions: Vec::with_capacity(batch.writes.len()), changes: Vec::new() };
        for write in &batch.writes {
            let staged = self.load(&Context::of_row(&self.partition_key, &write.id))?;
            let row_id = RowId { table: write.table, id: &write.id };
            let (version, changed) = staged.apply(row_id, &write.change, batch.terms_of(write), context);
            output.versions.push(version);
            if changed {
                let key = RowKey { partition: batch.partition.clone(), table: write.table, id: write.id.clone() };
                output.changes.push((key, (version > 0).then_some(version)));
            }
        }
        self.level = self.level.max(batch.durability());
        Ok(output)
    }

    /// Whether the partition holds a row that the batch does not write.
    fn has_other_rows(&mut self, batch: &Batch, now: Timestamp) -> Result<bool, StoreError> {
        let stored: Vec<Context> = {
            let index = self.documents.lock_index();
            index.contexts_in(&self.partition_key).map(|(context, _)| context.clone()).collect()
        };
        for context in &stored {
            self.load(context)?;
        }
        let is_other = |staged: &Staged| staged.quarantined.is_some() || staged.after.has_other_rows(batch, now);
        Ok(self.contexts.values().any(is_other))
    }

    /// The files that must be written, and the required durability.
    pub(super) fn replacements(self) -> (Vec<Replacement>, Durability) {
        let changed = self.contexts.into_iter().filter(|(_, staged)| staged.changed);
        let replacements = changed.map(|(context, staged)| {
            let after = Some(staged.after).filter(|doc| !doc.is_empty());
            Replacement { context, before: staged.before, after: after.map(Arc::unwrap_or_clone) }
        });
        (replacements.collect(), self.level)
    }

    fn load(&mut self, context: &Context) -> Result<&mut Staged, StoreError> {
        if !self.contexts.contains_key(context) {
            let (before, quarantined) = match self.documents.get(context)? {
                Content::Doc(doc) => (Some(doc), None),
                Content::Quarantined(reason) => (None, Some(reason)),
                Content::Absent | Content::Unread => (None, None),
            };
            let after = before.clone().unwrap_or_else(|| Arc::new(Doc::empty(context.clone())));
            self.contexts.insert(context.clone(), Staged { before, after, quarantined, changed: false });
        }
        let missing = || StoreError::Unavailable("internal error: a staged context is missing".into());
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

    /// The staged row; `None` if it has expired.
    fn row(&self, row_id: RowId<'_>, now: Timestamp) -> Option<&Row> {
        self.after.get(row_id.table, row_id.id).filter(|row| !row.is_expired(now))
    }

    /// The row before a write. The rows of a quarantined file are unknown.
    fn before(&self, row_id: RowId<'_>, now: Timestamp) -> PriorRow {
        match self.quarantined.clone() {
            Some(reason) => {
                let error = StoreError::Damaged { table: row_id.table, id: row_id.id.clone(), reason };
                PriorRow::Damaged { version: 0, error }
            }
            None => PriorRow::from_found(self.row(row_id, now).map(|row| (row.version, row.created))),
        }
    }

    /// Applies one change; returns the row's version afterwards and whether watchers get an event.
    fn apply(&mut self, row_id: RowId<'_>, change: &Change, terms: &Terms, context: WriteContext) -> (u64, bool) {
        let Applied { version, changed, action } = change.apply(&self.before(row_id, context.now), context);
        match (action, change) {
            (
                Action::Put { row_version: version, created },
                Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
            ) => {
                let (schema, value, expires) = (*schema, value.clone(), *expires);
                self.quarantined = None;
                let row = Row { version, schema, value, expires, created, updated: context.now };
                self.doc_mut().put(row_id.table, row_id.id.clone(), row, terms.clone());
            }
            (Action::Touch, Change::Touch { expires }) => {
                let stored = self.after.rows(row_id.table).get(row_id.id).cloned();
                if let Some(stored) = stored.filter(|stored| stored.row.expires != *expires) {
                    let row = Row { expires: *expires, ..stored.row.clone() };
                    self.doc_mut().put(row_id.table, row_id.id.clone(), row, stored.terms.clone());
                }
            }
            (Action::Remove, _) if self.after.get(row_id.table, row_id.id).is_some() => {
                self.doc_mut().remove(row_id.table, row_id.id);
            }
            (Action::Keep | Action::Put { .. } | Action::Touch | Action::Remove, _) => {}
        }
        (version, changed)
    }
}
