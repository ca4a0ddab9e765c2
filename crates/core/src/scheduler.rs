//! When a call may run: slots and the fair queue, rate limits, the budget for retries, the guard against runs in circles,
//! kept answers.
//!
//! In: who asks, what the tool's owner allows, and the time. Out: a slot, a turn, a yes or a no. Nothing here knows an
//! outcome or a clock; the pipeline asks in its own order and turns a no into an error.

mod budget;
mod desk;
mod limiter;
mod queue;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

pub(crate) use budget::Budget;
pub(crate) use desk::Desk;
pub(crate) use limiter::{Asker, Excess, Granted, Left, Limiter, Token};
pub(crate) use queue::{Bound, Bounds, Full, Lane, Party, Place, Queue, RETRY, Slot, Waiting};

use crate::result_cache::ResultCache;
use crate::{
    blocking::Stuck,
    guard::{Guard, RunLimits},
    monitor::Meter,
    statuses::LastSuccess,
};
use toolhub_types::tool::ToolName;

/// How many answers are kept, and how many bytes of them.
const ANSWERS: usize = 10_000;
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// What all calls of a hub share on their way to a tool.
pub(crate) struct Scheduler {
    queue: Queue,
    pub(crate) guard: Guard,
    pub(crate) result_cache: ResultCache,
    desks: Mutex<HashMap<ToolName, Weak<Desk>>>,
}

impl Scheduler {
    pub(crate) fn new(all: Option<usize>, bounds: Bounds, runs: RunLimits) -> Self {
        let (guard, result_cache) = (Guard::new(runs), ResultCache::new(ANSWERS, ANSWER_BYTES));
        Self { queue: Queue::new(all, bounds), guard, result_cache, desks: Mutex::default() }
    }

    /// How many calls may wait in all.
    pub(crate) fn most_waiting(&self) -> usize {
        self.queue.most()
    }

    /// How many calls wait for their turn.
    pub(crate) fn queued(&self) -> usize {
        self.queue.queued()
    }

    /// The desk of a tool. One that takes the place of another under the same name finds what that one left.
    pub(crate) fn desk(&self, tool: &ToolName) -> Arc<Desk> {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(desk) = desks.get(tool).and_then(Weak::upgrade) {
            return desk;
        }
        // Tools may come and go for ever under new names; what nobody uses is cleared away when the map would grow.
        if desks.len() == desks.capacity() {
            desks.retain(|_, desk| desk.strong_count() > 0);
        }
        let desk = Arc::new(Desk {
            lane: self.queue.lane(),
            limiter: Limiter::default(),
            budget: Budget::default(),
            meter: Meter::default(),
            succeeded: LastSuccess::default(),
            stuck: Stuck::default(),
        });
        desks.insert(tool.clone(), Arc::downgrade(&desk));
        desk
    }
}
