//! Concurrency slots (a two-level semaphore) with a fair wait queue.
//!
//! In: a tool's queue, its number of slots, and the call's fairness key. Out: a slot, a future that resolves to one, or
//! a refusal because the queue is full (backpressure). Each tool has its own slots and all tools share some; a call
//! takes one of each together and holds none while it waits. Inside a tool queue the tenants take turns (round robin), and
//! so do the threads of a tenant, and the tool queues that wait only for a shared slot. The caller decides how long to wait: dropping
//! the future leaves the queue.
//!
//! No wake-up is lost between the lock-free fast path and the queue, because each side first publishes its own change
//! and then reads the other's, with `SeqCst` throughout. A waiter counts itself before it tries the slots for the last
//! time; a release frees the slot before it checks for waiters. One of the two sees the other. A call that takes a tool
//! slot and gives it back because no shared slot is free enqueues itself afterwards, and its dispatch serves every call
//! that found the slot taken meanwhile.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use toolhub_types::ids::{Tenant, ThreadId};

mod permits;
mod round_robin;
mod slot;
#[cfg(test)]
mod tests;
mod wait_queue;

pub(crate) use slot::{Slot, SlotWaiter};
use wait_queue::WaitQueue;

/// The slots all tools share, and all waiters.
#[derive(Clone)]
pub(crate) struct Queue(Arc<QueueShared>);

/// The slots and waiters of one tool.
#[derive(Clone)]
pub(crate) struct ToolQueue(Arc<ToolQueueInner>);

/// The unit of fairness: a thread, or all calls of a tenant without a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FairnessKey {
    pub(crate) tenant: Tenant,
    pub(crate) thread: Option<ThreadId>,
}

/// How many calls may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    pub(crate) per_tool: usize,
    pub(crate) total: usize,
}

/// What a call gets that was not refused.
#[derive(Debug)]
pub(crate) enum SlotOrWaiter {
    /// It may run.
    Slot(Slot),
    /// It may run once this resolves.
    Waiter(SlotWaiter),
}

/// Too many calls wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull {
    pub(crate) limit: QueueLimit,
    /// When to retry.
    pub(crate) retry_after: Duration,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// The tool's own.
    Tool,
    /// That of all tools together.
    Global,
}

/// When to retry. A guess: the queue does not know how long calls take.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What all tool queues share.
struct QueueShared {
    limit: Option<usize>,
    queue_limits: QueueLimits,
    /// Shared slots taken; not counted without a limit.
    running: AtomicUsize,
    /// How many tool queues wait only for a shared slot. Every release checks it.
    ready_queues: AtomicUsize,
    queued: AtomicUsize,
    next_key: AtomicU64,
    wait_queue: Mutex<WaitQueue>,
}

/// The counters of one tool queue.
struct ToolQueueInner {
    shared: Arc<QueueShared>,
    key: u64,
    /// The limit of the latest call, which also applies to the waiters; `usize::MAX` for none.
    limit: AtomicUsize,
    running: AtomicUsize,
    /// How many calls wait for this tool. Every release of its slots checks it.
    queued: AtomicUsize,
    /// For a queue whose calls also need a permit: notified when a call comes or a slot is released; see `permits.rs`.
    permit_demand: Option<Notify>,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { per_tool: 1_000, total: 10_000 }
    }
}

impl Queue {
    /// A queue with this many shared slots; `None` for no limit. Zero is read as one, otherwise no call would ever run.
    pub(crate) fn new(max_concurrency: Option<usize>, queue_limits: QueueLimits) -> Self {
        Self(Arc::new(QueueShared {
            limit: max_concurrency.map(|limit| limit.max(1)),
            queue_limits,
            running: AtomicUsize::new(0),
            ready_queues: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            next_key: AtomicU64::new(0),
            wait_queue: Mutex::default(),
        }))
    }

    /// The queue of one more tool. It takes no memory in the wait queue until a call waits for it.
    pub(crate) fn tool_queue(&self) -> ToolQueue {
        self.new_tool_queue(None)
    }

    fn new_tool_queue(&self, permit_demand: Option<Notify>) -> ToolQueue {
        ToolQueue(Arc::new(ToolQueueInner {
            shared: self.0.clone(),
            key: self.0.next_key.fetch_add(1, SeqCst),
            limit: AtomicUsize::new(usize::MAX),
            running: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            permit_demand,
        }))
    }

