//! What the abort of an execution says about its tool.
//!
//! In: what the executor knows: that the tool has not started, or that only this caller is concerned. Out: whether a timeout or a
//! cancellation had an effect and counts against the tool; `pipeline/attempts.rs` asks.

use std::sync::atomic::{AtomicBool, Ordering};

use super::CallContext;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
};

#[derive(Default)]
pub(super) struct AbortFlags {
    is_waiting_to_start: AtomicBool,
    timeouts_are_uncounted: AtomicBool,
}

impl CallContext {
    /// Waits for something that the tool needs before it can start: a lock, its state, a connection. A call that is aborted
    /// here had no effect, and does not count against its tool.
    ///
    /// # Errors
    /// When the call was cancelled meanwhile: the tool must not start then.
    pub async fn wait_before_start<T>(&self, wait: impl Future<Output = T>) -> Result<T, ToolError> {
        self.0.abort.is_waiting_to_start.store(true, Ordering::Release);
        let ready = wait.await;
        self.0.abort.is_waiting_to_start.store(false, Ordering::Release);
        if self.call().is_cancelled() {
            return Err(
                ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call").effect(Effect::None)
            );
        }
        Ok(ready)
    }

    /// Whether the tool has not started, because it is in `wait_before_start` or was aborted there.
    pub(crate) fn is_waiting_to_start(&self) -> bool {
        self.0.abort.is_waiting_to_start.load(Ordering::Acquire)
    }

    /// Says that a timeout of this execution does not count against the tool, because no other tenant uses what it waits for: a connection
    /// of one tenant, for example.
    pub fn leave_timeouts_uncounted(&self) {
        self.0.abort.timeouts_are_uncounted.store(true, Ordering::Release);
    }

    /// Whether a timeout counts against the tool, as far as its executor says.
    pub(crate) fn timeouts_count(&self) -> bool {
        !self.0.abort.timeouts_are_uncounted.load(Ordering::Acquire)
    }
}
