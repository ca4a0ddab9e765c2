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
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::oneshot::Sender;

use super::{
    FairnessKey, QueueFull, QueueLimit, QueueLimits, RETRY_AFTER, Slot, ToolQueue, round_robin::RoundRobin,
    try_increment,
};
use toolhub_types::{
    count_by_key::is_full,
    ids::{Tenant, ThreadId},
};

/// All waiters.
#[derive(Default)]
pub(super) struct WaitQueue {
    /// The tool queues that have waiters.
    queues: BTreeMap<u64, Waiters>,
    /// The tool queues that may have a slot of their own free.
    ready: RoundRobin<u64, ()>,
    /// How many calls of each tenant wait, for all tools.
    queued_by_tenant: BTreeMap<Tenant, usize>,
    /// Who gets the next slot of a tool queue whose calls also need a permit.
    reservations: BTreeMap<u64, Sender<Slot>>,
    next_sequence: u64,
}

/// The waiters of one tool. While there are any, they keep the tool queue alive, and through it the shared queue.
struct Waiters {
    queue: ToolQueue,
    by_tenant: RoundRobin<Tenant, TenantWaiters>,
}

/// The waiters of one tool and tenant.
#[derive(Default)]
struct TenantWaiters {
    by_thread: RoundRobin<Option<ThreadId>, BTreeMap<u64, Sender<Slot>>>,
    count: usize,
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
        let waiters = waiters.or_insert_with(|| Waiters { queue: queue.clone(), by_tenant: RoundRobin::default() });
        let of_tenant = waiters.by_tenant.get_or_insert(&key.tenant);
        of_tenant.count += 1;
        of_tenant.by_thread.get_or_insert(&key.thread).insert(sequence, sender);
        *self.queued_by_tenant.entry(key.tenant.clone()).or_default() += 1;
        let handoffs = self.dispatch(queue);
        match self.exceeded_limit(queue, &key.tenant) {
            Some(limit) if self.remove(queue, key, sequence).is_some() => {
                (handoffs, Err(QueueFull { limit, retry_after: RETRY_AFTER }))
            }
            _ => (handoffs, Ok(sequence)),
        }
    }

    /// The limit that the last waiter of the tenant exceeds, if it still waits.
    fn exceeded_limit(&mut self, queue: &ToolQueue, tenant: &Tenant) -> Option<QueueLimit> {
        let QueueLimits { per_tool, total } = queue.0.shared.queue_limits;
        let waiters = self.queues.get_mut(&queue.0.key)?;
        let own = waiters.by_tenant.get_mut(tenant)?.count.checked_sub(1)?;
        let own_in_total = self.queued_by_tenant.get(tenant)?.checked_sub(1)?;
        let others = |queued: &AtomicUsize| queued.load(SeqCst).saturating_sub(1);
        if is_full(per_tool, others(&queue.0.queued), own) {
            return Some(QueueLimit::Tool);
        }
        is_full(total, others(&queue.0.shared.queued), own_in_total).then_some(QueueLimit::Global)
    }

    /// Removes a waiter that gave up; `None` if it was served already.
    pub(super) fn remove(&mut self, queue: &ToolQueue, key: &FairnessKey, sequence: u64) -> Option<Sender<Slot>> {
        let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(queue.0.key) else { return None };
        let by_tenant = &mut waiters.get_mut().by_tenant;
        let of_tenant = by_tenant.get_mut(&key.tenant)?;
        let calls = of_tenant.by_thread.get_mut(&key.thread)?;
        let sender = calls.remove(&sequence)?;
        if calls.is_empty() {
            of_tenant.by_thread.remove(&key.thread);
        }
        of_tenant.count -= 1;
        if of_tenant.count == 0 {
            by_tenant.remove(&key.tenant);
        }
        if by_tenant.is_empty() {
            waiters.remove();
            self.ready.remove(&queue.0.key);
            queue.0.shared.ready_queues.store(self.ready.len(), SeqCst);
        }
        decrement_queued(queue, &mut self.queued_by_tenant, &key.tenant);
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
        while let Some((&key, ())) = self.ready.first() {
            let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(key) else {
                self.ready.remove_first();
                continue;
            };
            let queue = waiters.get().queue.clone();
            let reservation = match (queue.needs_permits(), self.reservations.entry(key)) {
                (false, _) => None,
                (true, btree_map::Entry::Occupied(reservation)) => Some(reservation),
                (true, btree_map::Entry::Vacant(_)) => {
                    self.ready.remove_first();
                    continue;
                }
            };
            if !try_increment(&queue.0.running, queue.0.limit.load(SeqCst)) {
                self.ready.remove_first();
                continue;
            }
            if !shared.limit.is_none_or(|limit| try_increment(&shared.running, limit)) {
                queue.0.running.fetch_sub(1, SeqCst);
                break;
            }
            if let Some(reservation) = reservation {
                // The call stays in the queue until there is a permit for it.
                handoffs.push((reservation.remove(), Slot::new(queue)));
                self.ready.remove_first();
                continue;
            }
            let (tenant, sender) = waiters.get_mut().pop_next();
            handoffs.push((sender, Slot::new(queue.clone())));
            decrement_queued(&queue, &mut self.queued_by_tenant, &tenant);
            if waiters.get().by_tenant.is_empty() {
                waiters.remove();
                self.ready.remove_first();
            } else {
                self.ready.rotate();
            }
        }
        shared.ready_queues.store(self.ready.len(), SeqCst);
        handoffs
    }

    /// Sets who gets the next slot of this tool queue, once a call waits for it.
    pub(super) fn reserve(&mut self, queue: &ToolQueue, sender: Sender<Slot>) -> Vec<Handoff> {
        self.reservations.insert(queue.0.key, sender);
        self.dispatch(queue)
    }

    /// No task waits for the next slot of this tool queue any more.
    pub(super) fn unreserve(&mut self, queue: &ToolQueue) -> Option<Sender<Slot>> {
        self.reservations.remove(&queue.0.key)
    }

    /// Removes the waiter of this tool queue whose turn it is.
    pub(super) fn take_next(&mut self, queue: &ToolQueue) -> Option<Sender<Slot>> {
        let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(queue.0.key) else { return None };
        let (tenant, sender) = waiters.get_mut().pop_next();
        if waiters.get().by_tenant.is_empty() {
            waiters.remove();
            self.ready.remove(&queue.0.key);
            queue.0.shared.ready_queues.store(self.ready.len(), SeqCst);
        }
        decrement_queued(queue, &mut self.queued_by_tenant, &tenant);
        Some(sender)
    }
}

