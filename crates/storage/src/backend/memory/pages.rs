//! Scans of the store in memory: which rows a page may hold, and the first of them out of many partitions.
//!
//! In: a scan, and drawers. Out: a page. Of a scan over many partitions only the rows that may still be on the page are
//! kept, however many are looked at; the others are not even copied.

use std::{cmp::Ordering, collections::BinaryHeap};

use smol_str::SmolStr;

use super::{
    packed_row::PackedRow,
    partition_key::{PartitionKey, parse_partition},
    partition_rows::PartitionRows,
};
use crate::backend::{Cursor, Page, Partition, Row, RowKey, Scan, Table};
use toolhub_types::timestamp::Timestamp;

/// The part of the order that a scan is about: rows go by table, id and the text of their partition.
pub(super) struct ScanWindow<'a> {
    table: u8,
    prefix: &'a [u8],
    descending: bool,
    /// The id and the address of the last row of the page before.
    after: Option<(&'a [u8], PartitionKey)>,
}

impl<'a> ScanWindow<'a> {
    pub(super) fn new(scan: &'a Scan) -> Self {
        let last = scan.after.as_ref();
        let after = last.map(|Cursor(key)| (key.id.as_bytes(), PartitionKey::new(&key.partition)));
        Self { table: scan.table as u8, prefix: scan.prefix.as_bytes(), descending: scan.descending, after }
    }

    /// Whether a row lies ahead of everything that is asked for.
    pub(super) fn is_before(&self, slip: &PackedRow, address: &[u8]) -> bool {
        let name = slip.sort_key();
        name < (self.table, self.prefix)
            || (!self.descending && self.cmp_cursor(name, address).is_some_and(Ordering::is_le))
    }

    /// Whether a row is asked for, or lies ahead of what is.
    pub(super) fn is_not_after(&self, slip: &PackedRow, address: &[u8]) -> bool {
        let name = slip.sort_key();
        let within = name < (self.table, self.prefix) || (name.0 == self.table && name.1.starts_with(self.prefix));
        within && (!self.descending || self.cmp_cursor(name, address).is_none_or(Ordering::is_lt))
    }

    fn cmp_cursor(&self, (table, id): (u8, &[u8]), address: &[u8]) -> Option<Ordering> {
        let (last, at) = self.after.as_ref()?;
        Some((table, id, address).cmp(&(self.table, last, at.as_bytes())))
    }
}

/// The rows of one partition: those of a page, and one more if there is another page.
pub(super) fn page_of_partition(
    drawer: &PartitionRows,
    partition: &Partition,
    scan: &Scan,
    window: &ScanWindow<'_>,
    now: Timestamp,
) -> Vec<(RowKey, Row)> {
    let read = |slip: &PackedRow| {
        let row = slip.row_at(now)?;
        Some((RowKey { partition: partition.clone(), table: scan.table, id: slip.id() }, row))
    };
    let rows = drawer.window(window).filter_map(read);
    let most = scan.limit.saturating_add(1);
    if scan.descending { rows.rev().take(most).collect() } else { rows.take(most).collect() }
}

/// Cuts the rows to a page. There is one more of them if there is another page.
pub(super) fn into_page(mut rows: Vec<(RowKey, Row)>, limit: usize) -> Page {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(key, _)| Cursor(key.clone()));
    Page { rows, next }
}

/// The first rows of all that were offered, at most so many.
pub(super) struct TopRows {
    /// The last of them on top.
    rows: BinaryHeap<Candidate>,
    limit: usize,
    descending: bool,
}

impl TopRows {
    pub(super) fn new(scan: &Scan) -> Self {
        Self { rows: BinaryHeap::new(), limit: scan.limit.saturating_add(1), descending: scan.descending }
    }

    /// Takes what is among the first of a drawer's rows.
    pub(super) fn offer(&mut self, drawer: &PartitionRows, window: &ScanWindow<'_>, now: Timestamp) {
        let (address, rows) = (drawer.key(), drawer.window(window));
        if self.descending { self.take(address, rows.rev(), now) } else { self.take(address, rows, now) }
    }

    fn take<'a>(&mut self, address: &[u8], slips: impl Iterator<Item = &'a PackedRow>, now: Timestamp) {
        for slip in slips.filter(|slip| !slip.is_expired(now)) {
            if self.rows.len() >= self.limit {
                let is_sooner = |last: &Candidate| last.cmp_row(slip.sort_key().1, address).is_gt();
                // What follows in this drawer comes later still.
                if !self.rows.peek().is_some_and(is_sooner) {
                    return;
                }
                self.rows.pop();
            }
            let (address, newest) = (address.into(), self.descending);
            self.rows.push(Candidate { id: slip.id(), address, row: slip.row(), descending: newest });
        }
    }

    pub(super) fn into_rows(self, table: Table) -> Vec<(RowKey, Row)> {
        let key =
            |found: &Candidate| RowKey { partition: parse_partition(&found.address), table, id: found.id.clone() };
        self.rows.into_sorted_vec().into_iter().map(|found| (key(&found), found.row)).collect()
    }
}

/// A row that may be on the page, in the order of the page.
struct Candidate {
    id: SmolStr,
    address: Box<[u8]>,
    row: Row,
    descending: bool,
}

impl Candidate {
    fn cmp_row(&self, id: &[u8], address: &[u8]) -> Ordering {
        let order = (self.id.as_bytes(), &*self.address).cmp(&(id, address));
        if self.descending { order.reverse() } else { order }
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_row(other.id.as_bytes(), &other.address)
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
