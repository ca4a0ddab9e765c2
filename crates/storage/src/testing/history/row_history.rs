//! What a history proves about one row: who may have written it, and which version it had when.
//!
//! In: the writes of the row that may have been applied, and facts: the row had a version at some moment between the beginning and the
//! end of an operation. Out: contradictions between them. A version number only grows while the row is not removed, so a smaller number
//! after a greater one needs a removal or an expiry that may lie in between.

use std::collections::HashMap;

use super::{BrokenPromise, Violation};
use crate::backend::{Change, RowKey, Write};
use toolhub_types::timestamp::Timestamp;

/// The writes and facts of a row.
pub(super) struct RowHistory<'a> {
    pub(super) key: RowKey,
    /// Puts and removals that may have been applied.
    pub(super) writes: Vec<RowWrite<'a>>,
    pub(super) facts: Vec<Fact>,
    /// The first time at which a value that may have been written expires.
    first_expiry: Option<Timestamp>,
}

/// A write that may have been applied.
#[derive(Clone, Copy)]
pub(super) struct RowWrite<'a> {
    pub(super) write: &'a Write,
    pub(super) stamp: u64,
    pub(super) began: u64,
    /// `None` if it may still be applied later: it had no answer.
    pub(super) ended: Option<u64>,
    /// The version that the store returned.
    pub(super) version: Option<u64>,
}

/// The row had a version at some moment of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    pub(super) began: u64,
    pub(super) ended: u64,
    /// 0 if the row was absent.
    pub(super) number: u64,
    pub(super) stamp: Option<u64>,
    pub(super) source: Source,
}

/// How a version became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It was read.
    Read,
    /// It was read by a scan that may lag.
    LaggingRead,
    /// It held as the precondition of a batch, or was named by a conflict.
    Precondition,
    /// It was assigned to a put.
    Put,
}

impl<'a> RowHistory<'a> {
    pub(super) fn new(key: RowKey) -> Self {
        Self { key, writes: Vec::new(), facts: Vec::new(), first_expiry: None }
    }

    /// Adds a write that may have been applied.
    pub(super) fn add_write(&mut self, added: RowWrite<'a>) {
        let expires = match &added.write.change {
            Change::Put { expires, .. } | Change::Restore { expires, .. } | Change::Touch { expires } => *expires,
            Change::Keep | Change::Remove => None,
        };
        self.first_expiry = [self.first_expiry, expires].into_iter().flatten().min();
        if !matches!(added.write.change, Change::Keep | Change::Touch { .. }) {
            self.writes.push(added);
        }
    }

    /// Whether the row may have been absent at some moment between two.
    pub(super) fn may_vanish(&self, after: u64, before: u64, latest: Timestamp) -> bool {
        self.first_expiry.is_some_and(|at| at <= latest)
            || self.writes.iter().any(|write| {
                write.is_removal() && write.began < before && write.ended.is_none_or(|ended| ended > after)
            })
    }

    /// The only write with this stamp that may have been applied.
    pub(super) fn only_write(&self, stamp: u64) -> Option<&RowWrite<'a>> {
        let mut found = self.writes.iter().filter(|write| write.stamp == stamp);
        found.next().filter(|_| found.next().is_none())
    }

    /// All contradictions between the facts.
    pub(super) fn contradictions(&self, latest: Timestamp) -> Vec<Violation> {
        let mut found = self.versions_going_back(latest);
        found.extend(self.versions_of_two_batches(latest));
        found.extend(self.batches_with_two_versions());
        found
    }

    pub(super) fn violation(&self, promise: BrokenPromise, text: &str) -> Violation {
        let RowKey { partition, table, id } = &self.key;
        Violation { promise, text: format!("{table} row `{id}` of {partition}: {text}") }
    }

    fn versions_going_back(&self, latest: Timestamp) -> Vec<Violation> {
        let (mut by_end, mut by_beginning): (Vec<&Fact>, Vec<&Fact>) = (self.facts.iter().collect(), Vec::new());
        by_end.sort_by_key(|fact| fact.ended);
        by_beginning.extend(self.facts.iter().filter(|fact| fact.source != Source::LaggingRead));
        by_beginning.sort_by_key(|fact| fact.began);
        let (mut ended, mut known, mut found) = (by_end.into_iter().peekable(), None::<&Fact>, Vec::new());
        for fact in by_beginning {
            while let Some(earlier) = ended.next_if(|earlier| earlier.ended < fact.began) {
                if known.is_none_or(|known| known.number <= earlier.number) {
                    known = Some(earlier);
                }
            }
            let Some(known) = known else { continue };
            let is_back = known.number > fact.number || (known.number == fact.number && fact.source == Source::Put);
            if !is_back || self.may_vanish(known.began, fact.ended, latest) {
                continue;
            }
            let promise = match fact.source {
                Source::Read | Source::LaggingRead => BrokenPromise::StaleRead,
                Source::Precondition => BrokenPromise::PreconditionIgnored,
                Source::Put => BrokenPromise::VersionWrittenTwice,
            };
            found.push(self.violation(promise, &format!("{fact:?} after {known:?}")));
        }
        found
    }

    fn versions_of_two_batches(&self, latest: Timestamp) -> Vec<Violation> {
        let (mut first, mut found) = (HashMap::<u64, &Fact>::new(), Vec::new());
        for fact in self.facts.iter().filter(|fact| fact.number > 0 && fact.stamp.is_some()) {
            let earlier = *first.entry(fact.number).or_insert(fact);
            let (began, ended) = (earlier.began.min(fact.began), earlier.ended.max(fact.ended));
            if earlier.stamp != fact.stamp && !self.may_vanish(began, ended, latest) {
                found.push(self.violation(BrokenPromise::VersionWrittenTwice, &format!("{earlier:?} and {fact:?}")));
            }
        }
        found
    }

    fn batches_with_two_versions(&self) -> Vec<Violation> {
        let (mut first, mut found) = (HashMap::<u64, &Fact>::new(), Vec::new());
        for fact in self.facts.iter().filter(|fact| fact.number > 0) {
            let Some(stamp) = fact.stamp.filter(|stamp| self.only_write(*stamp).is_some()) else { continue };
            let earlier = *first.entry(stamp).or_insert(fact);
            if earlier.number != fact.number {
                let text = format!("a batch was applied twice: {earlier:?} and {fact:?}");
                found.push(self.violation(BrokenPromise::VersionWrittenTwice, &text));
            }
        }
        found
    }
}

impl RowWrite<'_> {
    pub(super) fn is_removal(&self) -> bool {
        self.write.change == Change::Remove
    }

    /// Whether it was acknowledged before a moment.
    pub(super) fn is_before(&self, moment: u64) -> bool {
        self.ended.is_some_and(|ended| ended < moment)
    }
}
