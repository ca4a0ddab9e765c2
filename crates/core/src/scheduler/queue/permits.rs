//! Tool queues whose calls need a permit of the store besides their slots.
//!
//! In: waiting calls. Out: for the holder of the permits, first a slot as soon as a call waits and its slots are free, so that no call asks the
//! store for a call that could not run; then, with a permit, that slot goes to the call whose turn it is. Without one the slot goes
//! back, and the call waits on and holds nothing.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::sync::{Notify, oneshot};

use super::{FairnessKey, Queue, QueueFull, SeqCst, Slot, SlotOrWaiter, ToolQueue, wait_queue};

/// Resolves to a slot of a tool queue once a call waits for it. Dropped before that, it takes none.
pub(crate) struct SlotReservation {
    queue: ToolQueue,
    receiver: oneshot::Receiver<Slot>,
}

impl Queue {
    /// The queue of a tool whose calls need permits.
    pub(crate) fn permit_queue(&self) -> ToolQueue {
        self.new_tool_queue(Some(Notify::new()))
    }
}

impl ToolQueue {
    /// Whether its calls need permits.
    pub(super) fn needs_permits(&self) -> bool {
        self.0.permit_demand.is_some()
    }

    /// Tells the queues of a hub apart.
    pub(crate) fn key(&self) -> u64 {
        self.0.key
    }

    /// A position in the queue of a tool whose calls need permits; `limit` is the number of the tool's own slots.
    ///
    /// # Errors
    /// When the queue is full.
    pub(crate) fn wait_for_permit(&self, limit: usize, key: &FairnessKey) -> Result<SlotOrWaiter, QueueFull> {
        self.0.limit.store(limit.max(1), SeqCst);
        let position = self.enqueue(key)?;
        self.notify();
        Ok(position)
    }

    /// The next slot for a waiting call. There is one reservation at a time.
    pub(crate) fn reserve(&self) -> SlotReservation {
        let (sender, receiver) = oneshot::channel();
        let handoffs = self.wait_queue().reserve(self, sender);
        wait_queue::deliver(handoffs);
        SlotReservation { queue: self.clone(), receiver }
    }

    /// Gives a reserved slot to the call whose turn it is. Returns whether one still waits.
    pub(crate) fn serve(&self, mut slot: Slot) -> bool {
        loop {
            let next = self.wait_queue().take_next(self);
            let Some(waiter) = next else { return false };
            match waiter.send(slot) {
                Ok(()) => return true,
                Err(unused) => slot = unused,
            }
        }
    }

    /// Removes all waiting calls without a slot.
    pub(crate) fn refuse_waiters(&self) {
        loop {
            let next = self.wait_queue().take_next(self);
            if next.is_none() {
                return;
            }
        }
    }

    /// Resolves when a call came or a slot was released since the last time.
    pub(crate) async fn permit_demand_changed(&self) {
        match &self.0.permit_demand {
            Some(demand) => demand.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Wakes the holder of the permits.
    pub(super) fn notify(&self) {
        if let Some(demand) = &self.0.permit_demand {
            demand.notify_one();
        }
    }
}

impl Future for SlotReservation {
    type Output = Slot;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Slot> {
        let slot = ready!(Pin::new(&mut self.receiver).poll(cx));
        Poll::Ready(slot.expect("the queue keeps the sender until it sends a slot or the reservation is dropped"))
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        // Dropped after the lock is released. A slot in the channel is released with the receiver.
        let sender = self.queue.wait_queue().unreserve(&self.queue);
        drop(sender);
    }
}
