//! The rows of one partition, sorted by table and id.
//!
//! In: packed rows. Out: one row, or a range in either direction. The rows are stored in short sorted chunks, so that a
//! partition with two rows takes the memory of two, and lookups and inserts stay fast with a hundred thousand.

use super::packed_row::{PackedRow, RowId};
use crate::backend::Row;

/// Maximum number of rows per chunk. An insert moves at most this many.
const MAX_CHUNK_LEN: usize = 64;

/// Chunks of sorted rows. Invariant: no chunk is empty or out of order.
#[derive(Default)]
pub(super) struct SortedRows(Vec<Vec<PackedRow>>);

/// The index of a chunk and an index within it; the end is the index after the last chunk.
pub(super) type RowIndex = (usize, usize);

impl SortedRows {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PackedRow> {
        self.0.iter().flatten()
    }

    pub(super) fn get(&self, row_id: RowId<'_>) -> Option<&PackedRow> {
        let (chunk, at) = self.find(row_id).ok()?;
        Some(&self.0[chunk][at])
    }

    /// Stores the row that `make` builds from the existing one. Returns whether the row is new.
    pub(super) fn put(&mut self, row_id: RowId<'_>, terms: &str, make: impl FnOnce(Option<&PackedRow>) -> Row) -> bool {
        match self.find(row_id) {
            Ok((chunk, at)) => {
                let packed = &mut self.0[chunk][at];
                packed.rewrite(terms, make(Some(packed)));
                false
            }
            Err(position) => {
                self.insert(position, PackedRow::new(b"", row_id, terms, make(None)));
                true
            }
        }
    }

    /// Inserts a row at its sorted position.
    pub(super) fn add(&mut self, packed: PackedRow) {
        let position = self.lower_bound(|other| other.sort_key() < packed.sort_key());
        self.insert(position, packed);
    }

    fn insert(&mut self, (mut chunk, mut at): RowIndex, packed: PackedRow) {
        if chunk == self.0.len() && chunk > 0 {
            // After all rows: append to the last chunk if it has room.
            chunk -= 1;
            at = self.0[chunk].len();
        }
        match self.0.get_mut(chunk) {
            Some(rows) if rows.len() < MAX_CHUNK_LEN => rows.insert(at, packed),
            // Split at the insert position, not in the middle: ids mostly grow, so the chunks before it stay full.
            Some(rows) if at < rows.len() => {
                let tail = rows.split_off(at);
                rows.push(packed);
                rows.shrink_to_fit();
                self.0.insert(chunk + 1, tail);
            }
            Some(_) => self.0.insert(chunk + 1, vec![packed]),
            None => self.0.push(vec![packed]),
        }
    }

    /// Removes a row.
    pub(super) fn remove(&mut self, row_id: RowId<'_>) -> Option<PackedRow> {
        let (chunk, at) = self.find(row_id).ok()?;
        let packed = self.0[chunk].remove(at);
        self.compact(chunk);
        Some(packed)
    }

    /// Keeps the rows for which `keep` returns true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&PackedRow) -> bool) {
        for chunk in (0..self.0.len()).rev() {
            self.0[chunk].retain(&mut keep);
            self.compact(chunk);
        }
    }

    /// The first index whose row is not `before`. The rows must be partitioned by `before`.
    pub(super) fn lower_bound(&self, before: impl Fn(&PackedRow) -> bool) -> RowIndex {
        let chunk = self.0.partition_point(|rows| rows.last().is_some_and(&before));
        (chunk, self.0.get(chunk).map_or(0, |rows| rows.partition_point(before)))
    }

    /// The rows between two indices; none if `to` is before `from`.
    pub(super) fn range(&self, from: RowIndex, to: RowIndex) -> impl DoubleEndedIterator<Item = &PackedRow> {
        (from.0..=to.0).flat_map(move |chunk| {
            let rows = self.0.get(chunk).map_or(&[][..], Vec::as_slice);
            let begin = if chunk == from.0 { from.1 } else { 0 };
            let end = if chunk == to.0 { to.1 } else { rows.len() };
            rows.get(begin..end).unwrap_or_default()
        })
    }

    /// The index of the row, or the index where to insert it.
    fn find(&self, row_id: RowId<'_>) -> Result<RowIndex, RowIndex> {
        let (chunk, at) = self.lower_bound(|packed| packed.cmp_id(row_id).is_lt());
        let packed = self.0.get(chunk).and_then(|rows| rows.get(at));
        if packed.is_some_and(|packed| packed.cmp_id(row_id).is_eq()) { Ok((chunk, at)) } else { Err((chunk, at)) }
    }

    /// Merges or shrinks a chunk after removals.
    fn compact(&mut self, chunk: usize) {
        let next = self.0.get(chunk + 1).map_or(MAX_CHUNK_LEN, Vec::len);
        let rows = &mut self.0[chunk];
        if rows.is_empty() {
            self.0.remove(chunk);
        } else if rows.len() + next <= MAX_CHUNK_LEN / 2 {
            let mut next = self.0.remove(chunk + 1);
            self.0[chunk].append(&mut next);
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
        rows.put(RowId { table: Table::History, id: &id }, "", |before| {
            let version = RowVersion { number: before.map_or(1, |packed| packed.meta().version.number + 1), stamp: 1 };
            Row { version, schema: 1, value: [].into(), expires: None, created: now, updated: now }
        })
    }

    fn ids(rows: &SortedRows) -> Vec<u32> {
        let all = rows.range((0, 0), (rows.0.len(), 0));
        all.map(|packed| packed.id().parse().unwrap()).collect()
    }

    #[test]
    fn rows_stay_in_order_however_they_come_and_go() {
        for seed in 0..20 {
            let (mut random, mut rows, mut model) =
                (fastrand::Rng::with_seed(seed), SortedRows::default(), BTreeSet::new());
            for step in 0..2_000 {
                // Inserts prevail at first, removals later.
                let (number, insert) = (random.u32(0..1_000), random.u32(0..2_000) > step);
                let text = format!("{number:05}");
                let row_id = RowId { table: Table::History, id: &text };
                assert_eq!(rows.get(row_id).is_some(), model.contains(&number));
                if insert {
                    assert_eq!(put(&mut rows, number), model.insert(number));
                } else {
                    assert_eq!(rows.remove(row_id).is_some(), model.remove(&number));
                }
                assert!(rows.0.iter().all(|chunk| (1..=MAX_CHUNK_LEN).contains(&chunk.len())));
            }
            assert_eq!(ids(&rows), Vec::from_iter(model.iter().copied()));
            rows.retain(|packed| packed.id().ends_with('7'));
            model.retain(|number| number % 10 == 7);
            assert_eq!(ids(&rows), Vec::from_iter(model));
        }
    }

    #[test]
    fn rows_that_come_in_order_leave_no_room_unused() {
        let mut rows = SortedRows::default();
        // A row that sorts after all others, as snapshots sort after the history.
        put(&mut rows, 99_999);
        assert!((0..1_000).all(|number| put(&mut rows, number)));
        assert!(rows.0.len() <= 1_001 / MAX_CHUNK_LEN + 2, "{} chunks", rows.0.len());
    }
}
