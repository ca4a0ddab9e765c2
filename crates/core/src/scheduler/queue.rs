//! Slots to run in, and the fair queue of those who wait for one.
//!
//! In: a tool's lane, its number of slots, and who asks. Out: a slot at once, a future that gives one in its turn, or
//! a refusal because too many wait already. A lane has its own slots and all lanes share some; a call takes one of
//! each together and holds none while it waits. Inside a lane the parties take turns, and so do the lanes that wait
//! for nothing but a shared slot. How long somebody waits is up to the caller: dropping the future leaves the queue.
//!
//! Nobody is lost between the lock-free way in and the queue because each side first says what it did and then looks
//! at what the other did, all in one order (`SeqCst`). Whoever waits counts itself before it tries the slots for the
//! last time; whoever gives a slot back counts it as free before it looks for those who wait. One of the two sees the
//! other. Whoever takes a slot and gives it back because the second one is missing goes on into the queue itself,
//! which serves everybody who was turned away meanwhile.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use toolhub_types::ids::{Tenant, ThreadId};

mod round_robin;
mod slot;
#[cfg(test)]
mod tests;
mod wait_queue;

pub(crate) use slot::{Slot, SlotWaiter};
use wait_queue::WaitQueue;

/// The slots all tools share, and everybody who waits.
#[derive(Clone)]
pub(crate) struct Queue(Arc<QueueShared>);

/// One tool's place in the queue.
#[derive(Clone)]
pub(crate) struct ToolQueue(Arc<ToolQueueInner>);

/// Who takes turns with others: a thread, or all of a tenant's calls that have none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FairnessKey {
    pub(crate) tenant: Tenant,
    pub(crate) thread: Option<ThreadId>,
}

/// How many may wait.
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
    /// It may run once this is ready.
    Waiter(SlotWaiter),
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull {
    /// Whose bound was reached.
    pub(crate) limit: QueueLimit,
    /// When to ask again.
    pub(crate) retry_after: Duration,
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// The tool's own.
    Tool,
    /// The one of all tools together.
    Global,
}

/// When to ask again. A guess: the queue does not know how long calls take.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the lanes share.
struct QueueShared {
    limit: Option<usize>,
    queue_limits: QueueLimits,
    /// Shared slots taken; not counted where there is no limit.
    running: AtomicUsize,
    /// How many lanes wait for nothing but a shared slot. Whoever gives one back looks here.
    ready_queues: AtomicUsize,
    queued: AtomicUsize,
    next_key: AtomicU64,
    wait_queue: Mutex<WaitQueue>,
}

/// What one lane counts.
struct ToolQueueInner {
    shared: Arc<QueueShared>,
    key: u64,
    /// The limit of the latest call, for those who wait; `usize::MAX` for none.
    limit: AtomicUsize,
    running: AtomicUsize,
    /// How many wait in this lane. Whoever gives one of its slots back looks here.
    queued: AtomicUsize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { per_tool: 1_000, total: 10_000 }
    }
}

impl Queue {
    /// A queue with this many shared slots; `None` for no limit. Zero is read as one, or nobody would ever run.
    pub(crate) fn new(all: Option<usize>, bounds: QueueLimits) -> Self {
        Self(Arc::new(QueueShared {
            limit: all.map(|limit| limit.max(1)),
            queue_limits: bounds,
            running: AtomicUsize::new(0),
            ready_queues: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            next_key: AtomicU64::new(0),
            wait_queue: Mutex::default(),
        }))
    }

    /// A lane for one more tool. It costs nothing in the queue until somebody waits in it.
    pub(crate) fn tool_queue(&self) -> ToolQueue {
        ToolQueue(Arc::new(ToolQueueInner {
            shared: self.0.clone(),
            key: self.0.next_key.fetch_add(1, SeqCst),
            limit: AtomicUsize::new(usize::MAX),
            running: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }))
    }

    /// How many may wait in all lanes.
    pub(crate) fn max_queued(&self) -> usize {
        self.0.queue_limits.total
    }

    /// How many wait in all lanes.
    pub(crate) fn queued(&self) -> usize {
        self.0.queued.load(SeqCst)
    }
}

impl ToolQueue {
    /// A slot, or a place in the queue. `limit` is the number of the tool's own slots, `None` for no limit; zero is
    /// read as one. Where it differs from the last call's, it holds from now on, for those who wait too.
    ///
    /// # Errors
    /// When no slot is free and as many wait as may.
    pub(crate) fn acquire(&self, limit: Option<usize>, who: &FairnessKey) -> Result<SlotOrWaiter, QueueFull> {
        match self.try_acquire(limit) {
            Some(slot) => Ok(SlotOrWaiter::Slot(slot)),
            None => self.enqueue(who),
        }
    }

    /// A slot, if one is free and nobody waits. As `place`, for those who need not say who they are yet.
    pub(crate) fn try_acquire(&self, limit: Option<usize>) -> Option<Slot> {
        let own = limit.map_or(usize::MAX, |limit| limit.max(1));
        // Told before looking whether anybody waits: whoever begins to wait just now sees one or the other.
        if self.0.limit.load(SeqCst) != own {
            self.0.limit.store(own, SeqCst);
        }
        if self.has_waiters() {
            return None;
        }
        if limit.is_none() && self.0.shared.limit.is_none() {
            return Some(Slot::unlimited());
        }
        self.try_take(own).then(|| Slot::new(self.clone()))
    }

    /// Whether nothing is limited and nobody waits.
    pub(crate) fn is_uncontended(&self, limit: Option<usize>) -> bool {
        limit.is_none() && self.0.shared.limit.is_none() && !self.has_waiters()
    }

    /// How many wait in this lane.
    pub(crate) fn queued(&self) -> usize {
        self.0.queued.load(SeqCst)
    }

    /// How many slots of this lane are taken. Where nothing is limited, nothing is counted.
    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    fn enqueue(&self, who: &FairnessKey) -> Result<SlotOrWaiter, QueueFull> {
        let (sender, mut slot) = oneshot::channel();
        let (gifts, joined) = self.wait_queue().enqueue(self, who, sender);
        wait_queue::deliver(gifts);
        let ticket = joined?;
        Ok(match slot.try_recv() {
            Ok(slot) => SlotOrWaiter::Slot(slot),
            Err(_) => SlotOrWaiter::Waiter(SlotWaiter::new(self.clone(), who.clone(), ticket, slot)),
        })
    }

    /// Takes a slot of this lane and a shared one, or none.
    fn try_take(&self, limit: usize) -> bool {
        if !try_increment(&self.0.running, limit) {
            return false;
        }
        let both = self.0.shared.limit.is_none_or(|limit| try_increment(&self.0.shared.running, limit));
        if !both {
            self.0.running.fetch_sub(1, SeqCst);
        }
        both
    }

    fn release(&self) {
        self.0.running.fetch_sub(1, SeqCst);
        if self.0.shared.limit.is_some() {
            self.0.shared.running.fetch_sub(1, SeqCst);
        }
        if self.has_waiters() {
            let gifts = self.wait_queue().dispatch(self);
            wait_queue::deliver(gifts);
        }
    }

    /// Whether a slot of this lane, or the shared one that goes with it, has somebody to go to.
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
        f.debug_struct("Lane").field("running", &running).field("queued", &queued).finish_non_exhaustive()
    }
}
