//! Decides what a write does to its row, so that every store behaves identically.
//!
//! In: the row before the write, without its value. Out: a conflict, or the row's new version, whether watchers get an event,
//! and the action for the store. Pure functions: the store looks up the row first and executes the action afterwards.

use super::{Change, Expect, RowVersion, StoreError, Write};
use toolhub_types::timestamp::Timestamp;

/// The state of a row before a write, as far as the write depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriorRow {
    /// The row does not exist or has expired.
    Absent,
    /// The row exists.
    Present {
        /// Its version.
        row_version: RowVersion,
        /// When it was created.
        created: Timestamp,
    },
    /// The row exists and cannot be read.
    Damaged {
        /// The version it may have had.
        version: u64,
        /// What is wrong with it.
        error: StoreError,
    },
}

/// What all writes of one batch share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteContext {
    /// The stamp of the batch.
    pub stamp: u64,
    /// The lowest version to assign; above 1 after a restore or an unclean shutdown.
    pub floor: u64,
    /// The time of the commit.
    pub now: Timestamp,
}

/// The effect of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The row's version afterwards; 0 if the row does not exist.
    pub version: u64,
    /// Whether watchers get an event.
    pub changed: bool,
    /// What the store must do.
    pub action: Action,
}

/// What a store must do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Store the value of the write.
    Put {
        /// The new version.
        row_version: RowVersion,
        /// When the row was created.
        created: Timestamp,
    },
    /// Set the row's expiry to that of the write.
    Touch,
    /// Remove the row, even if it has expired.
    Remove,
}

impl PriorRow {
    /// From the row that was found. The caller passes `None` for an expired row.
    #[must_use]
    pub fn from_found(found: Option<(RowVersion, Timestamp)>) -> Self {
        found.map_or(Self::Absent, |(row_version, created)| Self::Present { row_version, created })
    }

    fn row_version(&self) -> Option<RowVersion> {
        if let Self::Present { row_version, .. } = self { Some(*row_version) } else { None }
    }

    fn version(&self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Present { row_version, .. } => row_version.number,
            Self::Damaged { version, .. } => *version,
        }
    }
}

impl Write {
    /// The effect of the write on its row.
    ///
    /// # Errors
    /// When the precondition does not hold, or the row is damaged and the write does not replace it unconditionally.
    pub fn apply(&self, before: &PriorRow, context: WriteContext) -> Result<Applied, StoreError> {
        self.check(before)?;
        Ok(self.change.apply(before, context))
    }

    /// Checks the precondition of the write.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn check(&self, before: &PriorRow) -> Result<(), StoreError> {
        if let PriorRow::Damaged { error, .. } = before {
            // The version of a damaged row is not certain, so only an unconditional write may replace it.
            let replaces = matches!(self.change, Change::Put { .. } | Change::Restore { .. } | Change::Remove);
            return if self.expect == Expect::Any && replaces { Ok(()) } else { Err(error.clone()) };
        }
        let found = before.row_version();
        let holds = match self.expect {
            Expect::Any => true,
            Expect::Absent => found.is_none(),
            Expect::Same(expected) => found == Some(expected),
        };
        if holds {
            return Ok(());
        }
        let (table, id, found) = (self.table, self.id.clone(), found.map(|version| version.number));
        Err(StoreError::Conflict { table, id, found })
    }
}

