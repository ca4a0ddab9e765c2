//! The slot guard, and the future that waits for one.
//!
//! Dropping a [`Slot`] releases it. A [`SlotWaiter`] resolves to a slot; dropped before that, it leaves the queue
//! immediately, and a slot that was handed to it meanwhile goes to the next waiter.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot::Receiver;

use super::{FairnessKey, ToolQueue};

/// The right to run, for as long as it is held.
#[must_use = "dropping a slot releases it"]
pub(crate) struct Slot(pub(super) Option<ToolQueue>);

/// A call that waits for a slot.
#[must_use = "dropping the waiter leaves the queue"]
pub(crate) struct SlotWaiter {
    queue: ToolQueue,
    key: FairnessKey,
    sequence: u64,
    receiver: Receiver<Slot>,
    served: bool,
}

impl Slot {
    /// A slot without any limit; its drop does nothing.
    pub(super) fn unlimited() -> Self {
        Self(None)
    }

    /// A slot that was taken from this queue.
    pub(super) fn new(queue: ToolQueue) -> Self {
        Self(Some(queue))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.release();
        }
    }
}

impl SlotWaiter {
    pub(super) fn new(queue: ToolQueue, key: FairnessKey, sequence: u64, receiver: Receiver<Slot>) -> Self {
        Self { queue, key, sequence, receiver, served: false }
    }

    /// A slot, or `None` if the waiters of the queue were [refused](ToolQueue::refuse_waiters).
    pub(crate) async fn slot_or_refusal(mut self) -> Option<Slot> {
        poll_fn(|cx| self.poll_slot(cx)).await
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Option<Slot>> {
        let slot = ready!(Pin::new(&mut self.receiver).poll(cx));
        self.served = true;
        Poll::Ready(slot.ok())
    }
}

impl Future for SlotWaiter {
    type Output = Slot;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Slot> {
        let slot = ready!(self.poll_slot(cx));
        Poll::Ready(slot.expect("the queue keeps a waiter's sender until it sends a slot or the waiter is removed"))
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        if !self.served {
            // Dropped after the lock is released, because the drop may wake a task. If there is no sender, the slot is
            // in the channel or about to be; dropping the receiver releases it.
            let sender = self.queue.wait_queue().remove(&self.queue, &self.key, self.sequence);
            drop(sender);
            self.queue.notify();
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
        let mut debug = f.debug_struct("SlotWaiter");
        debug.field("key", &self.key).field("sequence", &self.sequence).finish_non_exhaustive()
    }
}
