//! A store in memory whose commits a test looks at first: it may do something before one, or let it go wrong.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use toolhub::{
    BoxFuture,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

/// What becomes of a commit.
pub(crate) enum CommitAction {
    Apply,
    /// Nothing is written.
    Unavailable,
    /// Nothing is written, now or ever.
    Reject,
    /// It is written, and nobody hears of it.
    LoseAck,
}

type CommitInterceptor = dyn Fn(&Batch) -> BoxFuture<'static, CommitAction> + Send + Sync;

#[derive(Default)]
pub(crate) struct InterceptedStore {
    pub(crate) memory: Arc<Memory>,
    /// How many pages were asked for.
    pub(crate) scans: AtomicUsize,
    /// So many more times it does not answer who loads.
    pub(crate) failing_loads: AtomicUsize,
    interceptor: Mutex<Option<Arc<CommitInterceptor>>>,
}

impl InterceptedStore {
    /// Looks at every commit from here on.
    pub(crate) fn before_commits(
        &self,
        look: impl Fn(&Batch) -> BoxFuture<'static, CommitAction> + Send + Sync + 'static,
    ) {
        *self.interceptor.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(look));
    }

    fn interceptor(&self) -> Option<Arc<CommitInterceptor>> {
        self.interceptor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Backend for InterceptedStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        let fails =
            self.failing_loads.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
        Box::pin(async move {
            if fails {
                return Err(StoreError::Unavailable("it is gone".into()));
            }
            self.memory.load(keys, now).await
        })
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            let then = match self.interceptor() {
                Some(look) => look(&batch).await,
                None => CommitAction::Apply,
            };
            match then {
                CommitAction::Apply => self.memory.commit(batch, now).await,
                CommitAction::Unavailable => Err(StoreError::Unavailable("there is no room".into())),
                CommitAction::Reject => Err(StoreError::Refused("it is too long".into())),
                CommitAction::LoseAck => {
                    let _ = self.memory.commit(batch, now).await;
                    Err(StoreError::Unknown("the line was cut".into()))
                }
            }
        })
    }
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.memory.scan(scan, now)
    }
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(most, now)
    }
    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }
}
