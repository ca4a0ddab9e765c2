//! What the scheduler keeps about one tool. It is found again by the tool's name, so that a tool that is replaced keeps
//! its place in the queue, its rate and its counts.

use super::{Budget, Lane, Limiter};
use crate::{blocking::Stuck, monitor::Meter, statuses::LastSuccess};

pub(crate) struct Desk {
    /// Slots, and the queue for them.
    pub(crate) lane: Lane,
    /// Rates.
    pub(crate) limiter: Limiter,
    /// How much may be tried again.
    pub(crate) budget: Budget,
    /// Counts and times.
    pub(crate) meter: Meter,
    /// When it last did well.
    pub(crate) succeeded: LastSuccess,
    /// Functions that run on although nobody waits for them.
    pub(crate) stuck: Stuck,
}
