//! A memory store whose commits a test intercepts: it may act before a commit, or make it fail.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use toolhub::{
    BoxFuture,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

/// What happens to a commit.
pub(crate) enum CommitAction {
    Apply,
    /// It fails; nothing is written.
    Unavailable,
    /// It is refused permanently; nothing is written.
    Reject,
    /// It is written, but returns an error.
    LoseAck,
    /// It is not written, and the error does not say so.
    LoseRequest,
}

type CommitInterceptor = dyn Fn(&Batch) -> BoxFuture<'static, CommitAction> + Send + Sync;

#[derive(Default)]
pub(crate) struct InterceptedStore {
    pub(crate) memory: Arc<Memory>,
    /// How many pages were scanned.
    pub(crate) scans: AtomicUsize,
    /// The scans themselves.
    pub(crate) scanned: Mutex<Vec<Scan>>,
    /// How many more loads fail.
    pub(crate) failing_loads: AtomicUsize,
    interceptor: Mutex<Option<Arc<CommitInterceptor>>>,
}

impl InterceptedStore {
    /// Intercepts every commit from here on.
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
                return Err(StoreError::Unavailable("scripted failure".into()));
            }
            self.memory.load(keys, now).await
        })
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            let action = match self.interceptor() {
                Some(look) => look(&batch).await,
                None => CommitAction::Apply,
            };
            match action {
                CommitAction::Apply => self.memory.commit(batch, now).await,
                CommitAction::Unavailable => Err(StoreError::Unavailable("scripted refusal".into())),
                CommitAction::Reject => Err(StoreError::Refused("it is too long".into())),
                CommitAction::LoseRequest => Err(StoreError::Unknown("the line was cut".into())),
                CommitAction::LoseAck => {
                    let _ = self.memory.commit(batch, now).await;
                    Err(StoreError::Unknown("the line was cut".into()))
                }
            }
        })
    }
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.scanned.lock().unwrap_or_else(PoisonError::into_inner).push(scan.clone());
        self.memory.scan(scan, now)
    }
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(most, now)
    }
    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }
}
