//! Things that take turns: a map that remembers whose turn is next.
//!
//! In: keys that join, leave or have had their turn. Out: whose turn it is. Each step costs a logarithm, because
//! anybody may leave from the middle, and what has left keeps no memory.

use std::collections::BTreeMap;

/// Values by key, in the order of their turns. A newcomer is last.
pub(super) struct RoundRobin<K, V> {
    turn_of: BTreeMap<K, u64>,
    by_turn: BTreeMap<u64, (K, V)>,
    next: u64,
}

impl<K: Ord + Clone, V: Default> RoundRobin<K, V> {
    /// The value of this key, which stands last if it was not there.
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

    /// Whose turn it is.
    pub(super) fn first(&mut self) -> Option<(&K, &mut V)> {
        self.by_turn.first_entry().map(|entry| {
            let (key, value) = entry.into_mut();
            (&*key, value)
        })
    }

    /// The first has had its turn and stands last now.
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

    /// The first leaves.
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

    fn order(rounds: &mut RoundRobin<char, ()>, turns: usize) -> String {
        let mut seen = String::new();
        for _ in 0..turns {
            seen.extend(rounds.first().map(|(key, ())| *key));
            rounds.rotate();
        }
        seen
    }

    #[test]
    fn keys_take_turns_and_whoever_leaves_is_skipped() {
        let mut rounds = RoundRobin::default();
        for key in ['a', 'b', 'c', 'a'] {
            rounds.get_or_insert(&key);
        }
        assert_eq!(order(&mut rounds, 5), "abcab");
        rounds.remove(&'a');
        assert_eq!(order(&mut rounds, 3), "cbc");
        rounds.get_or_insert(&'a');
        assert_eq!(order(&mut rounds, 3), "bca");
        rounds.remove_first();
        assert_eq!((order(&mut rounds, 2).as_str(), rounds.len()), ("ca", 2));
        assert!(rounds.get_mut(&'b').is_none());
    }
}
