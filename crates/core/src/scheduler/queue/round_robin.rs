//! A map with a round-robin order over its keys.
//!
//! In: keys that are inserted, removed or rotated. Out: the key whose turn it is. Each operation is O(log n), because
//! keys may be removed from the middle, and removed keys take no memory.

use std::collections::BTreeMap;

/// Values by key, in the order of their turns. A new key is last.
pub(super) struct RoundRobin<K, V> {
    turn_of: BTreeMap<K, u64>,
    by_turn: BTreeMap<u64, (K, V)>,
    next: u64,
}

impl<K: Ord + Clone, V: Default> RoundRobin<K, V> {
    /// The value of this key; a new key is appended at the end.
    pub(super) fn get_or_insert(&mut self, key: &K) -> &mut V {
        let turn = match self.turn_of.get(key) {
            Some(turn) => *turn,
            None => {
                self.next += 1;
                self.turn_of.insert(key.clone(), self.next);
                self.next
            }
        };
        &mut self.by_turn.entry(turn).or_insert_with(|| (key.clone(), V::default())).1
    }

    /// The key whose turn it is.
    pub(super) fn first(&mut self) -> Option<(&K, &mut V)> {
        self.by_turn.first_entry().map(|entry| {
            let (key, value) = entry.into_mut();
            (&*key, value)
        })
    }

    /// Moves the first key to the end.
    pub(super) fn rotate(&mut self) {
        if let Some((_, (key, value))) = self.by_turn.pop_first() {
            self.next += 1;
            if let Some(turn) = self.turn_of.get_mut(&key) {
                *turn = self.next;
            }
            self.by_turn.insert(self.next, (key, value));
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let turn = self.turn_of.get(key)?;
        self.by_turn.get_mut(turn).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(turn) = self.turn_of.remove(key) {
            self.by_turn.remove(&turn);
        }
    }

    /// Removes the first key.
    pub(super) fn remove_first(&mut self) {
        if let Some((_, (key, _))) = self.by_turn.pop_first() {
            self.turn_of.remove(&key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_turn.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }
}

impl<K, V> Default for RoundRobin<K, V> {
    fn default() -> Self {
        Self { turn_of: BTreeMap::new(), by_turn: BTreeMap::new(), next: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(round_robin: &mut RoundRobin<char, ()>, turns: usize) -> String {
        let mut order = String::new();
        for _ in 0..turns {
            order.extend(round_robin.first().map(|(key, ())| *key));
            round_robin.rotate();
        }
        order
    }

    #[test]
    fn keys_take_turns_and_whoever_leaves_is_skipped() {
        let mut round_robin = RoundRobin::default();
        for key in ['a', 'b', 'c', 'a'] {
            round_robin.get_or_insert(&key);
        }
        assert_eq!(order(&mut round_robin, 5), "abcab");
        round_robin.remove(&'a');
        assert_eq!(order(&mut round_robin, 3), "cbc");
        round_robin.get_or_insert(&'a');
        assert_eq!(order(&mut round_robin, 3), "bca");
        round_robin.remove_first();
        assert_eq!((order(&mut round_robin, 2).as_str(), round_robin.len()), ("ca", 2));
        assert!(round_robin.get_mut(&'b').is_none());
    }
}
