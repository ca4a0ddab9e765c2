//! A map that holds its values by weak reference.
//!
//! In: a key. Out: the live value of this key, or a new one. Pools, semaphores and tokens live as long as a tool uses them.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Shared values by key; an entry ends with the last reference to its value.
pub struct WeakMap<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K: Eq + Hash, V> WeakMap<K, V> {
    /// The live value of this key, or a new one. An insert also removes dead entries.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = map.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        map.retain(|_, weak| weak.strong_count() > 0);
        let value = Arc::new(make());
        map.insert(key, Arc::downgrade(&value));
        value
    }
}

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, V> fmt::Debug for WeakMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakMap")
    }
}
