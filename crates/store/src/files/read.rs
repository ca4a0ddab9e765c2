//! Loads rows: on the spot where their contexts lie in memory, otherwise on threads that may block.
//!
//! In: keys, or a scan. Out: rows. How many read at a time is bounded here.

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

/// How many read files at a time.
const MAX_CONCURRENT_READS: usize = 4;

pub(super) struct Readers {
    documents: Arc<DocumentStore>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(shelf: Arc<DocumentStore>) -> Self {
        Self { documents: shelf, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)) }
    }

    /// The rows of these keys, in their order.
    pub(super) async fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let load =
            move |view: &mut View<'_>, keys: &[RowKey]| keys.iter().map(|key| load_row(view, key, now)).collect();
        if let Some(rows) = self.documents.view(false, |view| load(view, keys)) {
            return rows?;
        }
        let keys = keys.to_vec();
        self.run_blocking(move |shelf| shelf.view(true, |view| load(view, &keys)).unwrap_or_else(no_view_error)).await?
    }

    pub(super) async fn scan(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        if let Some(page) = scan::page_from_memory(&self.documents, &scan, now) {
            return page;
        }
        self.run_blocking(move |shelf| scan::page(shelf, &scan, now)).await
    }

    #[expect(clippy::disallowed_methods, reason = "this is the room where files are read, and it bounds how many are")]
    async fn run_blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&DocumentStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |_| StoreError::Unavailable("the store is closed".into());
        let place = self.permits.clone().acquire_owned().await.map_err(gone)?;
        let shelf = self.documents.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // Kept until it has read, also when nobody waits for it any more.
            let _place = place;
            read(&shelf)
        });
        reading.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the reading was cut short".into())))
    }
}

/// A view that may block always comes to an answer.
fn no_view_error<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("nothing was read".into()))
}

fn load_row(view: &mut View<'_>, key: &RowKey, now: Timestamp) -> Result<Option<Row>, StoreError> {
    // What is not kept here is not there.
    let (Some(_), Some(home)) = (table_index(key.table), context::partition_key(&key.partition)) else {
        return Ok(None);
    };
    match view.get(&Context::of_row(&home, &key.id)) {
        Content::Absent | Content::Unread => Ok(None),
        Content::Doc(doc) => Ok(doc.get(key.table, &key.id).filter(|row| !row.is_expired(now)).cloned()),
        Content::Quarantined(reason) => Err(StoreError::Damaged { table: key.table, id: key.id.clone(), reason }),
    }
}
