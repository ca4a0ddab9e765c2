//! Where durable records are kept: one small trait for memory, files, SQLite and Redis.
//!
//! In: batches of rows that belong together. Out: rows, versions, changes. A backend knows tables, keys, versions,
//! ages and fences; it does not know what the rows mean. Everything that gives them a meaning is written once, above.

mod apply;
mod arc;
mod batch;
mod error;
mod memory;
mod meters;
mod partition;
mod record;
mod row;
mod scan;
mod timeout;

use std::{collections::BTreeMap, pin::Pin};

use futures_core::{Stream, future::BoxFuture};
use smol_str::SmolStr;

pub use apply::{Action, Applied, PriorRow, WriteContext};
pub use batch::{Batch, Change, Durability, Expect, Write};
pub use error::StoreError;
pub use memory::Memory;
pub use meters::{StoreMeter, StoreMeters, StoreStats};
pub use partition::{Partition, PartitionKind};
pub use record::{decode, encode};
pub use row::{Row, RowKey, RowVersion, Table};
pub use scan::{Cursor, Page, Scan, Scope};
pub use scan::{read_all, read_pages};
pub use timeout::TimeoutBackend;

use toolhub_types::timestamp::Timestamp;

/// A place where records are kept.
///
/// An implementation promises:
/// - **All or nothing.** A batch is one transaction on one partition: every expectation held and every write was made,
///   or nothing changed. Two batches on one partition happen one after the other.
/// - **Acknowledged is durable**, as far as the strictest write of the batch asked for. An error says whether nothing
///   was written ([`Unavailable`](StoreError::Unavailable)) or nobody knows ([`Unknown`](StoreError::Unknown)).
/// - **Versions.** A row made anew has version 1; every put adds one. A restored row gets the version it had, or one more
///   than it has, whichever is greater. A store that has forgotten versions it gave out, because it was restored or ended
///   before all was written, begins with a higher number instead of 1, and goes on from there. A row also keeps the stamp of the batch that wrote it last, so that a row removed
///   and made again is never taken for the old one.
/// - **Times.** A row keeps when it was made and when it was put last, by the `now` of those requests.
/// - **Expired is gone.** A row whose time has passed at the `now` of a request is absent to it, swept or not.
/// - **Fences.** A batch with a fence lower than one seen on its partition is refused. One without a fence passes.
/// - **Snapshots.** Rows of one partition in one `load` are of the same moment. A scan over several partitions may lag
///   a little behind commits; one of a single partition does not.
/// - **Watching.** The versions of a row are told in order. Expiry is not told.
///
/// Time is handed in, so a backend needs no clock and a test may choose the hour. Versions and fences stay below 2^53.
pub trait Backend: Send + Sync + 'static {
    /// The rows of these keys, in their order; `None` where there is none.
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>>;

    /// Makes all writes of the batch, or none. Answers with the version of each row afterwards, 0 where there is none.
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>>;

    /// Rows of one table, a page at a time, in the order of their ids and, where ids are alike, of the text of their
    /// partitions.
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// Removes at most `most` rows that have expired; answers how many. Called again while it answers `most`.
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Tells of every change to a table from here on.
    fn watch(&self, table: Table) -> Watcher;

    /// How many rows of a table have each id, over all partitions. May lag as far behind as a scan does. Walks the whole table:
    /// it is for whoever counts now and then.
    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(scan::count_by_id(self, table, now))
    }

    /// Whether no other process can use the same records for as long as this value lives. Then whatever another process
    /// has begun here and not ended, it will never end.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// What sort of store it is, in a word: a label of metrics.
    fn name(&self) -> &'static str {
        "other"
    }

    /// Whether commits are acknowledged before they are durable, and written later.
    fn is_write_behind(&self) -> bool {
        false
    }
}

/// Changes as they happen.
pub type Watcher = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

/// What a watcher is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The row has this version now; `None` when it is gone.
    Row(RowKey, Option<u64>),
    /// The watcher was too slow, or has only just begun, and some changes were not told. Read again what matters.
    Lagged,
}
