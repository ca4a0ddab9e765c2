//! When a call may run: slots and the fair queue, rate limits, the budget for retries.
//!
//! In: who asks, what the tool's owner allows, and the time. Out: a slot, a turn, a yes or a no. Nothing here knows a
//! tool, an outcome or a clock; the pipeline asks in its own order and turns a no into an error.

pub(crate) mod queue;
