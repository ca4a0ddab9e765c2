//! What is kept of one partition: its rows, and the highest fence that was seen.
//!
//! In: names and rows. Out: slips. Most partitions of a large store hold a single row; such a one is its own drawer and
//! carries the address. Nothing here asks whether a row has expired, but for the sweep.

use super::{
    pages::Window,
    rows::Rows,
    slip::{Name, Slip},
};
use crate::backend::{Row, Table};
use toolhub_types::timestamp::Timestamp;

/// Later than everything that has an end.
pub(super) const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// The contents of a partition.
pub(super) enum Drawer {
    /// A single row, which carries the address.
    One(Slip),
    Many(Box<Many>),
}

pub(super) struct Many {
    address: Box<[u8]>,
    fence: u64,
    /// No row ends before this.
    soonest: Timestamp,
    rows: Rows,
}

impl Drawer {
    pub(super) fn empty(address: &[u8]) -> Self {
        Self::Many(Box::new(Many { address: address.into(), fence: 0, soonest: NEVER, rows: Rows::default() }))
    }

    pub(super) fn one(address: &[u8], name: Name<'_>, row: Row) -> Self {
        Self::One(Slip::new(address, name, row))
    }

    pub(super) fn address(&self) -> &[u8] {
        match self {
            Self::One(slip) => slip.address(),
            Self::Many(many) => &many.address,
        }
    }

    pub(super) fn fence(&self) -> u64 {
        if let Self::Many(many) = self { many.fence } else { 0 }
    }

    pub(super) fn raise_fence(&mut self, fence: u64) {
        if fence > self.fence() {
            self.many().fence = fence;
        }
    }

    /// Without rows and fence it is as good as none.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Many(many) if many.rows.is_empty() && many.fence == 0)
    }

    pub(super) fn get(&self, name: Name<'_>) -> Option<&Slip> {
        match self {
            Self::One(slip) => Some(slip).filter(|slip| slip.beside(name).is_eq()),
            Self::Many(many) => many.rows.get(name),
        }
    }

    /// Writes what `make` makes of the row that is there. Answers whether there was none.
    pub(super) fn put(&mut self, name: Name<'_>, make: impl FnOnce(Option<&Slip>) -> Row) -> bool {
        if let Self::One(slip) = self
            && slip.beside(name).is_eq()
        {
            slip.rewrite(make(Some(slip)));
            return false;
        }
        let many = self.many();
        let mut ends = None;
        let is_new = many.rows.put(name, |before| {
            let row = make(before);
            ends = row.expires;
            row
        });
        many.soonest = many.soonest.min(ends.unwrap_or(NEVER));
        is_new
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, name: Name<'_>) -> Option<Slip> {
        if let Self::One(slip) = self
            && slip.beside(name).is_ne()
        {
            return None;
        }
        self.many().rows.remove(name)
    }

    /// No row ends before this.
    pub(super) fn soonest(&self) -> Timestamp {
        match self {
            Self::One(slip) => slip.expires().unwrap_or(NEVER),
            Self::Many(many) => many.soonest,
        }
    }

    /// Removes at most `most` expired rows and names their tables. Where more are left, `soonest` still says so.
    pub(super) fn sweep(&mut self, most: usize, now: Timestamp, mut gone: impl FnMut(Table)) {
        if self.soonest() > now {
            return;
        }
        let many = self.many();
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
        many.soonest = soonest;
    }

    /// The rows of a scan, in the order of their ids.
    pub(super) fn window<'a>(&'a self, window: &Window<'_>) -> impl DoubleEndedIterator<Item = &'a Slip> + use<'a> {
        let address = self.address();
        let is_ahead = |slip: &Slip| window.is_ahead(slip, address);
        let is_not_past = |slip: &Slip| window.is_not_past(slip, address);
        let (one, many) = match self {
            Self::One(slip) => (Some(slip).filter(|slip| !is_ahead(slip) && is_not_past(slip)), None),
            Self::Many(many) => {
                let (from, to) = (many.rows.spot(is_ahead), many.rows.spot(is_not_past));
                (None, Some(many.rows.between(from, to)))
            }
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Makes room for more than a single row.
    fn many(&mut self) -> &mut Many {
        if let Self::One(slip) = self {
            let many = Self::empty(slip.address());
            if let Self::One(slip) = std::mem::replace(self, many) {
                let soonest = slip.expires().unwrap_or(NEVER);
                let many = self.many();
                many.soonest = soonest;
                many.rows.add(slip.moved(b""));
            }
        }
        match self {
            Self::Many(many) => many,
            Self::One(_) => unreachable!("a single row has just been given more room"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for each of a million threads.
    #[test]
    fn a_drawer_is_no_larger_than_its_one_row() {
        assert_eq!(size_of::<Drawer>(), 5 * size_of::<usize>());
    }
}
