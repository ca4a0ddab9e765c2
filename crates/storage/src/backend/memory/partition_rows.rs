//! The rows of one partition.
//!
//! In: row ids and rows. Out: packed rows. Most partitions of a large store hold a single row; that row is stored without a
//! container and carries the partition key. Only the sweep looks at expiry here.

use super::{
    packed_row::{PackedRow, RowId},
    pages::ScanWindow,
    sorted_rows::SortedRows,
};
use crate::backend::{Batch, Row};
use toolhub_types::timestamp::Timestamp;

/// Later than every expiry.
pub(super) const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// The contents of a partition.
pub(super) enum PartitionRows {
    /// A single row, which carries the partition key.
    Single(PackedRow),
    Multiple(Box<RowSet>),
}

pub(super) struct RowSet {
    key: Box<[u8]>,
    /// No row expires before this.
    next_expiry: Timestamp,
    rows: SortedRows,
}

impl PartitionRows {
    pub(super) fn empty(partition_key: &[u8]) -> Self {
        Self::Multiple(Box::new(RowSet { key: partition_key.into(), next_expiry: NEVER, rows: SortedRows::default() }))
    }

    pub(super) fn single(partition_key: &[u8], row_id: RowId<'_>, terms: &str, row: Row) -> Self {
        Self::Single(PackedRow::new(partition_key, row_id, terms, row))
    }

    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Single(packed) => packed.partition_key(),
            Self::Multiple(set) => &set.key,
        }
    }

    /// Without rows the partition can be dropped.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Multiple(set) if set.rows.is_empty())
    }

    pub(super) fn get(&self, row_id: RowId<'_>) -> Option<&PackedRow> {
        match self {
            Self::Single(packed) => Some(packed).filter(|packed| packed.cmp_id(row_id).is_eq()),
            Self::Multiple(set) => set.rows.get(row_id),
        }
    }

    /// Whether the partition holds a row that the batch does not write.
    pub(super) fn has_other_rows(&self, batch: &Batch, now: Timestamp) -> bool {
        let is_other = |packed: &PackedRow| !packed.is_expired(now) && !batch.writes_row(packed.table(), &packed.id());
        match self {
            Self::Single(packed) => is_other(packed),
            Self::Multiple(set) => set.rows.iter().any(is_other),
        }
    }

    /// Stores the row that `make` builds from the existing one. Returns whether the row is new.
    pub(super) fn put(&mut self, row_id: RowId<'_>, terms: &str, make: impl FnOnce(Option<&PackedRow>) -> Row) -> bool {
        if let Self::Single(packed) = self
            && packed.cmp_id(row_id).is_eq()
        {
            packed.rewrite(terms, make(Some(packed)));
            return false;
        }
        let set = self.promote();
        let mut expires = None;
        let is_new = set.rows.put(row_id, terms, |before| {
            let row = make(before);
            expires = row.expires;
            row
        });
        set.next_expiry = set.next_expiry.min(expires.unwrap_or(NEVER));
        is_new
    }

    /// Removes a row.
    pub(super) fn remove(&mut self, row_id: RowId<'_>) -> Option<PackedRow> {
        if let Self::Single(packed) = self
            && packed.cmp_id(row_id).is_ne()
        {
            return None;
        }
        self.promote().rows.remove(row_id)
    }

    /// No row expires before this.
    pub(super) fn next_expiry(&self) -> Timestamp {
        match self {
            Self::Single(packed) => packed.expires().unwrap_or(NEVER),
            Self::Multiple(set) => set.next_expiry,
        }
    }

    /// Removes at most `limit` expired rows and reports them to `on_removed`, with the partition key. If more are left, `next_expiry` stays in
    /// the past.
    pub(super) fn sweep(&mut self, limit: usize, now: Timestamp, mut on_removed: impl FnMut(&[u8], &PackedRow)) {
        if self.next_expiry() > now {
            return;
        }
        let RowSet { key, rows, next_expiry: set_expiry, .. } = self.promote();
        let (mut remaining, mut next_expiry) = (limit, NEVER);
        rows.retain(|packed| {
            let Some(expires) = packed.expires() else { return true };
            if expires <= now && remaining > 0 {
                remaining -= 1;
                on_removed(key, packed);
                return false;
            }
            next_expiry = next_expiry.min(expires);
            true
        });
        *set_expiry = next_expiry;
    }

    /// The rows in the window of a scan, ordered by id.
    pub(super) fn window<'a>(
        &'a self,
        window: &ScanWindow<'_>,
    ) -> impl DoubleEndedIterator<Item = &'a PackedRow> + use<'a> {
        let partition_key = self.key();
        let is_before = |packed: &PackedRow| window.is_before(packed, partition_key);
        let is_not_after = |packed: &PackedRow| window.is_not_after(packed, partition_key);
        let (single, multiple) = match self {
            Self::Single(packed) => (Some(packed).filter(|packed| !is_before(packed) && is_not_after(packed)), None),
            Self::Multiple(set) => {
                let (from, to) = (set.rows.lower_bound(is_before), set.rows.lower_bound(is_not_after));
                (None, Some(set.rows.range(from, to)))
            }
        };
        single.into_iter().chain(multiple.into_iter().flatten())
    }

    /// Converts a single row into a row set.
    fn promote(&mut self) -> &mut RowSet {
        if let Self::Single(packed) = self {
            let empty = Self::empty(packed.partition_key());
            if let Self::Single(packed) = std::mem::replace(self, empty) {
                let next_expiry = packed.expires().unwrap_or(NEVER);
                let set = self.promote();
                set.next_expiry = next_expiry;
                set.rows.add(packed.with_partition_key(b""));
            }
        }
        match self {
            Self::Multiple(set) => set,
            Self::Single(_) => unreachable!("a single row has just been promoted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large store holds a million of them, one per thread.
    #[test]
    fn a_drawer_is_no_larger_than_its_one_row() {
        assert_eq!(size_of::<PartitionRows>(), 5 * size_of::<usize>());
    }
}
