//! Deletes a thread: all rows of its partition, in batches.
//!
//! In: a thread. Out: the number of deleted rows, or that the thread became active meanwhile. The caller decides whether it
//! should be deleted; `has_open_work` finds pending approvals, open calls and open runs.

use std::sync::Arc;

use crate::{
    approvals::Approval,
    artifact,
    journal::{CallSummary, OpenCall},
    threads::{self, ThreadStore},
};
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table,
    Write,
};
use toolhub_types::{
    approval::ApprovalState,
    content::Content,
    ids::{StateName, ThreadKey},
    timestamp::Timestamp,
};

/// Number of rows deleted in one batch.
const BATCH_SIZE: usize = 100;

/// Result of deleting a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalResult {
    /// The thread was deleted, with this many rows.
    Rows(usize),
    /// The thread was used meanwhile; some rows may be deleted.
    StillActive,
}

/// Whether the thread has a pending approval, an open call or an open run.
pub(crate) async fn has_open_work(store: &dyn Backend, owner: &ThreadKey, now: Timestamp) -> Result<bool, StoreError> {
    let partition = || Partition::from(owner);
    let any = async |table, matches: fn(&toolhub_storage::backend::Row, Timestamp) -> bool, prefix: &str| {
        let mut scan = Scan::new(table, Scope::Partition(partition())).prefix(prefix);
        loop {
            let page = store.scan(scan.clone(), now).await?;
            if page.rows.iter().any(|(_, row)| matches(row, now)) {
                return Ok::<bool, StoreError>(true);
            }
            match page.next {
                Some(next) => scan.after = Some(next),
                None => return Ok(false),
            }
        }
    };
    // An approval that cannot be decoded may be pending; it keeps the thread until its row expires.
    let pending_approval = |row: &toolhub_storage::backend::Row, now| {
        serde_json::from_slice::<Approval>(&row.value).map_or(true, |it| it.state_at(now) == ApprovalState::Pending)
    };
    Ok(any(Table::OpenCalls, |_, _| true, "").await?
        || any(Table::Runs, |_, _| true, Table::OPEN_RUN).await?
        || any(Table::Approvals, pending_approval, "apr_").await?)
}

