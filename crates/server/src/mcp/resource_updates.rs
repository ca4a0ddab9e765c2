//! The resources that a client wants to hear of.
//!
//! In: addresses of resources. Out: the address of one that has changed. Several changes of a resource that were not read are one, so
//! that a client that reads slowly needs no more memory than it has subscriptions.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use toolhub_core::{SubscribeError, ToolHub};

/// How many resources a session, or a request that listens, may subscribe to.
pub(super) const MAX_SUBSCRIPTIONS: usize = 100;

/// The subscriptions of one client.
#[derive(Default)]
pub(super) struct ResourceUpdates {
    subscribed: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
    changed: Arc<Changed>,
}

#[derive(Default)]
struct Changed {
    uris: Mutex<BTreeSet<String>>,
    added: Notify,
}

/// Why a resource cannot be subscribed to.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubscriptionRefused {
    #[error("at most {MAX_SUBSCRIPTIONS} resources can be subscribed to; unsubscribe from others first")]
    TooMany,
    #[error(transparent)]
    Hub(#[from] SubscribeError),
}

impl ResourceUpdates {
    pub(super) fn subscribe(&self, hub: &ToolHub, uri: &str) -> Result<(), SubscriptionRefused> {
        let mut subscribed = lock(&self.subscribed);
        if subscribed.contains_key(uri) {
            return Ok(());
        }
        if subscribed.len() >= MAX_SUBSCRIPTIONS {
            return Err(SubscriptionRefused::TooMany);
        }
        let mut subscription = hub.subscribe_resource(uri)?;
        let (changed, name) = (self.changed.clone(), uri.to_owned());
        let task = tokio::spawn(async move {
            while subscription.changed().await {
                lock(&changed.uris).insert(name.clone());
                changed.added.notify_one();
            }
        });
        subscribed.insert(uri.to_owned(), AbortOnDropHandle::new(task));
        Ok(())
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        lock(&self.subscribed).remove(uri);
        lock(&self.changed.uris).remove(uri);
    }

    /// Waits for a resource that has changed. Cancel safe.
    pub(super) async fn next(&self) -> String {
        loop {
            let added = self.changed.added.notified();
            if let Some(uri) = lock(&self.changed.uris).pop_first() {
                return uri;
            }
            added.await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
