//! The scheduler's runtime state of one tool: queue, rate limits, retry budget, metrics.
//!
//! It is looked up by the tool's name, so that a tool that is replaced keeps its queue, its rates and its counts.

use super::{Limiter, RetryBudget, ToolQueue};
use crate::{blocking::StuckCounter, monitor::Meter, statuses::LastSuccess};

pub(crate) struct ToolRuntime {
    /// Concurrency slots, and the wait queue for them.
    pub(crate) queue: ToolQueue,
    /// The same for calls that need a permit shared by all nodes. The policy of a call decides which of both it uses.
    pub(crate) permit_queue: ToolQueue,
    /// Rate limits.
    pub(crate) limiter: Limiter,
    pub(crate) retry_budget: RetryBudget,
    /// Counts and latencies.
    pub(crate) meter: Meter,
    /// When a call last succeeded.
    pub(crate) last_success: LastSuccess,
    /// Blocking functions that still run after their call has ended.
    pub(crate) stuck: StuckCounter,
}

impl ToolRuntime {
    /// How many calls wait for a slot.
    pub(crate) fn queued(&self) -> usize {
        self.queue.queued() + self.permit_queue.queued()
    }
}
