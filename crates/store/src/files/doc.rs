//! In-memory document of one file: the rows of a context.
//!
//! In: rows to put or remove. Out: its rows, and the head with what a scan or sweep must know without reading the rows. A row
//! caches its encoded text, so that rewriting a file concatenates texts instead of encoding all rows again.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Batch, Row, Table, Terms},
    clock::Timestamp,
};

use super::{context::Context, text_format};

/// The tables that the file store supports, in file order.
pub(super) const TABLES: [Table; 3] = [Table::State, Table::Versions, Table::History];
/// Later than every expiry.
pub(super) const NO_EXPIRY: Timestamp = Timestamp::from_millis(i64::MAX);
/// Approximate memory of a row besides its value and text.
const ROW_OVERHEAD_BYTES: usize = 200;

/// The position of a table in a file; `None` if it is not supported.
pub(super) fn table_index(table: Table) -> Option<usize> {
    TABLES.iter().position(|supported| *supported == table)
}

/// The contents of one file.
#[derive(Debug, Clone)]
pub(super) struct Doc {
    pub(super) context: Context,
    /// Incremented with every write to the store: of two files for one context, the one with the higher number is current.
    pub(super) write_seq: u64,
    rows: [BTreeMap<SmolStr, Arc<StoredRow>>; 3],
    bytes: usize,
}

/// A row, its index terms and its encoded text.
#[derive(Debug)]
pub(super) struct StoredRow {
    pub(super) row: Row,
    pub(super) terms: Terms,
    pub(super) text: Box<str>,
}

/// Summary of a file's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocHead {
    /// The ids of its states.
    pub(super) states: Box<[SmolStr]>,
    /// The first and the last id of each of the other tables.
    pub(super) spans: [Option<Box<(SmolStr, SmolStr)>>; 2],
    /// No row expires before this.
    pub(super) earliest_expiry: Timestamp,
}

impl DocHead {
    /// The first and the last id of a table.
    pub(super) fn span(&self, table: Table) -> Option<(&SmolStr, &SmolStr)> {
        match table_index(table)? {
            0 => Some((self.states.first()?, self.states.last()?)),
            at => self.spans[at - 1].as_deref().map(|(first, last)| (first, last)),
        }
    }
}

impl Doc {
    pub(super) fn empty(context: Context) -> Self {
        Self { context, write_seq: 0, rows: Default::default(), bytes: ROW_OVERHEAD_BYTES }
    }

    /// A document without rows needs no file.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.iter().all(BTreeMap::is_empty)
    }

    /// Approximate memory use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows of a table, ordered by id.
    pub(super) fn rows(&self, table: Table) -> &BTreeMap<SmolStr, Arc<StoredRow>> {
        const NONE: &BTreeMap<SmolStr, Arc<StoredRow>> = &BTreeMap::new();
        table_index(table).map_or(NONE, |at| &self.rows[at])
    }

    /// A row, expired or not.
    pub(super) fn get(&self, table: Table, id: &str) -> Option<&Row> {
        self.rows(table).get(id).map(|stored| &stored.row)
    }

    /// Whether it holds a row that the batch does not write.
    pub(super) fn has_other_rows(&self, batch: &Batch, now: Timestamp) -> bool {
        let mut rows = TABLES.into_iter().flat_map(|table| self.rows(table).iter().map(move |row| (table, row)));
        rows.any(|(table, (id, stored))| !stored.row.is_expired(now) && !batch.writes_row(table, id))
    }

    pub(super) fn put(&mut self, table: Table, id: SmolStr, row: Row, terms: Terms) {
        let Some(at) = table_index(table) else { return };
        let text = text_format::encode_row(table, &id, &row, &terms).into_boxed_str();
        self.bytes += ROW_OVERHEAD_BYTES + row.value.len() + text.len();
        if let Some(old) = self.rows[at].insert(id, Arc::new(StoredRow { row, terms, text })) {
            self.bytes -= old.bytes();
        }
    }

    pub(super) fn remove(&mut self, table: Table, id: &str) {
        let removed = table_index(table).and_then(|at| self.rows[at].remove(id));
        self.bytes -= removed.map_or(0, |stored| stored.bytes());
    }

    /// Removes at most `limit` expired rows; returns how many.
    pub(super) fn sweep(&mut self, limit: usize, now: Timestamp) -> usize {
        let mut swept = 0;
        for table in TABLES {
            let expired = self.rows(table).iter().filter(|(_, stored)| stored.row.is_expired(now));
            let ids: Vec<SmolStr> = expired.take(limit - swept).map(|(id, _)| id.clone()).collect();
            ids.iter().for_each(|id| self.remove(table, id));
            swept += ids.len();
        }
        swept
    }

    pub(super) fn head(&self) -> DocHead {
        let span = |at: usize| {
            let (first, last) = (self.rows[at].first_key_value()?.0, self.rows[at].last_key_value()?.0);
            Some(Box::new((first.clone(), last.clone())))
        };
        let expirations = self.rows.iter().flat_map(BTreeMap::values).filter_map(|stored| stored.row.expires);
        let states = self.rows[0].keys().cloned().collect();
        DocHead { states, spans: [span(1), span(2)], earliest_expiry: expirations.min().unwrap_or(NO_EXPIRY) }
    }
}

impl StoredRow {
    fn bytes(&self) -> usize {
        ROW_OVERHEAD_BYTES + self.row.value.len() + self.text.len()
    }
}