    /// How many calls may wait in all tool queues.
    pub(crate) fn max_queued(&self) -> usize {
        self.0.queue_limits.total
    }

    /// How many calls wait in all tool queues.
    pub(crate) fn queued(&self) -> usize {
        self.0.queued.load(SeqCst)
    }
}

impl ToolQueue {
    /// A slot, or a position in the queue. `limit` is the number of the tool's own slots, `None` for no limit; zero is
    /// read as one. If it differs from that of the last call, it applies from now on, to the waiters too.
    ///
    /// # Errors
    /// When no slot is free and the queue is full.
    pub(crate) fn acquire(&self, limit: Option<usize>, key: &FairnessKey) -> Result<SlotOrWaiter, QueueFull> {
        match self.try_acquire(limit) {
            Some(slot) => Ok(SlotOrWaiter::Slot(slot)),
            None => self.enqueue(key),
        }
    }

    /// A slot, if one is free and no call waits. Like [`Self::acquire`], but without a fairness key.
    pub(crate) fn try_acquire(&self, limit: Option<usize>) -> Option<Slot> {
        let own_limit = limit.map_or(usize::MAX, |limit| limit.max(1));
        // Stored before the check for waiters: a call that enqueues concurrently either sees the new limit or is seen.
        if self.0.limit.load(SeqCst) != own_limit {
            self.0.limit.store(own_limit, SeqCst);
        }
        if self.has_waiters() {
            return None;
        }
        if limit.is_none() && self.0.shared.limit.is_none() {
            return Some(Slot::unlimited());
        }
        self.try_take(own_limit).then(|| Slot::new(self.clone()))
    }

    /// Whether there is no limit and no call waits.
    pub(crate) fn is_uncontended(&self, limit: Option<usize>) -> bool {
        limit.is_none() && self.0.shared.limit.is_none() && !self.has_waiters()
    }

    /// How many calls wait for this tool.
    pub(crate) fn queued(&self) -> usize {
        self.0.queued.load(SeqCst)
    }

    /// How many slots of this tool are taken. Without any limit, nothing is counted.
    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    fn enqueue(&self, key: &FairnessKey) -> Result<SlotOrWaiter, QueueFull> {
        let (sender, mut receiver) = oneshot::channel();
        let (handoffs, enqueued) = self.wait_queue().enqueue(self, key, sender);
        wait_queue::deliver(handoffs);
        let sequence = enqueued?;
        Ok(match receiver.try_recv() {
            Ok(slot) => SlotOrWaiter::Slot(slot),
            Err(_) => SlotOrWaiter::Waiter(SlotWaiter::new(self.clone(), key.clone(), sequence, receiver)),
        })
    }

    /// Takes a slot of this tool and a shared one, or neither.
    fn try_take(&self, limit: usize) -> bool {
        if !try_increment(&self.0.running, limit) {
            return false;
        }
        let has_both = self.0.shared.limit.is_none_or(|limit| try_increment(&self.0.shared.running, limit));
        if !has_both {
            self.0.running.fetch_sub(1, SeqCst);
        }
        has_both
    }

    fn release(&self) {
        self.0.running.fetch_sub(1, SeqCst);
        if self.0.shared.limit.is_some() {
            self.0.shared.running.fetch_sub(1, SeqCst);
        }
        if self.has_waiters() {
            let handoffs = self.wait_queue().dispatch(self);
            wait_queue::deliver(handoffs);
        }
        self.notify();
    }

    /// Whether a call waits for a slot of this tool, or for a shared one.
    fn has_waiters(&self) -> bool {
        self.0.queued.load(SeqCst) > 0 || (self.0.shared.limit.is_some() && self.0.shared.ready_queues.load(SeqCst) > 0)
    }

    fn wait_queue(&self) -> MutexGuard<'_, WaitQueue> {
        self.0.shared.wait_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn try_increment(counter: &AtomicUsize, limit: usize) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1)).is_ok()
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ToolQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (running, queued) = (self.running(), self.queued());
        f.debug_struct("ToolQueue").field("running", &running).field("queued", &queued).finish_non_exhaustive()
    }
}
