//! Finds reads that show one part of a batch and not another.
//!
//! In: reads of several rows, and batches that may have been applied. Out: a violation for each read that proves of one row that the
//! batch had been applied, and of another that it had not. Rows of one partition in one read come from the same snapshot.

use std::collections::HashMap;

use smol_str::SmolStr;

use super::{
    BrokenPromise, Violation,
    checker::{MaybeApplied, Rows},
    row_history::RowHistory,
};
use crate::backend::{Change, Partition, Row, RowKey, Table};
use toolhub_types::timestamp::Timestamp;

/// A read of several rows.
pub(super) struct PartitionRead<'a> {
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) rows: Vec<(RowKey, Option<&'a Row>)>,
}

/// What a read proves about a write of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Applied,
    NotApplied,
    None,
}

pub(super) fn half_batches(
    rows: &Rows<'_>,
    commits: &[MaybeApplied<'_>],
    reads: &[PartitionRead<'_>],
    latest: Timestamp,
) -> Vec<Violation> {
    let mut by_partition: HashMap<&Partition, Vec<&MaybeApplied<'_>>> = HashMap::new();
    for commit in commits.iter().filter(|commit| commit.batch.writes.len() > 1) {
        by_partition.entry(&commit.batch.partition).or_default().push(commit);
    }
    let mut found = Vec::new();
    for read in reads {
        for (partition, commits) in &by_partition {
            let mut seen = read.rows.iter().filter(|(key, _)| key.partition == **partition).peekable();
            if seen.peek().is_none() {
                continue;
            }
            let seen: SeenRows<'_> = seen.map(|(key, row)| ((key.table, &key.id), (key, *row))).collect();
            for commit in commits.iter().filter(|commit| commit.began < read.ended) {
                found.extend(half_batch(rows, commit, read, &seen, latest));
            }
        }
    }
    found
}

type SeenRows<'a> = HashMap<(Table, &'a SmolStr), (&'a RowKey, Option<&'a Row>)>;

fn half_batch(
    rows: &Rows<'_>,
    commit: &MaybeApplied<'_>,
    read: &PartitionRead<'_>,
    seen: &SeenRows<'_>,
    latest: Timestamp,
) -> Option<Violation> {
    let (mut applied, mut missing) = (None, None);
    for (at, write) in commit.batch.writes.iter().enumerate() {
        let Some((key, row)) = seen.get(&(write.table, &write.id)) else { continue };
        let history = rows.get(key)?;
        let version = commit.versions.and_then(|versions| versions.get(at).copied());
        match proof(history, commit, (&write.change, version), read, *row, latest) {
            Proof::Applied => applied = Some(key),
            Proof::NotApplied => missing = Some(history),
            Proof::None => {}
        }
    }
    let (applied, missing) = (applied?, missing?);
    let text = format!(
        "the read at moment {} has the {} row `{}` of the batch sent at {}, but not this one",
        read.began, applied.table, applied.id, commit.began
    );
    Some(missing.violation(BrokenPromise::HalfBatch, &text))
}

/// What a row in a read proves about the write of a batch.
fn proof(
    history: &RowHistory<'_>,
    commit: &MaybeApplied<'_>,
    (change, version): (&Change, Option<u64>),
    read: &PartitionRead<'_>,
    row: Option<&Row>,
    latest: Timestamp,
) -> Proof {
    let is_put = match change {
        Change::Put { .. } | Change::Restore { .. } => true,
        Change::Remove => false,
        Change::Touch { .. } | Change::Keep => return Proof::None,
    };
    let stamp = commit.batch.stamp;
    let Some(row) = row else {
        let is_missing = is_put && !history.may_vanish(commit.began, read.ended, latest);
        return if is_missing { Proof::NotApplied } else { Proof::None };
    };
    if is_put && row.version.stamp == stamp {
        return Proof::Applied;
    }
    // The version that was read was written before the batch was sent.
    let origin = history.only_write(row.version.stamp).filter(|_| row.version.stamp != stamp);
    if origin.is_some_and(|origin| origin.is_before(commit.began)) {
        return Proof::NotApplied;
    }
    match version.filter(|_| is_put && !history.may_vanish(0, u64::MAX, latest)) {
        Some(number) if row.version.number > number => Proof::Applied,
        Some(number) if row.version.number < number => Proof::NotApplied,
        _ => Proof::None,
    }
}
