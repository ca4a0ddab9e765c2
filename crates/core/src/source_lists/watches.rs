//! Who waits for changes of which resource.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use smol_str::SmolStr;
use tokio::sync::watch;
use toolhub_types::{
    count_by_key::{CountByKey, is_full},
    ids::Tenant,
};

/// How many resources of one source may be watched; each tenant has a guaranteed share on top.
const MAX_PER_SOURCE: usize = 1_000;

/// A resource at its source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResourceKey {
    pub(crate) source: SmolStr,
    pub(crate) uri: String,
}

/// The watched resources.
#[derive(Default)]
pub(crate) struct ResourceWatches(Mutex<HashMap<ResourceKey, WatchedResource>>);

#[derive(Default)]
struct WatchedResource {
    changes: watch::Sender<u64>,
    watchers: CountByKey<Tenant>,
}

impl ResourceWatches {
    /// Watches a resource; `None` if too many of its source are watched.
    pub(crate) fn add(&self, tenant: &Tenant, key: &ResourceKey) -> Option<watch::Receiver<u64>> {
        let mut watches = self.lock();
        if !watches.contains_key(key) {
            let of_source = of_source(&watches, &key.source);
            let of_tenant = of_source.clone().filter(|(_, watched)| watched.watchers.of(tenant) > 0);
            if is_full(MAX_PER_SOURCE, of_source.count(), of_tenant.count()) {
                return None;
            }
        }
        let watched = watches.entry(key.clone()).or_default();
        watched.watchers.add(tenant, 1);
        Some(watched.changes.subscribe())
    }

    /// Removes a watcher, and a resource without watchers.
    pub(crate) fn remove(&self, tenant: &Tenant, key: &ResourceKey) {
        let mut watches = self.lock();
        let Some(watched) = watches.get_mut(key) else { return };
        watched.watchers.subtract(tenant, 1);
        if watched.watchers.is_empty() {
            watches.remove(key);
        }
    }

    /// The watched resources of a source, sorted.
    pub(crate) fn uris(&self, source: &str) -> Vec<String> {
        let mut uris: Vec<_> = of_source(&self.lock(), source).map(|(key, _)| key.uri.clone()).collect();
        uris.sort_unstable();
        uris
    }

    /// A resource has changed.
    pub(crate) fn updated(&self, key: &ResourceKey) {
        if let Some(watched) = self.lock().get(key) {
            watched.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceKey, WatchedResource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_source<'a>(
    watches: &'a HashMap<ResourceKey, WatchedResource>,
    source: &'a str,
) -> impl Iterator<Item = (&'a ResourceKey, &'a WatchedResource)> + Clone {
    watches.iter().filter(move |(key, _)| key.source == source)
}
