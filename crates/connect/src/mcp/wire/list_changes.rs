//! What a server says has changed: its lists, and resources that it was asked to watch.
//!
//! In: any number of notifications. Out: numbers that grow, and the set of changed resources; both are bounded.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

/// How many changed resources wait for their reader; further ones are dropped.
const MAX_UPDATED: usize = 1_000;

/// How often each list of a server has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ListChanges {
    pub(crate) tools: u64,
    pub(crate) prompts: u64,
    /// Of the resources and their templates.
    pub(crate) resources: u64,
}

/// The resources that have changed since they were last taken.
#[derive(Default)]
pub(crate) struct UpdatedResources {
    uris: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl UpdatedResources {
    pub(super) fn add(&self, uri: String) {
        let mut uris = self.uris.lock().unwrap_or_else(PoisonError::into_inner);
        if uris.len() < MAX_UPDATED {
            uris.insert(uri);
        }
        drop(uris);
        self.changed.notify_one();
    }

    /// Waits for changed resources. For one reader.
    pub(crate) async fn take(&self) -> BTreeSet<String> {
        loop {
            let uris = std::mem::take(&mut *self.uris.lock().unwrap_or_else(PoisonError::into_inner));
            if !uris.is_empty() {
                return uris;
            }
            self.changed.notified().await;
        }
    }
}
