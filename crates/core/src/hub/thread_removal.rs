//! Takes a thread away: everything its partition holds, in small steps.
//!
//! In: a thread. Out: how many rows went, or that it came to life meanwhile. Whether it should go is asked before; what
//! waits in it for a person, or has begun and not ended, is found here.

use std::sync::Arc;

use crate::{
    approvals::Approval,
    artifact,
    journal::{CallRecord, OpenCall},
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

/// How many rows go in one batch.
const BATCH_SIZE: usize = 100;

/// How the taking away of a thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalResult {
    /// It is gone, with so many rows.
    Rows(usize),
    /// Somebody was active in it meanwhile.
    StillActive,
}

/// Whether something in the thread waits for a person, or has begun and not ended: a call, or a run.
pub(crate) async fn has_open_work(store: &dyn Backend, owner: &ThreadKey, now: Timestamp) -> Result<bool, StoreError> {
    let partition = || Partition::from(owner);
    let any = async |table, holds: fn(&toolhub_storage::backend::Row, Timestamp) -> bool, prefix: &str| {
        let mut scan = Scan::new(table, Scope::Partition(partition())).prefix(prefix);
        loop {
            let page = store.scan(scan.clone(), now).await?;
            if page.rows.iter().any(|(_, row)| holds(row, now)) {
                return Ok::<bool, StoreError>(true);
            }
            match page.next {
                Some(next) => scan.after = Some(next),
                None => return Ok(false),
            }
        }
    };
    // A question that cannot be read may be open; it holds the thread until its row expires.
    let open_question = |row: &toolhub_storage::backend::Row, now| {
        serde_json::from_slice::<Approval>(&row.value).map_or(true, |it| it.state_at(now) == ApprovalState::Pending)
    };
    Ok(any(Table::OpenCalls, |_, _| true, "").await?
        || any(Table::Runs, |_, _| true, Table::OPEN_RUN).await?
        || any(Table::Approvals, open_question, "apr_").await?)
}

/// Takes all rows of a thread away, its own row last: a sweep that was cut short is found again. As soon as the thread's own
/// row is written by somebody, a call on this node names the thread, or one is open in it, nothing more is taken. The states in `kept` outlive the thread. What lies in `other` stores
/// goes first; then the runs, so that nobody goes on with one whose calls are gone.
pub(crate) async fn remove(
    book: &ThreadStore,
    (store, other): (&dyn Backend, &[Arc<dyn Backend>]),
    owner: &ThreadKey,
    kept: &[StateName],
    now: Timestamp,
) -> Result<RemovalResult, StoreError> {
    let own = threads::row_key(owner);
    let seen = book.load_record(owner).await?.map(|(_, seen)| seen);
    let partition = Partition::from(owner);
    let open = Scan::new(Table::OpenCalls, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
    if store.scan(open, now).await?.rows.iter().any(is_open) {
        return Ok(RemovalResult::StillActive);
    }
    let mut gone = 0;
    for store in other {
        match remove_states(&**store, (book, seen), owner, kept, now).await? {
            RemovalResult::Rows(rows) => gone += rows,
            RemovalResult::StillActive => return Ok(RemovalResult::StillActive),
        }
    }
    let expect = seen.map_or(Expect::Absent, Expect::Same);
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
            let rows: Vec<_> = page.rows.into_iter().filter(|(key, _)| !outlives_thread(key, kept)).collect();
            let mut batch = Batch::new(partition.clone()).with(own(Change::Keep));
            gone += rows.len();
            // What the thread's calls have left behind lies elsewhere; this is the last that points to it.
            let left: Vec<Content> = rows.iter().flat_map(|(key, row)| CallRecord::content_of_row(key, row)).collect();
            batch.writes.extend(rows.into_iter().map(|(key, row)| removal_write(table, key, row.version)));
            if batch.writes.len() > 1 && (book.is_tracked(owner) || !commit(batch).await?) {
                return Ok(RemovalResult::StillActive);
            }
            artifact::delete(store, &owner.tenant, &left, now).await?;
            tokio::task::yield_now().await;
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
    }
    let last = commit(Batch::new(partition).with(own(Change::Remove))).await?;
    Ok(if last { RemovalResult::Rows(gone) } else { RemovalResult::StillActive })
}

/// Takes a thread's states out of a store that does not keep the thread's own row. That one can only be looked at before
/// each step.
async fn remove_states(
    store: &dyn Backend,
    (book, seen): (&ThreadStore, Option<RowVersion>),
    owner: &ThreadKey,
    kept: &[StateName],
    now: Timestamp,
) -> Result<RemovalResult, StoreError> {
    let partition = Partition::from(owner);
    let mut gone = 0;
    for table in [Table::History, Table::Versions, Table::State] {
        let mut scan = Scan::new(table, Scope::Partition(partition.clone())).limit(BATCH_SIZE);
        loop {
            let page = store.scan(scan.clone(), now).await?;
            let rows = page.rows.into_iter().filter(|(key, _)| !outlives_thread(key, kept));
            let mut batch = Batch::new(partition.clone());
            batch.writes.extend(rows.map(|(key, row)| removal_write(table, key, row.version)));
            gone += batch.writes.len();
            if !batch.writes.is_empty() {
                if book.load_record(owner).await?.map(|(_, seen)| seen) != seen || book.is_tracked(owner) {
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
    Ok(RemovalResult::Rows(gone))
}

/// Whether this is a call that runs, here or on another node, or that somebody will close. Nobody ends one that cannot be
/// read.
fn is_open((key, row): &(RowKey, Row)) -> bool {
    OpenCall::read(&key.id, row).is_ok()
}

/// Takes a row away as it was seen: what somebody has written since is not lost.
fn removal_write(table: Table, key: RowKey, seen: RowVersion) -> Write {
    let (expect, durability) = (Expect::Same(seen), Durability::KillSafe);
    Write { table, id: key.id, expect, change: Change::Remove, durability }
}

/// Whether a row belongs to a state that outlives its thread.
fn outlives_thread(key: &RowKey, kept: &[StateName]) -> bool {
    matches!(key.table, Table::State | Table::Versions | Table::History)
        && key.id.split_once('/').is_some_and(|(state, _)| kept.iter().any(|name| name.as_str() == state))
}
