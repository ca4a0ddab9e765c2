//! Scans of the in-memory backend: the window of a scan, and a top-k merge over many partitions.
//!
//! In: a scan and the partitions' rows. Out: a page. A scan over many partitions without an index keeps only the rows that may still
//! be on the page, however many it visits; the others are not copied.

use std::{cmp::Ordering, collections::BinaryHeap, ops::Bound};

use smol_str::SmolStr;

use super::{
    id_index::IndexEntry,
    packed_row::PackedRow,
    partition_key::{PartitionKey, parse_partition},
    partition_rows::PartitionRows,
};
use crate::backend::{Cursor, Partition, Row, RowKey, Scan, Table, Terms};
use toolhub_types::timestamp::Timestamp;

/// The key range of a scan. Rows are ordered by table, id and partition key.
pub(super) struct ScanWindow<'a> {
    table: u8,
    prefix: &'a [u8],
    terms: &'a [SmolStr],
    descending: bool,
    /// The id and the partition key of the last row of the previous page.
    after: Option<IndexEntry>,
}

impl<'a> ScanWindow<'a> {
    pub(super) fn new(scan: &'a Scan) -> Self {
        let last = scan.after.as_ref();
        let after =
            last.map(|Cursor(key)| IndexEntry::new(key.id.as_bytes(), PartitionKey::new(&key.partition).as_bytes()));
        Self {
            table: scan.table as u8,
            prefix: scan.prefix.as_bytes(),
            terms: &scan.terms,
            descending: scan.descending,
            after,
        }
    }

    pub(super) fn is_descending(&self) -> bool {
        self.descending
    }

    /// Moves the beginning of the window after this entry.
    pub(super) fn continue_after(&mut self, last: IndexEntry) {
        self.after = Some(last);
    }

    /// The first and the last entry of an index that can be in the window.
    pub(super) fn entry_bounds(&self) -> (Bound<IndexEntry>, Bound<IndexEntry>) {
        let first = IndexEntry::new(self.prefix, b"");
        // Above every UTF-8 text that begins with the prefix.
        let end = IndexEntry::new(&[self.prefix, &[0xff]].concat(), b"");
        match self.after.clone() {
            None => (Bound::Included(first), Bound::Excluded(end)),
            Some(after) if self.descending => (Bound::Included(first), Bound::Excluded(end.min(after))),
            Some(after) if after < first => (Bound::Included(first), Bound::Excluded(end)),
            Some(after) => (Bound::Excluded(after), Bound::Excluded(end)),
        }
    }

    /// Whether a row of the key range is found: it has not expired and has the terms.
    pub(super) fn matches(&self, packed: &PackedRow, now: Timestamp) -> bool {
        !packed.is_expired(now) && (self.terms.is_empty() || Terms::text_has_all(packed.terms(), self.terms))
    }

    /// Whether a row sorts before the window.
    pub(super) fn is_before(&self, packed: &PackedRow, partition_key: &[u8]) -> bool {
        let sort_key = packed.sort_key();
        sort_key < (self.table, self.prefix)
            || (!self.descending && self.cmp_cursor(sort_key, partition_key).is_some_and(Ordering::is_le))
    }

    /// Whether a row is in the window or sorts before it.
    pub(super) fn is_not_after(&self, packed: &PackedRow, partition_key: &[u8]) -> bool {
        let sort_key = packed.sort_key();
        let within =
            sort_key < (self.table, self.prefix) || (sort_key.0 == self.table && sort_key.1.starts_with(self.prefix));
        within && (!self.descending || self.cmp_cursor(sort_key, partition_key).is_none_or(Ordering::is_lt))
    }

    fn cmp_cursor(&self, (table, id): (u8, &[u8]), partition_key: &[u8]) -> Option<Ordering> {
        let last = self.after.as_ref()?;
        Some((table, id, partition_key).cmp(&(self.table, last.id(), last.partition_key())))
    }
}

/// The rows of one partition for a page, plus one if there is another page.
pub(super) fn page_of_partition(
    partition_rows: &PartitionRows,
    partition: &Partition,
    scan: &Scan,
    window: &ScanWindow<'_>,
    now: Timestamp,
) -> Vec<(RowKey, Row)> {
    let read = |packed: &PackedRow| {
        (RowKey { partition: partition.clone(), table: scan.table, id: packed.id() }, packed.row())
    };
    let rows = partition_rows.window(window).filter(|packed| window.matches(packed, now)).map(read);
    let limit = scan.limit.saturating_add(1);
    if scan.descending { rows.rev().take(limit).collect() } else { rows.take(limit).collect() }
}

/// The first `limit` rows of all that were offered (top-k heap).
pub(super) struct TopRows {
    /// The last row of the page is on top.
    rows: BinaryHeap<Candidate>,
    limit: usize,
    descending: bool,
}

impl TopRows {
    pub(super) fn new(scan: &Scan) -> Self {
        Self { rows: BinaryHeap::new(), limit: scan.limit.saturating_add(1), descending: scan.descending }
    }

    /// Takes those rows of a partition that are among the first.
    pub(super) fn offer(&mut self, partition_rows: &PartitionRows, window: &ScanWindow<'_>, now: Timestamp) {
        let (partition_key, rows) = (partition_rows.key(), partition_rows.window(window));
        let matches = |packed: &PackedRow| window.matches(packed, now);
        if self.descending {
            self.take(partition_key, rows.rev(), matches);
        } else {
            self.take(partition_key, rows, matches);
        }
    }

    fn take<'a>(
        &mut self,
        partition_key: &[u8],
        packed_rows: impl Iterator<Item = &'a PackedRow>,
        matches: impl Fn(&PackedRow) -> bool,
    ) {
        for packed in packed_rows {
            let is_full = self.rows.len() >= self.limit;
            let sorts_before = |last: &Candidate| last.cmp_row(packed.sort_key().1, partition_key).is_gt();
            // The remaining rows of this partition sort even later.
            if is_full && !self.rows.peek().is_some_and(sorts_before) {
                return;
            }
            if !matches(packed) {
                continue;
            }
            if is_full {
                self.rows.pop();
            }
            let (partition_key, descending) = (partition_key.into(), self.descending);
            self.rows.push(Candidate { id: packed.id(), partition_key, row: packed.row(), descending });
        }
    }

    pub(super) fn into_rows(self, table: Table) -> Vec<(RowKey, Row)> {
        let key = |candidate: &Candidate| RowKey {
            partition: parse_partition(&candidate.partition_key),
            table,
            id: candidate.id.clone(),
        };
        self.rows.into_sorted_vec().into_iter().map(|candidate| (key(&candidate), candidate.row)).collect()
    }
}

/// A row that may be on the page; ordered as on the page.
struct Candidate {
    id: SmolStr,
    partition_key: Box<[u8]>,
    row: Row,
    descending: bool,
}

impl Candidate {
    fn cmp_row(&self, id: &[u8], partition_key: &[u8]) -> Ordering {
        let order = (self.id.as_bytes(), &*self.partition_key).cmp(&(id, partition_key));
        if self.descending { order.reverse() } else { order }
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_row(other.id.as_bytes(), &other.partition_key)
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}