/// Commits writes to a thread and a change of its own row, if that has this version and the thread holds no other rows. Returns
/// whether it did.
pub(crate) async fn commit_bare(
    store: &dyn Backend,
    (owner, version): (&ThreadKey, RowVersion),
    change: Change,
    rows: Vec<Write>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let RowKey { partition, table, id } = threads::row_key(owner);
    let (expect, durability) = (Expect::Same(version), Durability::KillSafe);
    let own = Write { table, id, expect, change, durability };
    let batch = Batch { writes: rows, no_other_rows: true, ..Batch::new(partition) }.with(own);
    match store.commit(batch, now).await {
        Ok(_) => Ok(true),
        Err(StoreError::OtherRows | StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a store that does not hold the thread's own row holds states of the thread.
pub(crate) async fn has_states(store: &dyn Backend, owner: &ThreadKey, now: Timestamp) -> Result<bool, StoreError> {
    for table in [Table::State, Table::Versions, Table::History] {
        let scan = Scan::new(table, Scope::Partition(Partition::from(owner))).limit(1);
        if !store.scan(scan, now).await?.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes all rows of a thread, its own row last, so that an interrupted sweep is resumed. Stops as soon as the thread's own row
/// changes, a call on this node names the thread, or a call is open in it. The states in `retained_states` outlive the thread. Rows in
/// `other` stores are deleted first, then the runs, so that no node resumes a run whose calls are deleted.
pub(crate) async fn remove(
    thread_store: &ThreadStore,
    (store, other): (&dyn Backend, &[Arc<dyn Backend>]),
    owner: &ThreadKey,
    retained_states: &[StateName],
    now: Timestamp,
) -> Result<RemovalResult, StoreError> {
    let own = threads::row_key(owner);
    let version = thread_store.load_record(owner).await?.map(|(_, version)| version);
    let partition = Partition::from(owner);
    let open = Scan::new(Table::OpenCalls, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
    if store.scan(open, now).await?.rows.iter().any(is_open) {
        return Ok(RemovalResult::StillActive);
    }
    let mut deleted = 0;
    for store in other {
        match remove_states(&**store, (thread_store, version), owner, retained_states, now).await? {
            RemovalResult::Rows(rows) => deleted += rows,
            RemovalResult::StillActive => return Ok(RemovalResult::StillActive),
        }
    }
    // Every batch expects the thread's own row unchanged.
    let expect = version.map_or(Expect::Absent, Expect::Same);
    let own = |change| Write { table: own.table, id: own.id.clone(), expect, change, durability: Durability::KillSafe };
    let commit = async |batch| match store.commit(batch, now).await {
        Ok(_) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    };
    let others = Table::ALL.into_iter().filter(|table| !matches!(table, Table::Threads | Table::Runs));
    for table in std::iter::once(Table::Runs).chain(others) {
        let mut scan = Scan::new(table, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
        loop {
            let page = store.scan(scan.clone(), now).await?;
            if table == Table::OpenCalls && page.rows.iter().any(is_open) {
                return Ok(RemovalResult::StillActive);
            }
            let rows: Vec<_> =
                page.rows.into_iter().filter(|(key, _)| !outlives_thread(key, retained_states)).collect();
            let mut batch = Batch::new(partition.clone()).with(own(Change::Keep));
            deleted += rows.len();
            // Artifacts lie in another partition; the call records are the last references to them.
            let artifacts: Vec<Content> =
                rows.iter().flat_map(|(key, row)| CallSummary::content_of_row(key, row)).collect();
            batch.writes.extend(rows.into_iter().map(|(key, row)| removal_write(table, key, row.version)));
            if batch.writes.len() > 1 && (thread_store.is_tracked(owner) || !commit(batch).await?) {
                return Ok(RemovalResult::StillActive);
            }
            artifact::delete(store, &owner.tenant, &artifacts, now).await?;
            tokio::task::yield_now().await;
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
    }
    if thread_store.is_tracked(owner) {
        return Ok(RemovalResult::StillActive);
    }
    // The removal of a row that is missing is no change.
    if version.is_some() {
        thread_store.own_removals.expect(owner);
    }
    let removed = commit(Batch::new(partition).with(own(Change::Remove))).await;
    if version.is_some() && !matches!(removed, Ok(true)) {
        thread_store.own_removals.cancel(owner);
    }
    let is_deleted = removed?;
    Ok(if is_deleted { RemovalResult::Rows(deleted) } else { RemovalResult::StillActive })
}

/// Deletes a thread's states from a store that does not hold the thread's own row. That row cannot be part of the batches, so
/// its version is checked before each one.
async fn remove_states(
    store: &dyn Backend,
    (thread_store, version): (&ThreadStore, Option<RowVersion>),
    owner: &ThreadKey,
    retained_states: &[StateName],
    now: Timestamp,
) -> Result<RemovalResult, StoreError> {
    let partition = Partition::from(owner);
    let mut deleted = 0;
    for table in [Table::History, Table::Versions, Table::State] {
        let mut scan = Scan::new(table, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
        loop {
            let page = store.scan(scan.clone(), now).await?;
            let rows = page.rows.into_iter().filter(|(key, _)| !outlives_thread(key, retained_states));
            let mut batch = Batch::new(partition.clone());
            batch.writes.extend(rows.map(|(key, row)| removal_write(table, key, row.version)));
            deleted += batch.writes.len();
            if !batch.writes.is_empty() {
                let current = thread_store.load_record(owner).await?.map(|(_, version)| version);
                if current != version || thread_store.is_tracked(owner) {
                    return Ok(RemovalResult::StillActive);
                }
                match store.commit(batch, now).await {
                    Ok(_) => {}
                    Err(StoreError::Conflict { .. }) => return Ok(RemovalResult::StillActive),
                    Err(error) => return Err(error),
                }
            }
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
    }
    Ok(RemovalResult::Rows(deleted))
}

/// Whether this is an open call that runs on some node or that recovery will close. A row that cannot be decoded does not count,
/// because no node ever closes it.
fn is_open((key, row): &(RowKey, Row)) -> bool {
    OpenCall::read(&key.id, row).is_ok()
}

/// A compare-and-delete of a row: a concurrent write is not lost.
fn removal_write(table: Table, key: RowKey, version: RowVersion) -> Write {
    let (expect, durability) = (Expect::Same(version), Durability::KillSafe);
    Write { table, id: key.id, expect, change: Change::Remove, durability }
}

/// Whether a row belongs to a state that outlives its thread.
fn outlives_thread(key: &RowKey, retained_states: &[StateName]) -> bool {
    matches!(key.table, Table::State | Table::Versions | Table::History)
        && key.id.split_once('/').is_some_and(|(state, _)| retained_states.iter().any(|name| name.as_str() == state))
}
