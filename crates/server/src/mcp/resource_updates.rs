//! The resources that a client wants to hear of.
//!
//! In: addresses of resources. Out: the address of one that has changed. Several changes of a resource that were not read are one, so
//! that a client that reads slowly needs no more memory than it has subscriptions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use toolhub_core::{SubscribeError, ToolHub, ids::Tenant};

/// How many resources a session, or a request that listens, may subscribe to.
pub(super) const MAX_SUBSCRIPTIONS: usize = 100;
/// Largest size of their addresses together, in bytes: those of a session are stored with it.
const MAX_ADDRESS_BYTES: usize = 64 << 10;

/// The subscriptions of one client.
pub(super) struct ResourceUpdates {
    tenant: Tenant,
    /// Without a task, if no source has had the resource since it was stored.
    subscribed: Mutex<BTreeMap<String, Option<AbortOnDropHandle<()>>>>,
    changed: Arc<Changed>,
}

#[derive(Default)]
struct Changed {
    uris: Mutex<BTreeSet<String>>,
    added: Notify,
    /// Notified when there are subscriptions without a task.
    replaced: Notify,
}

/// Why a resource cannot be subscribed to.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubscriptionRefused {
    #[error("at most {MAX_SUBSCRIPTIONS} resources can be subscribed to; unsubscribe from others first")]
    TooMany,
    #[error("the addresses of all subscriptions may have {MAX_ADDRESS_BYTES} bytes; unsubscribe from others first")]
    TooLong,
    #[error(transparent)]
    Hub(#[from] SubscribeError),
}

impl ResourceUpdates {
    /// Subscriptions of a client of this tenant; to these resources it had subscribed before.
    pub(super) fn new(tenant: Tenant, stored: Vec<String>) -> Self {
        let subscribed = stored.into_iter().map(|uri| (uri, None)).collect();
        Self { tenant, subscribed: Mutex::new(subscribed), changed: Arc::default() }
    }

    pub(super) fn subscribe(&self, hub: &ToolHub, uri: &str) -> Result<(), SubscriptionRefused> {
        let mut subscribed = lock(&self.subscribed);
        if !subscribed.contains_key(uri) {
            if subscribed.len() >= MAX_SUBSCRIPTIONS {
                return Err(SubscriptionRefused::TooMany);
            }
            if subscribed.keys().map(String::len).sum::<usize>() + uri.len() > MAX_ADDRESS_BYTES {
                return Err(SubscriptionRefused::TooLong);
            }
        }
        if !matches!(subscribed.get(uri), Some(Some(_))) {
            subscribed.insert(uri.to_owned(), Some(self.watch(hub, uri)?));
        }
        Ok(())
    }

    /// Subscribes to the stored ones that a source has by now. Its client hears of each: it may have changed meanwhile.
    pub(super) fn resubscribe(&self, hub: &ToolHub, is_visible: impl Fn(&str) -> bool) {
        let mut subscribed = lock(&self.subscribed);
        for (uri, task) in subscribed.iter_mut().filter(|(_, task)| task.is_none()) {
            *task = is_visible(uri).then(|| self.watch(hub, uri).ok()).flatten();
            if task.is_some() {
                self.changed.add(uri);
            }
        }
    }

    fn watch(&self, hub: &ToolHub, uri: &str) -> Result<AbortOnDropHandle<()>, SubscribeError> {
        let mut subscription = hub.subscribe_resource(&self.tenant, uri)?;
        let (changed, uri) = (self.changed.clone(), uri.to_owned());
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            while subscription.changed().await {
                changed.add(&uri);
            }
        })))
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        lock(&self.subscribed).remove(uri);
        lock(&self.changed.uris).remove(uri);
    }

    /// Makes these the subscriptions. Those that were made on another node have no task until [`resubscribe`](Self::resubscribe).
    pub(super) fn replace(&self, uris: &[String]) {
        let mut subscribed = lock(&self.subscribed);
        subscribed.retain(|uri, _| uris.contains(uri));
        for uri in uris {
            subscribed.entry(uri.clone()).or_default();
        }
        if subscribed.values().any(Option::is_none) {
            self.changed.replaced.notify_one();
        }
    }

    /// Waits until there are subscriptions that were made on another node. Cancel safe.
    pub(super) async fn replaced(&self) {
        self.changed.replaced.notified().await;
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

impl Changed {
    fn add(&self, uri: &str) {
        lock(&self.uris).insert(uri.to_owned());
        self.added.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
