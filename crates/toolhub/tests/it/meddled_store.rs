//! A store in memory whose commits a test looks at first: it may do something before one, or let it go wrong.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use toolhub::{
    BoxFuture,
    backend::{Backend, Batch, Key, Memory, Page, Row, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

/// What becomes of a commit.
pub(crate) enum Then {
    Made,
    /// Nothing is written.
    Refused,
    /// Nothing is written, now or ever.
    Never,
    /// It is written, and nobody hears of it.
    Unheard,
}

type Look = dyn Fn(&Batch) -> BoxFuture<'static, Then> + Send + Sync;

#[derive(Default)]
pub(crate) struct Meddled {
    pub(crate) memory: Arc<Memory>,
    /// How many pages were asked for.
    pub(crate) scans: AtomicUsize,
    /// So many more times it does not answer who loads.
    pub(crate) loads_fail: AtomicUsize,
    look: Mutex<Option<Arc<Look>>>,
}

impl Meddled {
    /// Looks at every commit from here on.
    pub(crate) fn before_commits(&self, look: impl Fn(&Batch) -> BoxFuture<'static, Then> + Send + Sync + 'static) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(look));
    }

    fn look(&self) -> Option<Arc<Look>> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Backend for Meddled {
    fn load<'a>(&'a self, keys: &'a [Key], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        let fails =
            self.loads_fail.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
        Box::pin(async move {
            if fails {
                return Err(StoreError::Unavailable("it is gone".into()));
            }
            self.memory.load(keys, now).await
        })
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            let then = match self.look() {
                Some(look) => look(&batch).await,
                None => Then::Made,
            };
            match then {
                Then::Made => self.memory.commit(batch, now).await,
                Then::Refused => Err(StoreError::Unavailable("there is no room".into())),
                Then::Never => Err(StoreError::Refused("it is too long".into())),
                Then::Unheard => {
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
