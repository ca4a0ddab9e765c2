//! All waiters of all tools and the order in which they are served. All of it is under one lock.
//!
//! In: a waiter is added or removed, or a slot may have become free. Out: slots paired with the waiters that get them.
//! [`deliver`] sends them after the lock is released, because sending wakes tasks, and a slot whose waiter is gone
//! comes straight back here.
//!
//! The ready list holds only the tool queues that wait for nothing but a shared slot; a queue whose own slots are all
//! taken is not in it. So a released slot finds the next call without visiting queues that cannot use it.

use std::{
    collections::{BTreeMap, btree_map},
    sync::atomic::Ordering::SeqCst,
};

use tokio::sync::oneshot::Sender;

use super::{FairnessKey, QueueFull, QueueLimit, RETRY_AFTER, Slot, ToolQueue, round_robin::RoundRobin, try_increment};

/// All waiters.
#[derive(Default)]
pub(super) struct WaitQueue {
    /// The tool queues that have waiters.
    queues: BTreeMap<u64, Waiters>,
    /// The tool queues that may have a slot of their own free.
    ready: RoundRobin<u64, ()>,
    next_sequence: u64,
}

/// The waiters of one tool. While there are any, they keep the tool queue alive, and through it the shared queue.
struct Waiters {
    queue: ToolQueue,
    by_key: RoundRobin<FairnessKey, BTreeMap<u64, Sender<Slot>>>,
}

/// A slot and the waiter that gets it.
pub(super) type Handoff = (Sender<Slot>, Slot);

/// Sends the slots to their waiters. If a waiter is gone, the slot is dropped, which hands it to the next one.
pub(super) fn deliver(handoffs: Vec<Handoff>) {
    for (sender, slot) in handoffs {
        drop(sender.send(slot));
    }
}

impl WaitQueue {
    /// Adds a waiter and serves every waiter that can be served, perhaps the new one. The limits are checked last,
    /// because only a call that has to wait can be refused.
    pub(super) fn enqueue(
        &mut self,
        queue: &ToolQueue,
        key: &FairnessKey,
        sender: Sender<Slot>,
    ) -> (Vec<Handoff>, Result<u64, QueueFull>) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        queue.0.queued.fetch_add(1, SeqCst);
        queue.0.shared.queued.fetch_add(1, SeqCst);
        let waiters = self.queues.entry(queue.0.key);
        let waiters = waiters.or_insert_with(|| Waiters { queue: queue.clone(), by_key: RoundRobin::default() });
        waiters.by_key.get_or_insert(key).insert(sequence, sender);
        let handoffs = self.dispatch(queue);

        let limits = &queue.0.shared.queue_limits;
        let exceeded = if queue.0.queued.load(SeqCst) > limits.per_tool {
            Some(QueueLimit::Tool)
        } else {
            (queue.0.shared.queued.load(SeqCst) > limits.total).then_some(QueueLimit::Global)
        };
        match exceeded {
            Some(limit) if self.remove(queue, key, sequence).is_some() => {
                (handoffs, Err(QueueFull { limit, retry_after: RETRY_AFTER }))
            }
            _ => (handoffs, Ok(sequence)),
        }
    }

    /// Removes a waiter that gave up; `None` if it was served already.
    pub(super) fn remove(&mut self, queue: &ToolQueue, key: &FairnessKey, sequence: u64) -> Option<Sender<Slot>> {
        let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(queue.0.key) else { return None };
        let by_key = &mut waiters.get_mut().by_key;
        let calls = by_key.get_mut(key)?;
        let sender = calls.remove(&sequence)?;
        if calls.is_empty() {
            by_key.remove(key);
        }
        if by_key.is_empty() {
            waiters.remove();
            self.ready.remove(&queue.0.key);
            queue.0.shared.ready_queues.store(self.ready.len(), SeqCst);
        }
        decrement_queued(queue);
        Some(sender)
    }

    /// Assigns the free slots after a change in this tool queue.
    pub(super) fn dispatch(&mut self, changed: &ToolQueue) -> Vec<Handoff> {
        let shared = &changed.0.shared;
        if self.queues.contains_key(&changed.0.key) {
            self.ready.get_or_insert(&changed.0.key);
        }
        // Published before the slots are tried, so that a call that releases one after that dispatches again.
        shared.ready_queues.store(self.ready.len(), SeqCst);
        let mut handoffs = Vec::new();
        while let Some((key, ())) = self.ready.first() {
            let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(*key) else {
                self.ready.remove_first();
                continue;
            };
            let queue = waiters.get().queue.clone();
            if !try_increment(&queue.0.running, queue.0.limit.load(SeqCst)) {
                self.ready.remove_first();
                continue;
            }
            if !shared.limit.is_none_or(|limit| try_increment(&shared.running, limit)) {
                queue.0.running.fetch_sub(1, SeqCst);
                break;
            }
            handoffs.push((waiters.get_mut().pop_next(), Slot::new(queue.clone())));
            decrement_queued(&queue);
            if waiters.get().by_key.is_empty() {
                waiters.remove();
                self.ready.remove_first();
            } else {
                self.ready.rotate();
            }
        }
        shared.ready_queues.store(self.ready.len(), SeqCst);
        handoffs
    }
}

impl Waiters {
    /// The first waiter of the fairness key whose turn it is.
    fn pop_next(&mut self) -> Sender<Slot> {
        let (_, calls) = self.by_key.first().expect("a tool queue without fairness keys is removed");
        let (_, sender) = calls.pop_first().expect("a fairness key without waiters is removed");
        if calls.is_empty() {
            self.by_key.remove_first();
        } else {
            self.by_key.rotate();
        }
        sender
    }
}

fn decrement_queued(queue: &ToolQueue) {
    queue.0.queued.fetch_sub(1, SeqCst);
    queue.0.shared.queued.fetch_sub(1, SeqCst);
}

#[cfg(test)]
impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.ready.is_empty()
    }
}
