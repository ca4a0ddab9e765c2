//! Loads rows: on the spot where their contexts lie in memory, otherwise on threads that may block.
//!
//! In: keys, or a scan. Out: rows. How many read at a time is bounded here.

use std::sync::Arc;

use tokio::sync::Semaphore;
use toolhub_storage::{
    backend::{Key, Page, Row, Scan, StoreError},
    clock::Timestamp,
};

use super::{
    doc::place,
    name::{self, Context},
    scan,
    shelf::{Content, Shelf, View},
};

/// How many read files at a time.
const AT_ONCE: usize = 4;

pub(super) struct Readers {
    shelf: Arc<Shelf>,
    places: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(shelf: Arc<Shelf>) -> Self {
        Self { shelf, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The rows of these keys, in their order.
    pub(super) async fn load(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let load = move |view: &mut View<'_>, keys: &[Key]| keys.iter().map(|key| one(view, key, now)).collect();
        if let Some(rows) = self.shelf.view(false, |view| load(view, keys)) {
            return rows?;
        }
        let keys = keys.to_vec();
        self.blocking(move |shelf| shelf.view(true, |view| load(view, &keys)).unwrap_or_else(never)).await?
    }

    pub(super) async fn scan(&self, scan: Scan, now: Timestamp) -> Result<Page, StoreError> {
        if let Some(page) = scan::at_once(&self.shelf, &scan, now) {
            return page;
        }
        self.blocking(move |shelf| scan::page(shelf, &scan, now)).await
    }

    #[expect(clippy::disallowed_methods, reason = "this is the room where files are read, and it bounds how many are")]
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shelf) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |_| StoreError::Unavailable("the store is closed".into());
        let place = self.places.clone().acquire_owned().await.map_err(gone)?;
        let shelf = self.shelf.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // Kept until it has read, also when nobody waits for it any more.
            let _place = place;
            read(&shelf)
        });
        reading.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the reading was cut short".into())))
    }
}

/// A view that may block always comes to an answer.
fn never<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("nothing was read".into()))
}

fn one(view: &mut View<'_>, key: &Key, now: Timestamp) -> Result<Option<Row>, StoreError> {
    // What is not kept here is not there.
    let (Some(_), Some(home)) = (place(key.table), name::home(&key.partition)) else { return Ok(None) };
    match view.get(&Context::of(&home, &key.id)) {
        Content::Nothing | Content::Unread => Ok(None),
        Content::Doc(doc) => Ok(doc.get(key.table, &key.id).filter(|row| !row.is_expired(now)).cloned()),
        Content::Aside(reason) => Err(StoreError::Damaged { table: key.table, id: key.id.clone(), reason }),
    }
}
