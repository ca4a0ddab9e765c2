//! Decides when a call may run: concurrency slots with a fair queue, rate limits, retry budget, runaway guard and
//! result cache.
//!
//! In: the subject of the call, the tool's limits, and the time. Out: a slot, a rate permit, or a refusal. Nothing here
//! knows an outcome; the pipeline calls these parts in its own order and turns a refusal into an error. Only
//! `shared_rates` and `shared_permits`, for several nodes, use the store and its clock.

mod limiter;
mod queue;
mod retry_budget;
mod shared_permits;
mod shared_rates;
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
pub(crate) use shared_permits::{SharedPermits, run_shared_permits};
pub(crate) use shared_rates::{SharedPermit, SharedRates};
pub(crate) use tool_runtime::ToolRuntime;

use crate::{
    blocking::StuckCounter,
    monitor::Meter,
    result_cache::ResultCache,
    runaway::{RunLimits, RunawayGuard},
    statuses::LastSuccess,
};
use toolhub_types::{count_by_key, tool::ToolName};

/// Bounds of the result cache: entries and bytes.
const CACHE_MAX_ENTRIES: usize = 10_000;
const CACHE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The scheduling state that all calls of a hub share.
pub(crate) struct Scheduler {
    queue: Queue,
    pub(crate) runaway_guard: RunawayGuard,
    pub(crate) result_cache: ResultCache,
    tool_runtimes: Mutex<HashMap<ToolName, Weak<ToolRuntime>>>,
}

impl Scheduler {
    pub(crate) fn new(max_concurrency: Option<usize>, queue_limits: QueueLimits, run_limits: RunLimits) -> Self {
        Self {
            queue: Queue::new(max_concurrency, queue_limits),
            runaway_guard: RunawayGuard::new(run_limits),
            result_cache: ResultCache::new(CACHE_MAX_ENTRIES, CACHE_MAX_BYTES),
            tool_runtimes: Mutex::default(),
        }
    }

    /// Whether a tenant may add no more to this many waiting calls of all tools and tenants.
    pub(crate) fn is_full(&self, total: usize, of_tenant: usize) -> bool {
        count_by_key::is_full(self.queue.max_queued(), total, of_tenant)
    }

    /// How many calls may wait for a slot.
    pub(crate) fn max_queued(&self) -> usize {
        self.queue.max_queued()
    }

    /// How many calls wait for a slot.
    pub(crate) fn queued(&self) -> usize {
        self.queue.queued()
    }

    /// The runtime state of a tool, by name: a tool that replaces another one continues with its state.
    pub(crate) fn tool_runtime(&self, tool: &ToolName) -> Arc<ToolRuntime> {
        let mut runtimes = self.tool_runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtimes.get(tool).and_then(Weak::upgrade) {
            return runtime;
        }
        // New tool names may keep coming; entries that are no longer used are removed whenever the map would grow.
        if runtimes.len() == runtimes.capacity() {
            runtimes.retain(|_, runtime| runtime.strong_count() > 0);
        }
        let runtime = Arc::new(ToolRuntime {
            queue: self.queue.tool_queue(),
            permit_queue: self.queue.permit_queue(),
            limiter: Limiter::default(),
            retry_budget: RetryBudget::default(),
            meter: Meter::default(),
            last_success: LastSuccess::default(),
            stuck: StuckCounter::default(),
        });
        runtimes.insert(tool.clone(), Arc::downgrade(&runtime));
        runtime
    }
}
