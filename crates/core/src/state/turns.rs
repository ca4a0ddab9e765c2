//! Whose turn it is to write a state.
//!
//! In: a call that may write the states of its tool. Out: the call, alone with them until it is committed. Calls on this
//! node write one context one after the other, in the order they came, so they meet no conflict; other nodes are kept out
//! by the compare-and-set at the end. Readers take no turn.

use std::sync::{Arc, Weak};

use futures_core::future::BoxFuture;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::ContextId;
use crate::{
    execution::{CallContext, Reply},
    held::{self, Thing},
    sharded::Sharded,
};
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::{StateName, Tenant},
};

type Whose = (Tenant, ContextId);
type Lock = Arc<AsyncMutex<()>>;

/// The turns of all states somebody writes or waits for.
#[derive(Default)]
pub(crate) struct Turns(Sharded<Whose, Lock>);

/// A place in the line for one state, forgotten with the last one who stands there.
struct Place {
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
    fn place(self: &Arc<Self>, whose: Whose) -> Place {
        let lock = self.0.part(&whose).entry(whose.clone()).or_default().clone();
        Place { whose, lock, turns: self.clone() }
    }
}

impl Place {
    /// What is held with the turn. Weak: calls that outlive the turn must not keep its place.
    fn thing(&self) -> Thing {
        let lock: Weak<AsyncMutex<()>> = Arc::downgrade(&self.lock);
        lock
    }

    async fn turn(self) -> Turn {
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

/// Runs a tool alone with its states. They stay its own until the call's desk is cleared.
pub(crate) fn alone<'a>(
    context: &'a CallContext,
    work: BoxFuture<'a, Result<Reply, ToolError>>,
) -> BoxFuture<'a, Result<Reply, ToolError>> {
    Box::pin(async move {
        let Some(thread) = context.thread() else { return work.await };
        let services = context.services();
        // Always in the order of their names, so that two calls never hold what the other waits for.
        let places: Vec<Place> = (context.envelope().tool.state.names.iter())
            .map(|name| services.turns.place((context.tenant().clone(), services.state.context(name, thread))))
            .collect();
        let things = places.iter().map(Place::thing).collect();
        let alone = async {
            for place in places {
                context.desk().keep(context.before_it_begins(place.turn()).await?);
            }
            work.await
        };
        held::holding(things, alone).await.unwrap_or_else(|held::Nested| Err(nested(context)))
    })
}

fn nested(context: &CallContext) -> ToolError {
    let states: Vec<&str> = context.envelope().tool.state.names.iter().map(StateName::as_str).collect();
    let text = format!(
        "a call around this one is writing the state `{}` of this thread; the two would wait for each other",
        states.join("`, `")
    );
    let conflict = ToolError::hidden(ErrorKind::StateConflict, text.clone()).uncounted().effect(Effect::None);
    ToolError { model: Some(text), ..conflict }
}

#[cfg(test)]
mod tests {
    use super::*;

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
