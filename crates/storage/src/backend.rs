//! The `Backend` trait: versioned row storage with atomic batches, implemented by memory, files and SQLite.
//!
//! In: batches of writes to one partition. Out: rows, versions, change events. A backend knows tables, keys, versions
//! and expiry; it does not know what the rows mean. The crates above interpret them, once for all backends.

mod apply;
mod arc;
mod batch;
mod error;
mod loss;
mod memory;
mod meters;
mod partition;
mod record;
mod row;
mod scan;
mod servers;
mod size_limit;
mod terms;
mod timeout;

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use futures_core::{Stream, future::BoxFuture};
use futures_util::StreamExt;
use smol_str::SmolStr;

pub use apply::{Action, Applied, PriorRow, WriteContext};
pub use batch::{Batch, Change, Durability, Expect, ROW_OVERHEAD_BYTES, Write};
pub use error::StoreError;
pub use loss::{LossReport, LostNames, TenantLosses};
pub use memory::Memory;
pub use meters::{StoreMeter, StoreMeters, StoreStats};
pub use partition::{Partition, PartitionKind};
pub use record::{decode, encode};
pub use row::{Row, RowKey, RowVersion, Table};
pub use scan::{Cursor, Page, Scan, Scope};
pub use scan::{read_all, read_pages};
pub use servers::{ServersReport, StoreServer};
pub use size_limit::{Reservation, SizeLimit};
pub use terms::Terms;
pub use timeout::TimeoutBackend;

use crate::{clock::Clock, seal::SealKey};
use toolhub_types::timestamp::Timestamp;

/// A store of versioned rows.
///
/// An implementation promises:
/// - **Atomicity.** A batch is one transaction on one partition: every expectation held and every write was applied,
///   or nothing changed. Batches on one partition are serialized.
/// - **Attempts.** A batch that was refused may be committed again with the same stamp and other preconditions or writes; it is a new
///   batch, and is never answered with the outcome of the earlier one.
/// - **Partition checks.** A batch with `no_other_rows` is refused with [`OtherRows`](StoreError::OtherRows) if its partition
///   holds a row that the batch does not write, once all other preconditions hold. The check is part of the transaction.
/// - **Durability.** An acknowledged batch is as durable as its strictest write requires. An error says whether nothing
///   was written ([`Unavailable`](StoreError::Unavailable)) or the outcome is unknown ([`Unknown`](StoreError::Unknown)).
/// - **Versions.** A new row has version 1; every put adds one. A restored row gets the version it had, or its current
///   version plus one, whichever is greater. A store that may have lost versions it has already returned, because it was
///   restored or stopped before everything was written, starts new rows at a higher number instead of 1. A row also stores
///   the stamp of the batch that last wrote it, so that a removed and recreated row is never mistaken for the old one.
/// - **Timestamps.** A row stores when it was created and when it was last put, by the `now` of those requests.
/// - **Expiry.** A row that has expired at the `now` of a request is absent for that request, swept or not.
/// - **Snapshot reads.** Rows of one partition in one `load` come from the same snapshot. A scan over several partitions
///   may lag slightly behind commits; a scan of a single partition does not.
/// - **Index terms.** A put stores the terms that its batch names for the row, or none; a touch keeps them. A scan with terms
///   returns exactly the rows that have all of them, in the same order and pages as any scan. With one term it reads about as
///   much as it returns, not all rows in between, where the store may grow large. With several it may read rows that have
///   only some of them; the read limit of the scan bounds that.
/// - **Watching.** The versions of a row are delivered in order. Expiry emits no event.
///
/// The caller passes the time, so a backend needs no clock and tests control it. Versions stay below 2^53.
pub trait Backend: Send + Sync + 'static {
    /// Returns the rows of these keys, in the same order; `None` for a key without a row.
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>>;

    /// Applies all writes of the batch, or none. Returns the version of each row afterwards, 0 if the row does not exist.
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>>;

    /// Returns one page of a table's rows, ordered by id and, for equal ids, by the text of the partition.
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// Removes at most `limit` expired rows and returns how many. The caller repeats it while it returns `limit`.
    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Subscribes to all changes of a table from now on.
    fn watch(&self, table: Table) -> Watcher;

    /// Counts the rows of a table by id, over all partitions. May lag behind commits as a scan does. It walks the whole table,
    /// so it is for occasional statistics, not for the call path.
    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(scan::count_by_id(self, table, now))
    }

    /// Whether no other process can use the same records while this value exists. If so, calls that another process left
    /// open here will never be finished by it.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// The kind of store, such as `sqlite`: the value of a metric label.
    fn name(&self) -> &'static str {
        "other"
    }

    /// Why the store refuses all commits, at least for now: an internal failure such as a panic of its writer thread, a full disk,
    /// a file that is gone, a server that refused the last one. Must be cheap; makes no request, so it may return `None` for an
    /// unreachable store.
    fn write_error(&self) -> Option<String> {
        None
    }

    /// Which records are damaged, as far as the store knows without a request. All others are served. Must be cheap.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Commits that the store acknowledged to this process and has lost, as found so far: the reports after the first `seen` ones. Must be
    /// cheap; makes no request.
    fn losses(&self, seen: usize) -> Vec<LossReport> {
        let _ = seen;
        Vec::new()
    }

    /// What an operator should know about the durability and the load of the store, as far as it knows without a request. Records are
    /// served and stored all the same. Must be cheap.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The used part of the memory of the store's server, from 0 to 1, if that is limited and the hub cannot make room. At 0.9 plain
    /// read-only calls are no longer recorded. Asked for each of them, so it must be cheap.
    fn memory_pressure(&self) -> Option<f64> {
        None
    }

    /// Whether the store acknowledged the batch with this stamp although fewer replicas than configured had it in time. Known of the last
    /// few thousand such batches. Makes no request.
    fn lacks_replicas(&self, stamp: u64) -> bool {
        let _ = stamp;
        false
    }

    /// The servers that keep the records, if there are any, as of the last look at them. Makes no request.
    fn servers(&self) -> Option<ServersReport> {
        None
    }

    /// The clock of the store, if it has one: that of a server, on which all users of the store agree. A hub without a clock of its own
    /// uses it.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// The size of the store and its limit, if it has one. The hub removes the oldest journal records when the store comes near
    /// its limit, and makes writers wait for that; what the store does when it reaches the limit is its own decision.
    fn size_limit(&self) -> Option<&SizeLimit> {
        None
    }

    /// The key that seals secrets in the rows. It must be as durable as the rows, and no part of their backups. Without one, each
    /// hub has a key of its own in memory: a call with secret arguments then cannot go on after a restart.
    fn seal_key(&self) -> Option<SealKey> {
        None
    }

    /// Whether commits are acknowledged before they are durable and flushed later (write-behind).
    fn is_write_behind(&self) -> bool {
        false
    }
}

/// A stream of change events.
pub type Watcher = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

/// A new watch for a reader that lost its earlier one. Starts with [`WatchEvent::Lagged`], because changes in between were missed.
pub fn rewatch(store: &dyn Backend, table: Table) -> Watcher {
    Box::pin(futures_util::stream::iter([WatchEvent::Lagged]).chain(store.watch(table)))
}

/// A change event of a watched table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The row now has this version; `None` if it was removed.
    Row(RowKey, Option<u64>),
    /// The watcher lagged or has only just subscribed, and some changes were not delivered. Re-read the rows that matter.
    Lagged,
}
