//! Who waits for changes of which resource.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use smol_str::SmolStr;
use tokio::sync::watch;

/// How many resources of one source may be watched.
const MAX_PER_SOURCE: usize = 1_000;

/// A resource at its source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResourceKey {
    pub(crate) source: SmolStr,
    pub(crate) uri: String,
}

/// The watched resources.
#[derive(Default)]
pub(crate) struct ResourceWatches(Mutex<HashMap<ResourceKey, watch::Sender<u64>>>);

impl ResourceWatches {
    /// Watches a resource; `None` if too many of its source are watched.
    pub(crate) fn add(&self, key: &ResourceKey) -> Option<watch::Receiver<u64>> {
        let mut watches = self.lock();
        if !watches.contains_key(key) && of_source(&watches, &key.source).count() >= MAX_PER_SOURCE {
            return None;
        }
        Some(watches.entry(key.clone()).or_insert_with(|| watch::Sender::new(0)).subscribe())
    }

    /// Removes a resource without watchers.
    pub(crate) fn prune(&self, key: &ResourceKey) {
        let mut watches = self.lock();
        if watches.get(key).is_some_and(|sender| sender.receiver_count() == 0) {
            watches.remove(key);
        }
    }

    /// The watched resources of a source, sorted.
    pub(crate) fn uris(&self, source: &str) -> Vec<String> {
        let mut uris: Vec<_> = of_source(&self.lock(), source).map(|key| key.uri.clone()).collect();
        uris.sort_unstable();
        uris
    }

    /// A resource has changed.
    pub(crate) fn updated(&self, key: &ResourceKey) {
        if let Some(sender) = self.lock().get(key) {
            sender.send_modify(|changes| *changes += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceKey, watch::Sender<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_source<'a>(
    watches: &'a HashMap<ResourceKey, watch::Sender<u64>>,
    source: &str,
) -> impl Iterator<Item = &'a ResourceKey> {
    watches.keys().filter(move |key| key.source == source)
}
