//! What the scheduler keeps about one tool. It is found again by the tool's name, so that a tool that is replaced keeps
//! its place in the queue, its rate and its counts.

use super::{Limiter, RetryBudget, ToolQueue};
use crate::{blocking::StuckCounter, monitor::Meter, statuses::LastSuccess};

pub(crate) struct ToolRuntime {
    /// Slots, and the queue for them.
    pub(crate) queue: ToolQueue,
    /// Rates.
    pub(crate) limiter: Limiter,
    /// How much may be tried again.
    pub(crate) retry_budget: RetryBudget,
    /// Counts and times.
    pub(crate) meter: Meter,
    /// When it last did well.
    pub(crate) last_success: LastSuccess,
    /// Functions that run on although nobody waits for them.
    pub(crate) stuck: StuckCounter,
}
