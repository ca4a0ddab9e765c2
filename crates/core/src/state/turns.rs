//! Whose turn it is to write a state.
//!
//! In: a call that may write the states of its tool. Out: the call, alone with them until it is committed. Calls on this
//! node write one context one after the other, in the order they came, so they meet no conflict; other nodes are kept out
//! by the compare-and-set at the end. Readers take no turn.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::ContextId;
use crate::{held::Thing, sharded::Sharded};
use toolhub_types::ids::Tenant;

type Whose = (Tenant, ContextId);
type Lock = Arc<AsyncMutex<()>>;

/// The turns of all states somebody writes or waits for.
#[derive(Default)]
pub(crate) struct Turns(Sharded<HashMap<Whose, Lock>>);

/// A place in the line for one state, forgotten with the last one who stands there.
pub(crate) struct Place {
    whose: Whose,
    lock: Lock,
    turns: Arc<Turns>,
}

/// A turn, until it is dropped.
pub(crate) struct Turn {
    // Before the place, so that the place sees whether anybody else is there.
    _guard: OwnedMutexGuard<()>,
    _place: Place,
}

impl Turns {
    pub(crate) fn place(self: &Arc<Self>, whose: Whose) -> Place {
        let lock = self.0.part(&whose).entry(whose.clone()).or_default().clone();
        Place { whose, lock, turns: self.clone() }
    }
}

impl Place {
    /// What is held with the turn. Weak: calls that outlive the turn must not keep its place.
    pub(crate) fn thing(&self) -> Thing {
        let lock: Weak<AsyncMutex<()>> = Arc::downgrade(&self.lock);
        lock
    }

    pub(crate) async fn turn(self) -> Turn {
        Turn { _guard: self.lock.clone().lock_owned().await, _place: self }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut part = self.turns.0.part(&self.whose);
        // The map's share and this one: nobody else is there, and while the part is locked nobody comes.
        if Arc::strong_count(&self.lock) == 2 {
            part.remove(&self.whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held;

    #[tokio::test]
    async fn a_place_is_forgotten_with_the_last_one_there_whoever_was_called_from_it_still_runs() {
        let turns = Arc::new(Turns::default());
        let whose = || (Tenant::default(), "t/s".parse().unwrap());
        let places = || turns.0.parts().map(|part| part.len()).sum::<usize>();
        let (place, waiting) = (turns.place(whose()), turns.place(whose()));
        let things = vec![place.thing()];
        let turn = place.turn().await;
        let Ok(called_from_there) = held::holding(things, async { held::current() }).await else {
            panic!("held alone")
        };
        assert!(called_from_there.is_some());
        drop(turn);
        assert_eq!(places(), 1, "somebody waits");
        drop(waiting);
        assert_eq!(places(), 0);
    }
}
