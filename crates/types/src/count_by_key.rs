//! How much of a shared quantity each key has, and all keys together.
//!
//! In: what keys take and give back. Out: the counts. The caller decides how much each may have. A key that has nothing takes no
//! memory.

use std::{collections::HashMap, hash::Hash};

/// The part of a limit that each key is guaranteed, however much other keys have.
const GUARANTEED_PART: usize = 20;

/// Whether a key may take no more of something that has a limit. One key may fill it, and each other one then still gets its
/// guaranteed share on top of the limit.
#[must_use]
pub fn is_full(limit: usize, total: usize, of_key: usize) -> bool {
    total >= limit && of_key >= (limit / GUARANTEED_PART).max(1).min(limit)
}

/// Counts by key, and their sum.
#[derive(Debug)]
pub struct CountByKey<K> {
    total: usize,
    by_key: HashMap<K, usize>,
}

impl<K> Default for CountByKey<K> {
    fn default() -> Self {
        Self { total: 0, by_key: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> CountByKey<K> {
    /// What all keys have together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// What one key has.
    #[must_use]
    pub fn of(&self, key: &K) -> usize {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    /// Whether no key has anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// A key takes an amount.
    pub fn add(&mut self, key: &K, amount: usize) {
        self.total += amount;
        match self.by_key.get_mut(key) {
            Some(count) => *count += amount,
            None => drop(self.by_key.insert(key.clone(), amount)),
        }
    }

    /// A key gives back an amount that it took.
    pub fn subtract(&mut self, key: &K, amount: usize) {
        let Some(count) = self.by_key.get_mut(key) else { return };
        let amount = amount.min(*count);
        *count -= amount;
        self.total -= amount;
        if *count == 0 {
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_gives_back_what_it_took_and_no_more() {
        let mut counts = CountByKey::default();
        counts.add(&"a", 5);
        counts.add(&"a", 2);
        counts.add(&"b", 1);
        assert_eq!((counts.of(&"a"), counts.of(&"b"), counts.of(&"c"), counts.total()), (7, 1, 0, 8));
        counts.subtract(&"a", 3);
        counts.subtract(&"b", 9);
        counts.subtract(&"c", 1);
        assert_eq!((counts.of(&"a"), counts.of(&"b"), counts.total()), (4, 0, 4));
        counts.subtract(&"a", 4);
        assert!(counts.is_empty());
    }
}