impl Change {
    /// The effect of the change, once the precondition holds.
    #[must_use]
    pub fn apply(&self, before: &PriorRow, WriteContext { stamp, floor, now }: WriteContext) -> Applied {
        let current = before.version();
        let at_least = if let Self::Restore { version, .. } = self { *version } else { 0 };
        match self {
            Self::Put { .. } | Self::Restore { .. } => {
                let version = at_least.max(current + 1).max(floor);
                let created = if let PriorRow::Present { created, .. } = before { *created } else { now };
                Applied {
                    version,
                    changed: true,
                    action: Action::Put { row_version: RowVersion { number: version, stamp }, created },
                }
            }
            Self::Touch { .. } if before.row_version().is_some() => {
                Applied { version: current, changed: false, action: Action::Touch }
            }
            Self::Touch { .. } | Self::Keep => Applied { version: current, changed: false, action: Action::Keep },
            // Removing a damaged row emits an event; removing an expired row does not, because it was absent already.
            Self::Remove => Applied { version: 0, changed: *before != PriorRow::Absent, action: Action::Remove },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Durability, Table};

    const VERSION: RowVersion = RowVersion { number: 4, stamp: 9 };
    const CREATED: Timestamp = Timestamp::from_millis(5);
    const NOW: Timestamp = Timestamp::from_millis(7);

    fn present() -> PriorRow {
        PriorRow::Present { row_version: VERSION, created: CREATED }
    }

    fn damaged() -> PriorRow {
        let error = StoreError::Damaged { table: Table::State, id: "a".into(), reason: "a flipped bit".into() };
        PriorRow::Damaged { version: 6, error }
    }

    fn put() -> Change {
        Change::Put { value: [].into(), schema: 1, expires: None }
    }

    fn restore(version: u64) -> Change {
        Change::Restore { value: [].into(), schema: 1, expires: None, version }
    }

    fn apply(expect: Expect, change: Change, before: &PriorRow, floor: u64) -> Result<Applied, StoreError> {
        let write = Write { table: Table::State, id: "a".into(), expect, change, durability: Durability::KillSafe };
        write.apply(before, WriteContext { stamp: 1, floor, now: NOW })
    }

    #[track_caller]
    fn check(change: Change, before: &PriorRow, version: u64, changed: bool, action: Action) {
        assert_eq!(apply(Expect::Any, change, before, 0), Ok(Applied { version, changed, action }));
    }

    fn stored(version: u64, created: Timestamp) -> Action {
        Action::Put { row_version: RowVersion { number: version, stamp: 1 }, created }
    }

    #[test]
    fn a_put_counts_on_and_keeps_when_the_row_was_made() {
        check(put(), &PriorRow::Absent, 1, true, stored(1, NOW));
        check(put(), &present(), 5, true, stored(5, CREATED));
        check(put(), &damaged(), 7, true, stored(7, NOW));
        check(restore(3), &PriorRow::Absent, 3, true, stored(3, NOW));
        check(restore(3), &present(), 5, true, stored(5, CREATED));
        check(restore(9), &present(), 9, true, stored(9, CREATED));
        let floored = apply(Expect::Any, put(), &PriorRow::Absent, 100).unwrap();
        assert_eq!(floored.version, 100);
    }

    #[test]
    fn only_a_row_that_is_there_is_touched_kept_or_told_to_be_gone() {
        let touch = || Change::Touch { expires: Some(NOW) };
        check(touch(), &present(), 4, false, Action::Touch);
        check(touch(), &PriorRow::Absent, 0, false, Action::Keep);
        check(Change::Keep, &present(), 4, false, Action::Keep);
        check(Change::Keep, &PriorRow::Absent, 0, false, Action::Keep);
        check(Change::Remove, &present(), 0, true, Action::Remove);
        check(Change::Remove, &PriorRow::Absent, 0, false, Action::Remove);
        check(Change::Remove, &damaged(), 0, true, Action::Remove);
    }

    #[test]
    fn a_row_that_is_not_as_expected_refuses_the_write() {
        let conflict = |found| Err(StoreError::Conflict { table: Table::State, id: "a".into(), found });
        assert_eq!(apply(Expect::Absent, put(), &present(), 0), conflict(Some(4)));
        assert_eq!(apply(Expect::Same(VERSION), put(), &PriorRow::Absent, 0), conflict(None));
        assert_eq!(apply(Expect::Same(RowVersion { number: 4, stamp: 8 }), put(), &present(), 0), conflict(Some(4)));
        assert!(apply(Expect::Same(VERSION), put(), &present(), 0).is_ok());
        assert!(apply(Expect::Absent, put(), &PriorRow::Absent, 0).is_ok());
    }

    #[test]
    fn a_damaged_row_is_replaced_only_by_a_write_that_does_not_ask() {
        for change in [Change::Keep, Change::Touch { expires: None }] {
            assert!(matches!(apply(Expect::Any, change, &damaged(), 0), Err(StoreError::Damaged { .. })));
        }
        assert!(matches!(apply(Expect::Absent, put(), &damaged(), 0), Err(StoreError::Damaged { .. })));
        assert!(matches!(apply(Expect::Same(VERSION), Change::Remove, &damaged(), 0), Err(StoreError::Damaged { .. })));
        assert!(apply(Expect::Any, restore(1), &damaged(), 0).is_ok());
    }
}
