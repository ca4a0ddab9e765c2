//! What is kept of one partition: its rows, and the highest fence that was seen.
//!
//! In: names and rows. Out: slips. Most partitions of a large store hold a single row; such a one is its own drawer and
//! carries the address. Nothing here asks whether a row has expired, but for the sweep.

use super::{
    packed_row::{PackedRow, RowId},
    pages::ScanWindow,
    sorted_rows::SortedRows,
};
use crate::backend::{Row, Table};
use toolhub_types::timestamp::Timestamp;

/// Later than everything that has an end.
pub(super) const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// The contents of a partition.
pub(super) enum PartitionRows {
    /// A single row, which carries the address.
    Single(PackedRow),
    Multiple(Box<RowSet>),
}

pub(super) struct RowSet {
    key: Box<[u8]>,
    fence: u64,
    /// No row ends before this.
    next_expiry: Timestamp,
    rows: SortedRows,
}

impl PartitionRows {
    pub(super) fn empty(address: &[u8]) -> Self {
        Self::Multiple(Box::new(RowSet {
            key: address.into(),
            fence: 0,
            next_expiry: NEVER,
            rows: SortedRows::default(),
        }))
    }

    pub(super) fn single(address: &[u8], name: RowId<'_>, row: Row) -> Self {
        Self::Single(PackedRow::new(address, name, row))
    }

    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Single(slip) => slip.partition_key(),
            Self::Multiple(many) => &many.key,
        }
    }

    pub(super) fn fence(&self) -> u64 {
        if let Self::Multiple(many) = self { many.fence } else { 0 }
    }

    pub(super) fn raise_fence(&mut self, fence: u64) {
        if fence > self.fence() {
            self.promote().fence = fence;
        }
    }

    /// Without rows and fence it is as good as none.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Multiple(many) if many.rows.is_empty() && many.fence == 0)
    }

    pub(super) fn get(&self, name: RowId<'_>) -> Option<&PackedRow> {
        match self {
            Self::Single(slip) => Some(slip).filter(|slip| slip.cmp_id(name).is_eq()),
            Self::Multiple(many) => many.rows.get(name),
        }
    }

    /// Writes what `make` makes of the row that is there. Answers whether there was none.
    pub(super) fn put(&mut self, name: RowId<'_>, make: impl FnOnce(Option<&PackedRow>) -> Row) -> bool {
        if let Self::Single(slip) = self
            && slip.cmp_id(name).is_eq()
        {
            slip.rewrite(make(Some(slip)));
            return false;
        }
        let many = self.promote();
        let mut ends = None;
        let is_new = many.rows.put(name, |before| {
            let row = make(before);
            ends = row.expires;
            row
        });
        many.next_expiry = many.next_expiry.min(ends.unwrap_or(NEVER));
        is_new
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, name: RowId<'_>) -> Option<PackedRow> {
        if let Self::Single(slip) = self
            && slip.cmp_id(name).is_ne()
        {
            return None;
        }
        self.promote().rows.remove(name)
    }

    /// No row ends before this.
    pub(super) fn next_expiry(&self) -> Timestamp {
        match self {
            Self::Single(slip) => slip.expires().unwrap_or(NEVER),
            Self::Multiple(many) => many.next_expiry,
        }
    }

    /// Removes at most `most` expired rows and names their tables. Where more are left, `soonest` still says so.
    pub(super) fn sweep(&mut self, most: usize, now: Timestamp, mut gone: impl FnMut(Table)) {
        if self.next_expiry() > now {
            return;
        }
        let many = self.promote();
        let (mut left, mut soonest) = (most, NEVER);
        many.rows.retain(|slip| {
            let Some(ends) = slip.expires() else { return true };
            if ends <= now && left > 0 {
                left -= 1;
                gone(slip.table());
                return false;
            }
            soonest = soonest.min(ends);
            true
        });
        many.next_expiry = soonest;
    }

    /// The rows of a scan, in the order of their ids.
    pub(super) fn window<'a>(
        &'a self,
        window: &ScanWindow<'_>,
    ) -> impl DoubleEndedIterator<Item = &'a PackedRow> + use<'a> {
        let address = self.key();
        let is_ahead = |slip: &PackedRow| window.is_before(slip, address);
        let is_not_past = |slip: &PackedRow| window.is_not_after(slip, address);
        let (one, many) = match self {
            Self::Single(slip) => (Some(slip).filter(|slip| !is_ahead(slip) && is_not_past(slip)), None),
            Self::Multiple(many) => {
                let (from, to) = (many.rows.lower_bound(is_ahead), many.rows.lower_bound(is_not_past));
                (None, Some(many.rows.range(from, to)))
            }
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Makes room for more than a single row.
    fn promote(&mut self) -> &mut RowSet {
        if let Self::Single(slip) = self {
            let many = Self::empty(slip.partition_key());
            if let Self::Single(slip) = std::mem::replace(self, many) {
                let soonest = slip.expires().unwrap_or(NEVER);
                let many = self.promote();
                many.next_expiry = soonest;
                many.rows.add(slip.with_partition_key(b""));
            }
        }
        match self {
            Self::Multiple(many) => many,
            Self::Single(_) => unreachable!("a single row has just been given more room"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for each of a million threads.
    #[test]
    fn a_drawer_is_no_larger_than_its_one_row() {
        assert_eq!(size_of::<PartitionRows>(), 5 * size_of::<usize>());
    }
}
