//! A history of what the clients of a store asked and were answered, and a checker of the promises of `Backend` over it.
//!
//! In: the operations of all clients, recorded by a [`RecordedStore`] around the connection of each. Out: the broken promises that these
//! answers prove: a version given out twice, a row that no client had asked to write yet, a read that is older than what was
//! acknowledged before it began, half of a batch in one read, a precondition that did not hold. The store must have been empty at the
//! beginning, and no client may go unrecorded. What the answers leave open, such as the fate of a batch without an answer, is never held
//! against the store.

mod checker;
mod partition_reads;
mod recorder;
mod row_history;
#[cfg(test)]
mod tests;

use std::{
    fmt::{self, Debug, Display, Formatter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use checker::violations;
pub use recorder::RecordedStore;

use crate::backend::{Backend, Batch, Page, Row, RowKey, Scan, StoreError, WatchEvent};
use toolhub_types::timestamp::Timestamp;

/// The operations of all clients of a store, in the order in which they began.
#[derive(Default)]
pub struct History(Mutex<Recording>);

#[derive(Default)]
struct Recording {
    operations: Vec<Operation>,
    /// The next moment: beginnings and ends of operations are numbered together.
    moment: u64,
    /// How many connections and watches there are.
    connections: usize,
    watches: usize,
}

/// One operation of a client.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The number of the connection.
    pub client: usize,
    /// The moment at which the client asked.
    pub began: u64,
    /// The moment at which the client had the answer; `None` if it gave up before.
    pub ended: Option<u64>,
    /// The time that the client passed to the store.
    pub now: Timestamp,
    /// What was asked, and the answer.
    pub request: Request,
}

/// A request and its answer. Failed reads have no answer.
#[expect(clippy::large_enum_variant, reason = "the histories of tests are short")]
#[derive(Debug, Clone)]
pub enum Request {
    /// Rows were loaded.
    Load(Vec<RowKey>, Option<Vec<Option<Row>>>),
    /// A page was scanned.
    Scan(Scan, Option<Page>),
    /// A batch was committed.
    Commit(Batch, Option<Result<Vec<u64>, StoreError>>),
    /// The watch with this number got an event.
    Event(usize, WatchEvent),
}

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokenPromise {
    /// A version of a row was given to two batches, or a batch was applied twice.
    VersionWrittenTwice,
    /// A row or an event was seen that no client had asked to write by then, or whose batch was refused.
    SeenWithoutRequest,
    /// A row has another value than its batch wrote.
    ValueAltered,
    /// A read was older than something acknowledged, or read, before it began.
    StaleRead,
    /// A read has one part of a batch and not another.
    HalfBatch,
    /// A batch was applied although one of its preconditions did not hold.
    PreconditionIgnored,
    /// A watch got the versions of a row in another order than they were written.
    EventOrder,
}

/// A broken promise with the row and the operations that prove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: BrokenPromise,
    /// What was seen.
    pub text: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.text)
    }
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A connection to the store whose operations are recorded here.
    pub fn record(self: &Arc<Self>, store: Arc<dyn Backend>) -> Arc<RecordedStore> {
        let mut recording = self.lock();
        recording.connections += 1;
        let client = recording.connections;
        Arc::new(RecordedStore::new(self.clone(), client, store))
    }

    /// The operations so far.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.lock().operations.clone()
    }

    /// How many operations were recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().operations.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks all operations so far.
    ///
    /// # Panics
    /// When they prove that the store broke a promise.
    #[track_caller]
    pub fn assert_promises_kept(&self) {
        let operations = self.operations();
        let broken = violations(&operations);
        let shown: Vec<String> = broken.iter().take(5).map(ToString::to_string).collect();
        assert!(broken.is_empty(), "{} of {} operations: {}", broken.len(), operations.len(), shown.join("\n"));
    }

    fn begin(&self, client: usize, now: Timestamp, request: Request) -> usize {
        let mut recording = self.lock();
        recording.moment += 1;
        let began = recording.moment;
        recording.operations.push(Operation { client, began, ended: None, now, request });
        recording.operations.len() - 1
    }

    fn end(&self, operation: usize, answer: impl FnOnce(&mut Request)) {
        let mut recording = self.lock();
        recording.moment += 1;
        let ended = recording.moment;
        let operation = &mut recording.operations[operation];
        operation.ended = Some(ended);
        answer(&mut operation.request);
    }

    fn next_watch(&self) -> usize {
        let mut recording = self.lock();
        recording.watches += 1;
        recording.watches
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debug for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("operations", &self.len()).finish_non_exhaustive()
    }
}
