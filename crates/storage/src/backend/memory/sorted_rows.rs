//! The rows of one partition, in the order of their tables and ids.
//!
//! In: slips. Out: one of them, or a range of them in either direction. They lie in short sorted lists, so that a thread
//! with two rows takes the room of two, and one with a hundred thousand is still found and added to quickly.

use super::packed_row::{PackedRow, RowId};
use crate::backend::Row;

/// How many rows a list takes. Adding a row moves at most so many.
const MAX_CHUNK_LEN: usize = 64;

/// Sorted rows: no list is empty or out of order.
#[derive(Default)]
pub(super) struct SortedRows(Vec<Vec<PackedRow>>);

/// A list and a place in it; past the end it is the list behind the last.
pub(super) type RowIndex = (usize, usize);

impl SortedRows {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: RowId<'_>) -> Option<&PackedRow> {
        let (list, at) = self.find(name).ok()?;
        Some(&self.0[list][at])
    }

    /// Writes what `make` makes of the row that is there. Answers whether there was none.
    pub(super) fn put(&mut self, name: RowId<'_>, make: impl FnOnce(Option<&PackedRow>) -> Row) -> bool {
        match self.find(name) {
            Ok((list, at)) => {
                let slip = &mut self.0[list][at];
                slip.rewrite(make(Some(slip)));
                false
            }
            Err(spot) => {
                self.insert(spot, PackedRow::new(b"", name, make(None)));
                true
            }
        }
    }

    /// Adds the row where it belongs.
    pub(super) fn add(&mut self, slip: PackedRow) {
        let spot = self.lower_bound(|other| other.sort_key() < slip.sort_key());
        self.insert(spot, slip);
    }

    fn insert(&mut self, (mut list, mut at): RowIndex, slip: PackedRow) {
        if list == self.0.len() && list > 0 {
            // Behind everything: the last list takes it, if it has room.
            list -= 1;
            at = self.0[list].len();
        }
        match self.0.get_mut(list) {
            Some(rows) if rows.len() < MAX_CHUNK_LEN => rows.insert(at, slip),
            // Parted where the row belongs: ids mostly grow, so the lists that are left behind are full.
            Some(rows) if at < rows.len() => {
                let behind = rows.split_off(at);
                rows.push(slip);
                rows.shrink_to_fit();
                self.0.insert(list + 1, behind);
            }
            Some(_) => self.0.insert(list + 1, vec![slip]),
            None => self.0.push(vec![slip]),
        }
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, name: RowId<'_>) -> Option<PackedRow> {
        let (list, at) = self.find(name).ok()?;
        let slip = self.0[list].remove(at);
        self.compact(list);
        Some(slip)
    }

    /// Keeps the rows that are wanted.
    pub(super) fn retain(&mut self, mut wanted: impl FnMut(&PackedRow) -> bool) {
        for list in (0..self.0.len()).rev() {
            self.0[list].retain(&mut wanted);
            self.compact(list);
        }
    }

    /// The first place whose row is not `before` something. All rows that are, lie ahead of all that are not.
    pub(super) fn lower_bound(&self, before: impl Fn(&PackedRow) -> bool) -> RowIndex {
        let list = self.0.partition_point(|rows| rows.last().is_some_and(&before));
        (list, self.0.get(list).map_or(0, |rows| rows.partition_point(before)))
    }

    /// The rows between two places; none where the second lies ahead of the first.
    pub(super) fn range(&self, from: RowIndex, to: RowIndex) -> impl DoubleEndedIterator<Item = &PackedRow> {
        (from.0..=to.0).flat_map(move |list| {
            let rows = self.0.get(list).map_or(&[][..], Vec::as_slice);
            let begin = if list == from.0 { from.1 } else { 0 };
            let end = if list == to.0 { to.1 } else { rows.len() };
            rows.get(begin..end).unwrap_or_default()
        })
    }

    /// Where the row is, or where it belongs.
    fn find(&self, name: RowId<'_>) -> Result<RowIndex, RowIndex> {
        let (list, at) = self.lower_bound(|slip| slip.cmp_id(name).is_lt());
        let slip = self.0.get(list).and_then(|rows| rows.get(at));
        if slip.is_some_and(|slip| slip.cmp_id(name).is_eq()) { Ok((list, at)) } else { Err((list, at)) }
    }

    /// Gives back the room of rows that went.
    fn compact(&mut self, list: usize) {
        let next = self.0.get(list + 1).map_or(MAX_CHUNK_LEN, Vec::len);
        let rows = &mut self.0[list];
        if rows.is_empty() {
            self.0.remove(list);
        } else if rows.len() + next <= MAX_CHUNK_LEN / 2 {
            let mut next = self.0.remove(list + 1);
            self.0[list].append(&mut next);
        } else if rows.capacity() > 4 * rows.len() {
            rows.shrink_to_fit();
        }
        if self.0.capacity() > 4 * self.0.len() {
            self.0.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{RowVersion, Table};
    use std::collections::BTreeSet;
    use toolhub_types::timestamp::Timestamp;

    fn put(rows: &mut SortedRows, number: u32) -> bool {
        let (now, id) = (Timestamp::from_millis(0), format!("{number:05}"));
        rows.put(RowId { table: Table::History, id: &id }, |before| {
            let seen = RowVersion { number: before.map_or(1, |slip| slip.meta().version.number + 1), stamp: 1 };
            Row { version: seen, schema: 1, value: [].into(), expires: None, created: now, updated: now }
        })
    }

    fn ids(rows: &SortedRows) -> Vec<u32> {
        let all = rows.range((0, 0), (rows.0.len(), 0));
        all.map(|slip| slip.id().parse().unwrap()).collect()
    }

    #[test]
    fn rows_stay_in_order_however_they_come_and_go() {
        for seed in 0..20 {
            let (mut random, mut rows, mut model) =
                (fastrand::Rng::with_seed(seed), SortedRows::default(), BTreeSet::new());
            for step in 0..2_000 {
                // First more come than go, then the other way round.
                let (number, comes) = (random.u32(0..1_000), random.u32(0..2_000) > step);
                let text = format!("{number:05}");
                let name = RowId { table: Table::History, id: &text };
                assert_eq!(rows.get(name).is_some(), model.contains(&number));
                if comes {
                    assert_eq!(put(&mut rows, number), model.insert(number));
                } else {
                    assert_eq!(rows.remove(name).is_some(), model.remove(&number));
                }
                assert!(rows.0.iter().all(|list| (1..=MAX_CHUNK_LEN).contains(&list.len())));
            }
            assert_eq!(ids(&rows), Vec::from_iter(model.iter().copied()));
            rows.retain(|slip| slip.id().ends_with('7'));
            model.retain(|number| number % 10 == 7);
            assert_eq!(ids(&rows), Vec::from_iter(model));
        }
    }

    #[test]
    fn rows_that_come_in_order_leave_no_room_unused() {
        let mut rows = SortedRows::default();
        // Something behind them all, as snapshots lie behind the history.
        put(&mut rows, 99_999);
        assert!((0..1_000).all(|number| put(&mut rows, number)));
        assert!(rows.0.len() <= 1_001 / MAX_CHUNK_LEN + 2, "{} lists", rows.0.len());
    }
}