impl Waiters {
    /// The first waiter of the tenant and thread whose turn it is, and the tenant.
    fn pop_next(&mut self) -> (Tenant, Sender<Slot>) {
        let (tenant, waiters) = self.by_tenant.first().expect("a tool queue without tenants is removed");
        let tenant = tenant.clone();
        let (_, calls) = waiters.by_thread.first().expect("a tenant without threads is removed");
        let (_, sender) = calls.pop_first().expect("a thread without waiters is removed");
        if calls.is_empty() {
            waiters.by_thread.remove_first();
        } else {
            waiters.by_thread.rotate();
        }
        waiters.count -= 1;
        if waiters.count == 0 {
            self.by_tenant.remove_first();
        } else {
            self.by_tenant.rotate();
        }
        (tenant, sender)
    }
}

/// Counts a waiter of this tenant less.
fn decrement_queued(queue: &ToolQueue, queued_by_tenant: &mut BTreeMap<Tenant, usize>, tenant: &Tenant) {
    queue.0.queued.fetch_sub(1, SeqCst);
    queue.0.shared.queued.fetch_sub(1, SeqCst);
    if let Some(queued) = queued_by_tenant.get_mut(tenant) {
        *queued -= 1;
        if *queued == 0 {
            queued_by_tenant.remove(tenant);
        }
    }
}

#[cfg(test)]
impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.ready.is_empty() && self.queued_by_tenant.is_empty()
    }
}
