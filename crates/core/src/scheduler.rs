//! When a call may run: slots and the fair queue, rate limits, the budget for retries, the guard against runs in circles,
//! kept answers.
//!
//! In: who asks, what the tool's owner allows, and the time. Out: a slot, a turn, a yes or a no. Nothing here knows an
//! outcome or a clock; the pipeline asks in its own order and turns a no into an error.

mod limiter;
mod queue;
mod retry_budget;
mod tool_runtime;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

pub(crate) use limiter::{Limiter, Quota, RateExceeded, RatePermit, Reservation, Subject};
pub(crate) use queue::{
    FairnessKey, Queue, QueueFull, QueueLimit, QueueLimits, RETRY_AFTER, Slot, SlotOrWaiter, SlotWaiter, ToolQueue,
};
pub(crate) use retry_budget::RetryBudget;
pub(crate) use tool_runtime::ToolRuntime;

use crate::result_cache::ResultCache;
use crate::{
    blocking::StuckCounter,
    monitor::Meter,
    runaway::{RunLimits, RunawayGuard},
    statuses::LastSuccess,
};
use toolhub_types::tool::ToolName;

/// How many answers are kept, and how many bytes of them.
const CACHE_MAX_ENTRIES: usize = 10_000;
const CACHE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// What all calls of a hub share on their way to a tool.
pub(crate) struct Scheduler {
    queue: Queue,
    pub(crate) runaway_guard: RunawayGuard,
    pub(crate) result_cache: ResultCache,
    tool_runtimes: Mutex<HashMap<ToolName, Weak<ToolRuntime>>>,
}

impl Scheduler {
    pub(crate) fn new(all: Option<usize>, bounds: QueueLimits, runs: RunLimits) -> Self {
        let (guard, result_cache) = (RunawayGuard::new(runs), ResultCache::new(CACHE_MAX_ENTRIES, CACHE_MAX_BYTES));
        Self { queue: Queue::new(all, bounds), runaway_guard: guard, result_cache, tool_runtimes: Mutex::default() }
    }

    /// How many calls may wait in all.
    pub(crate) fn max_queued(&self) -> usize {
        self.queue.max_queued()
    }

    /// How many calls wait for their turn.
    pub(crate) fn queued(&self) -> usize {
        self.queue.queued()
    }

    /// The desk of a tool. One that takes the place of another under the same name finds what that one left.
    pub(crate) fn tool_runtime(&self, tool: &ToolName) -> Arc<ToolRuntime> {
        let mut desks = self.tool_runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(desk) = desks.get(tool).and_then(Weak::upgrade) {
            return desk;
        }
        // Tools may come and go for ever under new names; what nobody uses is cleared away when the map would grow.
        if desks.len() == desks.capacity() {
            desks.retain(|_, desk| desk.strong_count() > 0);
        }
        let desk = Arc::new(ToolRuntime {
            queue: self.queue.tool_queue(),
            limiter: Limiter::default(),
            retry_budget: RetryBudget::default(),
            meter: Meter::default(),
            last_success: LastSuccess::default(),
            stuck: StuckCounter::default(),
        });
        desks.insert(tool.clone(), Arc::downgrade(&desk));
        desk
    }
}
