//! Loads and scans: inline if the contexts are in memory, otherwise on blocking threads.
//!
//! In: keys, or a scan. Out: rows. Bounds the number of concurrent file reads.

use std::sync::Arc;

use tokio::sync::Semaphore;
use toolhub_storage::{
    backend::{Page, Row, RowKey, Scan, StoreError},
    clock::Timestamp,
};

use super::{
    context::{self, Context},
    doc::table_index,
    document_store::{Content, DocumentStore, View},
    scan,
};

/// Maximum number of concurrent file reads.
const MAX_CONCURRENT_READS: usize = 4;

pub(super) struct Readers {
    documents: Arc<DocumentStore>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(documents: Arc<DocumentStore>) -> Self {
        Self { documents, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)) }
    }

    /// The rows of these keys, in the same order.
    pub(super) async fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let load =
            move |view: &mut View<'_>, keys: &[RowKey]| keys.iter().map(|key| load_row(view, key, now)).collect();
        if let Some(rows) = self.documents.view(false, |view| load(view, keys)) {
            return rows?;
        }
        let keys = keys.to_vec();
        self.run_blocking(move |documents| documents.view(true, |view| load(view, &keys)).unwrap_or_else(no_view_error))
            .await?
    }

    pub(super) async fn scan(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        if let Some(page) = scan::page_from_memory(&self.documents, &scan, now) {
            return page;
        }
        self.run_blocking(move |documents| scan::page(documents, &scan, now)).await
    }

    #[expect(clippy::disallowed_methods, reason = "file reads block here, bounded by `permits`")]
    async fn run_blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&DocumentStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = |_| StoreError::Unavailable("the store is closed".into());
        let permit = self.permits.clone().acquire_owned().await.map_err(closed)?;
        let documents = self.documents.clone();
        let task = tokio::task::spawn_blocking(move || {
            // Held until the read ends, even if its caller was dropped.
            let _permit = permit;
            read(&documents)
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the read was aborted".into())))
    }
}

/// Unreachable: a view that may block always returns a result.
fn no_view_error<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("internal error: a blocking view returned no result".into()))
}

fn load_row(view: &mut View<'_>, key: &RowKey, now: Timestamp) -> Result<Option<Row>, StoreError> {
    // Tables and partitions that the file store does not support have no rows.
    let (Some(_), Some(partition_key)) = (table_index(key.table), context::partition_key(&key.partition)) else {
        return Ok(None);
    };
    match view.get(&Context::of_row(&partition_key, &key.id)) {
        Content::Absent | Content::Unread => Ok(None),
        Content::Doc(doc) => Ok(doc.get(key.table, &key.id).filter(|row| !row.is_expired(now)).cloned()),
        Content::Quarantined(reason) => Err(StoreError::Damaged { table: key.table, id: key.id.clone(), reason }),
    }
}
