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

mod line;
mod rounds;
mod slot;
#[cfg(test)]
mod tests;

use line::Line;
pub(crate) use slot::{Slot, Waiting};

/// The slots all tools share, and everybody who waits.
#[derive(Clone)]
pub(crate) struct Queue(Arc<All>);

/// One tool's place in the queue.
#[derive(Clone)]
pub(crate) struct Lane(Arc<One>);

/// Who takes turns with others: a thread, or all of a tenant's calls that have none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Party {
    pub(crate) tenant: Tenant,
    pub(crate) thread: Option<ThreadId>,
}

/// How many may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) per_tool: usize,
    pub(crate) in_all: usize,
}

/// What a call gets that was not refused.
#[derive(Debug)]
pub(crate) enum Place {
    /// It may run.
    Slot(Slot),
    /// It may run once this is ready.
    Waiting(Waiting),
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// Whose bound was reached.
    pub(crate) bound: Bound,
    /// When to ask again.
    pub(crate) retry: Duration,
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The tool's own.
    Tool,
    /// The one of all tools together.
    All,
}

/// When to ask again. A guess: the queue does not know how long calls take.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// What the lanes share.
struct All {
    limit: Option<usize>,
    bounds: Bounds,
    /// Shared slots taken; not counted where there is no limit.
    running: AtomicUsize,
    /// How many lanes wait for nothing but a shared slot. Whoever gives one back looks here.
    ready: AtomicUsize,
    queued: AtomicUsize,
    lanes: AtomicU64,
    line: Mutex<Line>,
}

/// What one lane counts.
struct One {
    all: Arc<All>,
    key: u64,
    /// The limit of the latest call, for those who wait; `usize::MAX` for none.
    limit: AtomicUsize,
    running: AtomicUsize,
    /// How many wait in this lane. Whoever gives one of its slots back looks here.
    queued: AtomicUsize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { per_tool: 1_000, in_all: 10_000 }
    }
}

impl Queue {
    /// A queue with this many shared slots; `None` for no limit. Zero is read as one, or nobody would ever run.
    pub(crate) fn new(all: Option<usize>, bounds: Bounds) -> Self {
        Self(Arc::new(All {
            limit: all.map(|limit| limit.max(1)),
            bounds,
            running: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            lanes: AtomicU64::new(0),
            line: Mutex::default(),
        }))
    }

    /// A lane for one more tool. It costs nothing in the queue until somebody waits in it.
    pub(crate) fn lane(&self) -> Lane {
        Lane(Arc::new(One {
            all: self.0.clone(),
            key: self.0.lanes.fetch_add(1, SeqCst),
            limit: AtomicUsize::new(usize::MAX),
            running: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }))
    }

    /// How many may wait in all lanes.
    pub(crate) fn most(&self) -> usize {
        self.0.bounds.in_all
    }

    /// How many wait in all lanes.
    pub(crate) fn queued(&self) -> usize {
        self.0.queued.load(SeqCst)
    }
}

impl Lane {
    /// A slot, or a place in the queue. `limit` is the number of the tool's own slots, `None` for no limit; zero is
    /// read as one. Where it differs from the last call's, it holds from now on, for those who wait too.
    ///
    /// # Errors
    /// When no slot is free and as many wait as may.
    pub(crate) fn place(&self, limit: Option<usize>, who: &Party) -> Result<Place, Full> {
        match self.at_once(limit) {
            Some(slot) => Ok(Place::Slot(slot)),
            None => self.join(who),
        }
    }

    /// A slot, if one is free and nobody waits. As `place`, for those who need not say who they are yet.
    pub(crate) fn at_once(&self, limit: Option<usize>) -> Option<Slot> {
        let own = limit.map_or(usize::MAX, |limit| limit.max(1));
        // Told before looking whether anybody waits: whoever begins to wait just now sees one or the other.
        if self.0.limit.load(SeqCst) != own {
            self.0.limit.store(own, SeqCst);
        }
        if self.somebody_waits() {
            return None;
        }
        if limit.is_none() && self.0.all.limit.is_none() {
            return Some(Slot::free());
        }
        self.take(own).then(|| Slot::of(self.clone()))
    }

    /// Whether nothing is limited and nobody waits.
    pub(crate) fn is_open(&self, limit: Option<usize>) -> bool {
        limit.is_none() && self.0.all.limit.is_none() && !self.somebody_waits()
    }

    /// How many wait in this lane.
    pub(crate) fn queued(&self) -> usize {
        self.0.queued.load(SeqCst)
    }

    /// How many slots of this lane are taken. Where nothing is limited, nothing is counted.
    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    fn join(&self, who: &Party) -> Result<Place, Full> {
        let (sender, mut slot) = oneshot::channel();
        let (gifts, joined) = self.line().join(self, who, sender);
        line::hand_out(gifts);
        let ticket = joined?;
        Ok(match slot.try_recv() {
            Ok(slot) => Place::Slot(slot),
            Err(_) => Place::Waiting(Waiting::new(self.clone(), who.clone(), ticket, slot)),
        })
    }

    /// Takes a slot of this lane and a shared one, or none.
    fn take(&self, limit: usize) -> bool {
        if !take(&self.0.running, limit) {
            return false;
        }
        let both = self.0.all.limit.is_none_or(|limit| take(&self.0.all.running, limit));
        if !both {
            self.0.running.fetch_sub(1, SeqCst);
        }
        both
    }

    fn give_back(&self) {
        self.0.running.fetch_sub(1, SeqCst);
        if self.0.all.limit.is_some() {
            self.0.all.running.fetch_sub(1, SeqCst);
        }
        if self.somebody_waits() {
            let gifts = self.line().serve(self);
            line::hand_out(gifts);
        }
    }

    /// Whether a slot of this lane, or the shared one that goes with it, has somebody to go to.
    fn somebody_waits(&self) -> bool {
        self.0.queued.load(SeqCst) > 0 || (self.0.all.limit.is_some() && self.0.all.ready.load(SeqCst) > 0)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.all.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(counter: &AtomicUsize, limit: usize) -> bool {
    counter.fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1)).is_ok()
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (running, queued) = (self.running(), self.queued());
        f.debug_struct("Lane").field("running", &running).field("queued", &queued).finish_non_exhaustive()
    }
}
