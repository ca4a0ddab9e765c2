//! The checker: which promises of `Backend` a history proves to be broken.
//!
//! In: the operations of all clients of a store that was empty. Out: violations, none for a store that keeps its promises. A pure function.

use std::collections::{BTreeSet, HashMap, HashSet};

use smol_str::SmolStr;

use super::{
    BrokenPromise, Operation, Request, Violation,
    partition_reads::{PartitionRead, half_batches},
    row_history::{Fact, RowHistory, RowWrite, Source},
};
use crate::backend::{Batch, Change, Expect, Page, Partition, Row, RowKey, Scan, Scope, StoreError, Table, WatchEvent};
use toolhub_types::timestamp::Timestamp;

/// The broken promises that the operations prove.
#[must_use]
pub fn violations(operations: &[Operation]) -> Vec<Violation> {
    let latest = operations.iter().map(|operation| operation.now).max().unwrap_or_default();
    let mut checker = Checker { latest, ..Checker::default() };
    for operation in operations {
        if let Request::Commit(batch, result) = &operation.request {
            checker.add_commit(operation, batch, result.as_ref());
        }
    }
    for operation in operations {
        checker.add_read(operation);
    }
    checker.check_events(operations);
    let Checker { rows, found: mut broken, reads, commits, .. } = checker;
    for row in rows.values() {
        broken.extend(row.contradictions(latest));
        broken.extend(replaced_twice(row));
    }
    broken.extend(half_batches(&rows, &commits, &reads, latest));
    broken.sort_by(|a, b| (a.promise, &a.text).cmp(&(b.promise, &b.text)));
    broken
}

/// A batch that may have been applied.
pub(super) struct MaybeApplied<'a> {
    pub(super) batch: &'a Batch,
    pub(super) began: u64,
    /// The versions that the store returned.
    pub(super) versions: Option<&'a [u64]>,
}

/// All rows of a history.
pub(super) type Rows<'a> = HashMap<RowKey, RowHistory<'a>>;

