//! Scans of the store in memory: which rows a page may hold, and the first of them out of many partitions.
//!
//! In: a scan, and drawers. Out: a page. Of a scan over many partitions only the rows that may still be on the page are
//! kept, however many are looked at; the others are not even copied.

use std::{cmp::Ordering, collections::BinaryHeap};

use smol_str::SmolStr;

use super::{
    address::{Address, partition},
    drawer::Drawer,
    slip::Slip,
};
use crate::backend::{Cursor, Key, Page, Partition, Row, Scan, Table};
use toolhub_types::timestamp::Timestamp;

/// The part of the order that a scan is about: rows go by table, id and the text of their partition.
pub(super) struct Window<'a> {
    table: u8,
    prefix: &'a [u8],
    newest: bool,
    /// The id and the address of the last row of the page before.
    after: Option<(&'a [u8], Address)>,
}

impl<'a> Window<'a> {
    pub(super) fn of(scan: &'a Scan) -> Self {
        let last = scan.after.as_ref();
        let after = last.map(|Cursor(key)| (key.id.as_bytes(), Address::of(&key.partition)));
        Self { table: scan.table as u8, prefix: scan.prefix.as_bytes(), newest: scan.newest, after }
    }

    /// Whether a row lies ahead of everything that is asked for.
    pub(super) fn is_ahead(&self, slip: &Slip, address: &[u8]) -> bool {
        let name = slip.name();
        name < (self.table, self.prefix)
            || (!self.newest && self.beside_cursor(name, address).is_some_and(Ordering::is_le))
    }

    /// Whether a row is asked for, or lies ahead of what is.
    pub(super) fn is_not_past(&self, slip: &Slip, address: &[u8]) -> bool {
        let name = slip.name();
        let within = name < (self.table, self.prefix) || (name.0 == self.table && name.1.starts_with(self.prefix));
        within && (!self.newest || self.beside_cursor(name, address).is_none_or(Ordering::is_lt))
    }

    fn beside_cursor(&self, (table, id): (u8, &[u8]), address: &[u8]) -> Option<Ordering> {
        let (last, at) = self.after.as_ref()?;
        Some((table, id, address).cmp(&(self.table, last, at.as_bytes())))
    }
}

/// The rows of one partition: those of a page, and one more if there is another page.
pub(super) fn page_of(
    drawer: &Drawer,
    partition: &Partition,
    scan: &Scan,
    window: &Window<'_>,
    now: Timestamp,
) -> Vec<(Key, Row)> {
    let read = |slip: &Slip| {
        let row = slip.row_at(now)?;
        Some((Key { partition: partition.clone(), table: scan.table, id: slip.id() }, row))
    };
    let rows = drawer.window(window).filter_map(read);
    let most = scan.limit.saturating_add(1);
    if scan.newest { rows.rev().take(most).collect() } else { rows.take(most).collect() }
}

/// Cuts the rows to a page. There is one more of them if there is another page.
pub(super) fn cut(mut rows: Vec<(Key, Row)>, limit: usize) -> Page {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(key, _)| Cursor(key.clone()));
    Page { rows, next }
}

/// The first rows of all that were offered, at most so many.
pub(super) struct First {
    /// The last of them on top.
    rows: BinaryHeap<Found>,
    most: usize,
    newest: bool,
}

impl First {
    pub(super) fn of(scan: &Scan) -> Self {
        Self { rows: BinaryHeap::new(), most: scan.limit.saturating_add(1), newest: scan.newest }
    }

    /// Takes what is among the first of a drawer's rows.
    pub(super) fn offer(&mut self, drawer: &Drawer, window: &Window<'_>, now: Timestamp) {
        let (address, rows) = (drawer.address(), drawer.window(window));
        if self.newest { self.take(address, rows.rev(), now) } else { self.take(address, rows, now) }
    }

    fn take<'a>(&mut self, address: &[u8], slips: impl Iterator<Item = &'a Slip>, now: Timestamp) {
        for slip in slips.filter(|slip| !slip.is_expired(now)) {
            if self.rows.len() >= self.most {
                let is_sooner = |last: &Found| last.beside(slip.name().1, address).is_gt();
                // What follows in this drawer comes later still.
                if !self.rows.peek().is_some_and(is_sooner) {
                    return;
                }
                self.rows.pop();
            }
            let (address, newest) = (address.into(), self.newest);
            self.rows.push(Found { id: slip.id(), address, row: slip.row(), newest });
        }
    }

    pub(super) fn into_rows(self, table: Table) -> Vec<(Key, Row)> {
        let key = |found: &Found| Key { partition: partition(&found.address), table, id: found.id.clone() };
        self.rows.into_sorted_vec().into_iter().map(|found| (key(&found), found.row)).collect()
    }
}

/// A row that may be on the page, in the order of the page.
struct Found {
    id: SmolStr,
    address: Box<[u8]>,
    row: Row,
    newest: bool,
}

impl Found {
    fn beside(&self, id: &[u8], address: &[u8]) -> Ordering {
        let order = (self.id.as_bytes(), &*self.address).cmp(&(id, address));
        if self.newest { order.reverse() } else { order }
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.beside(other.id.as_bytes(), &other.address)
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Found {}
