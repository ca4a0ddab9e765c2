//! Where rows are that were written lately, and what their heads say: the next write of one need not look for it.
//!
//! In: what the writer wrote. Out: the same, as long as it is sure to be true. Nobody else writes, so it is true until a
//! transaction is undone or rows are taken away without being named; then all of it is forgotten.

use std::hash::{BuildHasher, RandomState};

use toolhub_storage::backend::Table;

use super::super::row::{Head, Name};

/// How many are remembered at most; each has one place, and gives it up to the next that has the same. A power of two.
const PLACES: usize = 4096;

pub(super) struct Heads {
    places: Vec<Option<Box<Known>>>,
    hasher: RandomState,
}

struct Known {
    partition: Box<str>,
    table: Table,
    id: Box<str>,
    /// The row's number.
    number: i64,
    head: Head,
}

impl Heads {
    pub(super) fn new() -> Self {
        Self { places: std::iter::repeat_with(|| None).take(PLACES).collect(), hasher: RandomState::new() }
    }

    /// The number and the head of a row, if they are known.
    pub(super) fn find(&self, name: Name<'_>) -> Option<(i64, Head)> {
        let known = self.places[self.place(name)].as_deref().filter(|known| known.is(name))?;
        Some((known.number, known.head))
    }

    /// A row was written.
    pub(super) fn keep(&mut self, name: Name<'_>, number: i64, head: Head) {
        let place = self.place(name);
        match self.places[place].as_deref_mut().filter(|known| known.is(name)) {
            Some(known) => (known.number, known.head) = (number, head),
            None => {
                let (partition, table, id) = (name.partition.into(), name.table, name.id.into());
                self.places[place] = Some(Box::new(Known { partition, table, id, number, head }));
            }
        }
    }

    /// A row was removed.
    pub(super) fn forget(&mut self, name: Name<'_>) {
        let place = self.place(name);
        if self.places[place].as_deref().is_some_and(|known| known.is(name)) {
            self.places[place] = None;
        }
    }

    /// Nothing is sure any more.
    pub(super) fn forget_all(&mut self) {
        self.places.fill_with(|| None);
    }

    fn place(&self, name: Name<'_>) -> usize {
        let hash = self.hasher.hash_one((name.partition, name.table, name.id));
        usize::try_from(hash % PLACES as u64).unwrap_or(0)
    }
}

impl Known {
    fn is(&self, name: Name<'_>) -> bool {
        *self.id == *name.id && self.table == name.table && *self.partition == *name.partition
    }
}