#[derive(Default)]
struct Checker<'a> {
    rows: Rows<'a>,
    /// The rows of each table of each partition that a batch names, so that a scan shows which of them are absent.
    ids: HashMap<(Partition, Table), BTreeSet<&'a SmolStr>>,
    /// The stamps of batches of which nothing was written.
    refused: HashSet<u64>,
    commits: Vec<MaybeApplied<'a>>,
    reads: Vec<PartitionRead<'a>>,
    latest: Timestamp,
    found: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn row(&mut self, key: RowKey) -> &mut RowHistory<'a> {
        self.rows.entry(key).or_insert_with_key(|key| RowHistory::new(key.clone()))
    }

    fn add_commit(
        &mut self,
        operation: &'a Operation,
        batch: &'a Batch,
        result: Option<&'a Result<Vec<u64>, StoreError>>,
    ) {
        let began = operation.began;
        let versions = match result {
            Some(Ok(versions)) => Some(versions.as_slice()),
            None | Some(Err(StoreError::Unknown(_))) => None,
            Some(Err(error)) => {
                self.refused.insert(batch.stamp);
                self.add_conflict(operation, batch, error);
                return;
            }
        };
        // A batch without an answer may be applied at any later time.
        let ended = operation.ended.filter(|_| versions.is_some());
        self.commits.push(MaybeApplied { batch, began, versions });
        for (at, write) in batch.writes.iter().enumerate() {
            self.ids.entry((batch.partition.clone(), write.table)).or_default().insert(&write.id);
            let version = versions.and_then(|versions| versions.get(at).copied());
            let row = self.row(key_of(batch, write.table, &write.id));
            row.add_write(RowWrite { write, stamp: batch.stamp, began, ended, version });
            let (Some(ended), Some(number)) = (ended, version) else { continue };
            let fact = |number, stamp, source| Fact { began, ended, number, stamp, source };
            match write.expect {
                Expect::Same(expected) => {
                    row.facts.push(fact(expected.number, Some(expected.stamp), Source::Precondition));
                }
                Expect::Absent => row.facts.push(fact(0, None, Source::Precondition)),
                Expect::Any => {}
            }
            match write.change {
                Change::Put { .. } | Change::Restore { .. } => {
                    row.facts.push(fact(number, Some(batch.stamp), Source::Put));
                }
                Change::Touch { .. } | Change::Keep => row.facts.push(fact(number, None, Source::Read)),
                Change::Remove => {}
            }
        }
    }

    /// A conflict names the version that the row had.
    fn add_conflict(&mut self, operation: &Operation, batch: &Batch, error: &StoreError) {
        let (StoreError::Conflict { table, id, found }, Some(ended)) = (error, operation.ended) else { return };
        let (began, number) = (operation.began, found.unwrap_or_default());
        let fact = Fact { began, ended, number, stamp: None, source: Source::Read };
        self.row(key_of(batch, *table, id)).facts.push(fact);
    }

    fn add_read(&mut self, operation: &'a Operation) {
        let Some(ended) = operation.ended else { return };
        let (began, mut read, mut source) = (operation.began, Vec::new(), Source::Read);
        match &operation.request {
            Request::Load(keys, Some(rows)) => {
                read.extend(keys.iter().cloned().zip(rows.iter().map(Option::as_ref)));
            }
            Request::Scan(scan, Some(page)) => {
                read.extend(page.rows.iter().map(|(key, row)| (key.clone(), Some(row))));
                if let Scope::Partition(partition) = &scan.scope {
                    read.extend(self.absent_rows(scan, partition, page).map(|key| (key, None)));
                } else {
                    source = Source::LaggingRead;
                }
            }
            _ => return,
        }
        for (key, row) in &read {
            self.check_origin(key, *row, ended);
            let history = self.row(key.clone());
            let version = row.map(|row| row.version);
            let number = version.map_or(0, |version| version.number);
            if number > 0 || source == Source::Read {
                history.facts.push(Fact { began, ended, number, stamp: version.map(|version| version.stamp), source });
            }
            let stale = version.filter(|_| source == Source::Read);
            let stale = stale.and_then(|version| replaced_before(history, version.stamp, began));
            self.found.extend(stale);
        }
        if source == Source::Read && read.len() > 1 {
            self.reads.push(PartitionRead { began, ended, rows: read });
        }
    }

    /// The rows that a page of one partition shows to be absent.
    fn absent_rows(&self, scan: &Scan, partition: &Partition, page: &Page) -> impl Iterator<Item = RowKey> + use<'a> {
        let is_after = |id: &str, cursor: &RowKey| if scan.descending { id < &*cursor.id } else { id > &*cursor.id };
        let is_absent = |id: &str| {
            scan.terms.is_empty()
                && id.starts_with(&scan.prefix)
                && scan.after.as_ref().is_none_or(|after| is_after(id, &after.0))
                && page.next.as_ref().is_none_or(|next| !is_after(id, &next.0))
                && page.rows.iter().all(|(found, _)| found.id != id)
        };
        let known = self.ids.get(&(partition.clone(), scan.table)).into_iter().flatten();
        let (partition, table) = (partition.clone(), scan.table);
        let absent: Vec<&'a SmolStr> = known.copied().filter(|id| is_absent(id)).collect();
        absent.into_iter().map(move |id| RowKey { partition: partition.clone(), table, id: id.clone() })
    }

    /// A row that was read must have been written so by a batch that was asked for.
    fn check_origin(&mut self, key: &RowKey, row: Option<&Row>, ended: u64) {
        let (Some(row), Some(history)) = (row, self.rows.get(key)) else { return };
        let stamp = row.version.stamp;
        let puts: Vec<_> = history.writes.iter().filter(|write| write.stamp == stamp && !write.is_removal()).collect();
        let (promise, text) = if puts.is_empty() {
            let why = if self.refused.contains(&stamp) { "its batch was refused" } else { "no batch has its stamp" };
            (BrokenPromise::SeenWithoutRequest, why)
        } else if puts.iter().all(|put| put.began > ended) {
            (BrokenPromise::SeenWithoutRequest, "it was read before its batch was sent")
        } else if !puts.iter().any(|put| is_value_of(&put.write.change, row)) {
            (BrokenPromise::ValueAltered, "its batch wrote another value")
        } else {
            return;
        };
        let text = format!("{text}: {:?} was read until moment {ended}", row.version);
        self.found.push(history.violation(promise, &text));
    }

    /// An event of a watch must follow a request, and the versions of a row come in order.
    fn check_events(&mut self, operations: &'a [Operation]) {
        let mut last: HashMap<(usize, &RowKey), (u64, u64)> = HashMap::new();
        for Operation { began, request, .. } in operations {
            let Request::Event(watch, WatchEvent::Row(key, version)) = request else { continue };
            let Some(row) = self.rows.get(key) else { continue };
            let may_cause = |write: &RowWrite<'_>| {
                write.began < *began
                    && match version {
                        None => write.is_removal(),
                        Some(number) => !write.is_removal() && write.version.is_none_or(|known| known == *number),
                    }
            };
            if !row.writes.iter().any(may_cause) {
                let text = format!("an event of version {version:?} at moment {began} without a batch");
                self.found.push(row.violation(BrokenPromise::SeenWithoutRequest, &text));
            }
            let Some(number) = version else { continue };
            if let Some((earlier, since)) = last.insert((*watch, key), (*number, *began))
                && earlier >= *number
                && !row.may_vanish(0, *began, self.latest)
            {
                let text = format!("version {number} at moment {began} after version {earlier} at {since}");
                self.found.push(row.violation(BrokenPromise::EventOrder, &text));
            }
        }
    }
}

fn key_of(batch: &Batch, table: Table, id: &SmolStr) -> RowKey {
    RowKey { partition: batch.partition.clone(), table, id: id.clone() }
}

fn is_value_of(change: &Change, row: &Row) -> bool {
    match change {
        Change::Put { value, schema, .. } | Change::Restore { value, schema, .. } => {
            *value == row.value && *schema == row.schema
        }
        Change::Touch { .. } | Change::Keep | Change::Remove => false,
    }
}

/// The row was read in a version that had been replaced or removed before the read began.
fn replaced_before(row: &RowHistory<'_>, stamp: u64, began: u64) -> Option<Violation> {
    let ended = row.only_write(stamp)?.ended?;
    let newer = row.writes.iter().find(|write| write.began > ended && write.is_before(began))?;
    let what = if newer.is_removal() { "was removed" } else { "was replaced" };
    let text = format!("the version with stamp {stamp} was read at {began}, but {what} at {:?}", newer.ended);
    Some(row.violation(BrokenPromise::StaleRead, &text))
}

/// Two acknowledged batches replaced the same version of a row.
fn replaced_twice(row: &RowHistory<'_>) -> Vec<Violation> {
    let (mut first, mut found) = (HashMap::new(), Vec::new());
    for write in row.writes.iter().filter(|write| write.ended.is_some()) {
        let Expect::Same(expected) = write.write.expect else { continue };
        if let Some(earlier) = first.insert(expected, write.began) {
            let text = format!("{expected:?} was replaced at moment {earlier} and at {}", write.began);
            found.push(row.violation(BrokenPromise::PreconditionIgnored, &text));
        }
    }
    found
}
