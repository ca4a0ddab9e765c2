//! One batch after the other, in memory: all of it, or a refusal that leaves no trace.
//!
//! In: batches on one partition. Out: versions, what watchers are to be told, and the documents that must be written for
//! all of it to become true.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Action, Applied, Batch, Before, Change, Durability, Key, Row, StoreError, Write, Writing},
    clock::Timestamp,
};

use super::{
    super::{
        doc::Doc,
        name::Context,
        shelf::{Content, Shelf},
    },
    put::Replacement,
};

/// What a batch did.
pub(super) struct Made {
    pub(super) versions: Vec<u64>,
    pub(super) news: Vec<(Key, Option<u64>)>,
}

/// What is to become of a partition.
pub(super) struct Stage<'a> {
    shelf: &'a Shelf,
    home: Arc<str>,
    /// The lowest version a row is written with.
    floor: u64,
    contexts: BTreeMap<Context, Staged>,
    level: Durability,
}

struct Staged {
    before: Option<Arc<Doc>>,
    now: Arc<Doc>,
    /// Why the file was set aside, if it was and nobody has replaced it.
    aside: Option<String>,
    changed: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(shelf: &'a Shelf, home: Arc<str>, floor: u64) -> Self {
        Self { shelf, home, floor, contexts: BTreeMap::new(), level: Durability::KillSafe }
    }

    /// Makes a batch, on top of those before it.
    pub(super) fn make(&mut self, batch: &Batch, now: Timestamp) -> Result<Made, StoreError> {
        let fence = Context::fence(&self.home);
        if let Some(given) = batch.fence {
            let staged = self.load(&fence)?;
            if staged.aside.is_some() {
                let why = format!("the fence of {} cannot be read any more, so nobody knows who may write", self.home);
                return Err(StoreError::Unavailable(why));
            }
            let seen = staged.now.fence;
            if given < seen {
                return Err(StoreError::Fenced { given, seen });
            }
        }
        // All are looked at before the first is made, so a refusal leaves nothing to undo.
        for write in &batch.writes {
            let staged = self.load(&Context::of(&self.home, &write.id))?;
            write.check(&staged.before(Name { table: write.table, id: &write.id }, now))?;
        }
        if let Some(given) = batch.fence {
            let staged = self.load(&fence)?;
            if given > staged.now.fence {
                staged.change().fence = given;
            }
        }
        let writing = Writing { stamp: batch.stamp, floor: self.floor, now };
        let mut made = Made { versions: Vec::with_capacity(batch.writes.len()), news: Vec::new() };
        for Write { table, id, change, .. } in &batch.writes {
            let staged = self.load(&Context::of(&self.home, id))?;
            let (version, changed) = staged.make(Name { table: *table, id }, change, writing);
            made.versions.push(version);
            if changed {
                let key = Key { partition: batch.partition.clone(), table: *table, id: id.clone() };
                made.news.push((key, (version > 0).then_some(version)));
            }
        }
        self.level = self.level.max(batch.durability());
        Ok(made)
    }

    /// The files that must be written, and how much that must survive.
    pub(super) fn replacements(self) -> (Vec<Replacement>, Durability) {
        let changed = self.contexts.into_iter().filter(|(_, staged)| staged.changed);
        let replacements = changed.map(|(context, staged)| {
            let now = Some(staged.now).filter(|doc| !doc.is_empty());
            Replacement { context, before: staged.before, now: now.map(Arc::unwrap_or_clone) }
        });
        (replacements.collect(), self.level)
    }

    fn load(&mut self, context: &Context) -> Result<&mut Staged, StoreError> {
        if !self.contexts.contains_key(context) {
            let (before, aside) = match self.shelf.get(context)? {
                Content::Doc(doc) => (Some(doc), None),
                Content::Aside(reason) => (None, Some(reason)),
                Content::Nothing | Content::Unread => (None, None),
            };
            let now = before.clone().unwrap_or_else(|| Arc::new(Doc::empty(context.clone())));
            self.contexts.insert(context.clone(), Staged { before, now, aside, changed: false });
        }
        let missing = || StoreError::Unavailable("a context was lost on the way".into());
        self.contexts.get_mut(context).ok_or_else(missing)
    }
}

#[derive(Clone, Copy)]
struct Name<'a> {
    table: toolhub_storage::backend::Table,
    id: &'a SmolStr,
}

impl Staged {
    fn change(&mut self) -> &mut Doc {
        self.changed = true;
        Arc::make_mut(&mut self.now)
    }

    /// The row as it is now; `None` where its time has passed.
    fn row(&self, name: Name<'_>, now: Timestamp) -> Option<&Row> {
        self.now.get(name.table, name.id).filter(|row| !row.is_expired(now))
    }

    /// The row before a write. Nobody knows what was in a file that was set aside.
    fn before(&self, name: Name<'_>, now: Timestamp) -> Before {
        match self.aside.clone() {
            Some(reason) => {
                let error = StoreError::Damaged { table: name.table, id: name.id.clone(), reason };
                Before::Damaged { version: 0, error }
            }
            None => Before::of(self.row(name, now).map(|row| (row.seen, row.created))),
        }
    }

    /// Makes one change; answers the row's version afterwards, and whether there is anything to tell.
    fn make(&mut self, name: Name<'_>, change: &Change, writing: Writing) -> (u64, bool) {
        let Applied { version, changed, action } = change.apply(&self.before(name, writing.now), writing);
        match (action, change) {
            (
                Action::Put { seen, created },
                Change::Put { value, schema, expires } | Change::Restore { value, schema, expires, .. },
            ) => {
                let (schema, value, expires) = (*schema, value.clone(), *expires);
                self.aside = None;
                let row = Row { seen, schema, value, expires, created, updated: writing.now };
                self.change().put(name.table, name.id.clone(), row);
            }
            (Action::Touch, Change::Touch { expires }) => {
                if let Some(row) = self.row(name, writing.now).filter(|row| row.expires != *expires) {
                    let row = Row { expires: *expires, ..row.clone() };
                    self.change().put(name.table, name.id.clone(), row);
                }
            }
            (Action::Remove, _) if self.now.get(name.table, name.id).is_some() => {
                self.change().remove(name.table, name.id);
            }
            (Action::Keep | Action::Put { .. } | Action::Touch | Action::Remove, _) => {}
        }
        (version, changed)
    }
}
