//! The right to run, and the wait for it.
//!
//! A `Slot` gives everything back when it is dropped. A `Waiting` becomes a slot in its turn; dropped before that it
//! leaves the queue at once, and a slot that was given to it meanwhile goes on to the next.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot::Receiver;

use super::{FairnessKey, ToolQueue};

/// The right to run, for as long as it is held.
#[must_use = "a slot is given back when it is dropped"]
pub(crate) struct Slot(pub(super) Option<ToolQueue>);

/// One who waits for a slot.
#[must_use = "whoever does not wait leaves the queue"]
pub(crate) struct SlotWaiter {
    queue: ToolQueue,
    key: FairnessKey,
    sequence: u64,
    slot: Receiver<Slot>,
    served: bool,
}

impl Slot {
    /// A slot where nothing is limited.
    pub(super) fn unlimited() -> Self {
        Self(None)
    }

    /// A slot that was taken in this lane.
    pub(super) fn new(lane: ToolQueue) -> Self {
        Self(Some(lane))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(lane) = self.0.take() {
            lane.release();
        }
    }
}

impl SlotWaiter {
    pub(super) fn new(lane: ToolQueue, who: FairnessKey, ticket: u64, slot: Receiver<Slot>) -> Self {
        Self { queue: lane, key: who, sequence: ticket, slot, served: false }
    }
}

impl Future for SlotWaiter {
    type Output = Slot;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Slot> {
        let slot = ready!(Pin::new(&mut self.slot).poll(cx));
        self.served = true;
        Poll::Ready(slot.expect("the queue keeps everybody until it is served or leaves"))
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        if !self.served {
            // Dropped after the lock is gone, because it may wake somebody. If there is none, the slot is in the
            // channel or about to be; the channel's end gives it back.
            let left = self.queue.wait_queue().remove(&self.queue, &self.key, self.sequence);
            drop(left);
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.0).finish()
    }
}

impl fmt::Debug for SlotWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("who", &self.key).field("ticket", &self.sequence).finish_non_exhaustive()
    }
}
