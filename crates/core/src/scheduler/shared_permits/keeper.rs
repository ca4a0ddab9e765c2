//! The permits of one tool that this node holds.
//!
//! In: the queue of the tool, and its row in the store. Out: slots for waiting calls that have a permit. The row says for this node at
//! least as many permits as it has running calls: it is written before a call starts, and after one has ended.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use smol_str::SmolStr;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{SharedPermits, row::PermitRow};
use crate::scheduler::{Slot, ToolQueue};
use toolhub_storage::{
    backend::{RowVersion, StoreError},
    clock::Instant,
};
use toolhub_types::{timestamp::Timestamp, tool::ToolName};

/// How soon a keeper looks again for a permit, unless it hears of one before; doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// For how long the calls of one node take permits after each other before other nodes get a chance.
const MAX_TURN: Duration = Duration::from_secs(1);
/// How often a write that lost against other nodes is tried again, before the store counts as away.
const MAX_CONFLICTS: usize = 64;

pub(super) struct Keeper {
    tool: ToolName,
    /// The name of this queue in the row.
    holder: SmolStr,
    queue: ToolQueue,
    limit: AtomicUsize,
    /// The number of the version of the row that this node wrote last.
    own_version: AtomicU64,
    /// Notified when another node changed the row.
    changed: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone)]
struct State {
    /// The row as it was read or written last.
    seen: Option<(PermitRow, RowVersion)>,
    /// How many permits of this node are in the row; `None` if that is unknown.
    written: Option<usize>,
    /// When the row was written last, or may have been; by the clock of this process, before the store was asked.
    written_at: Option<Instant>,
    /// Since when this node has held permits.
    turn_began: Option<Instant>,
}

/// What a keeper acts on.
enum Event {
    Stopped,
    /// A call waits, and could run if there is a permit for it.
    Slot(Slot),
    RowChanged,
    /// A call came, left or ended.
    Demand,
    /// The row must be written again.
    Due,
}

impl Keeper {
    pub(super) fn new(tool: ToolName, holder: SmolStr, queue: ToolQueue, limit: usize) -> Self {
        let state = Mutex::new(State { written: Some(0), ..State::default() });
        let (limit, own_version, changed) = (AtomicUsize::new(limit), AtomicU64::new(0), Notify::new());
        Self { tool, holder, queue, limit, own_version, changed, state }
    }

    pub(super) fn queue_key(&self) -> u64 {
        self.queue.key()
    }

    pub(super) fn is_of(&self, tool: Option<&ToolName>) -> bool {
        tool.is_none_or(|tool| *tool == self.tool)
    }

    /// The limit of the latest call, which also applies to the waiting ones.
    pub(super) fn set_limit(&self, limit: usize) {
        if self.limit.swap(limit, SeqCst) < limit {
            self.changed.notify_one();
        }
    }

    /// The row has this version now, or an unknown one.
    pub(super) fn row_changed(&self, version: Option<u64>) {
        if version.is_none_or(|version| version != self.own_version.load(SeqCst)) {
            self.changed.notify_one();
        }
    }

    /// Whether no call runs or waits, and no permit is held.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.queued() == 0 && self.queue.running() == 0 && self.lock().written == Some(0)
    }

    /// Serves the queue until it is idle or the hub stops.
    pub(super) async fn run(&self, permits: &SharedPermits, stopped: &CancellationToken) {
        // When to ask for a permit again, after none was free; and not before, after a turn.
        let (mut ask_at, mut pause, mut rest_until) = (None, FIRST_PAUSE, None);
        // When to write the row again, after the store did not answer.
        let (mut retry_at, mut retry_delay) = (None, FIRST_PAUSE);
        while !self.is_idle() && !stopped.is_cancelled() {
            match self.next_event(stopped, ask_at.max(rest_until), retry_at.or_else(|| self.renew_at(permits))).await {
                Event::Stopped => break,
                Event::Slot(slot) => {
                    if self.is_turn_over(permits) {
                        drop(slot);
                        rest_until = Some(permits.clock.instant() + FIRST_PAUSE);
                    } else if self.serve(permits, slot).await {
                        (ask_at, pause) = (None, FIRST_PAUSE);
                    } else {
                        ask_at = Some(permits.clock.instant() + pause);
                        pause = (2 * pause).min(LONGEST_PAUSE);
                    }
                }
                Event::RowChanged => (ask_at, pause) = (None, FIRST_PAUSE),
                Event::Demand | Event::Due => {}
            }
            match self.settle(permits).await {
                Ok(()) => (retry_at, retry_delay) = (None, FIRST_PAUSE),
                Err(error) => {
                    tracing::debug!(%error, tool = %self.tool, "shared permits not written; retrying");
                    retry_at = Some(permits.clock.instant() + retry_delay);
                    retry_delay = (2 * retry_delay).min(LONGEST_PAUSE);
                }
            }
        }
        if stopped.is_cancelled()
            && let Err(error) = self.settle(permits).await
        {
            tracing::debug!(%error, tool = %self.tool, "shared permits not given back; they expire");
        }
    }

    /// What happens next. A slot for a waiting call is not asked for before `ask_at`.
    async fn next_event(&self, stopped: &CancellationToken, ask_at: Option<Instant>, due: Option<Instant>) -> Event {
        let mut stop = pin!(stopped.cancelled());
        let mut slot = pin!(async {
            if let Some(at) = ask_at {
                tokio::time::sleep_until(at).await;
            }
            self.queue.reserve().await
        });
        let mut changed = pin!(self.changed.notified());
        let mut demand = pin!(self.queue.permit_demand_changed());
        let mut timer = pin!(async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        });
        poll_fn(|cx| {
            if stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stopped);
            }
            if let Poll::Ready(slot) = slot.as_mut().poll(cx) {
                return Poll::Ready(Event::Slot(slot));
            }
            if changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::RowChanged);
            }
            if demand.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Demand);
            }
            timer.as_mut().poll(cx).map(|()| Event::Due)
        })
        .await
    }

    /// Whether other nodes must get a chance now.
    fn is_turn_over(&self, permits: &SharedPermits) -> bool {
        let now = permits.clock.instant();
        let mut state = self.lock();
        let is_over = state.turn_began.is_some_and(|began| now.saturating_duration_since(began) >= MAX_TURN);
        let is_over = is_over && permits.nodes.alive() > 1;
        state.turn_began = state.turn_began.filter(|_| !is_over);
        is_over
    }

    /// Gives the slot to a waiting call if there is a permit for it. If there is none, the slot goes back. If the store does not
    /// answer, all waiting calls are refused.
    async fn serve(&self, permits: &SharedPermits, slot: Slot) -> bool {
        let now = permits.clock.instant();
        let state = self.lock().clone();
        // Includes the reserved slot. Only this keeper lets it grow.
        let running = self.queue.running();
        let has_permit = state.written.is_some_and(|written| running <= written);
        let taken = if has_permit && state.is_fresh(permits) { Ok(true) } else { self.take(permits, running).await };
        match taken {
            // After a long pause of this process, others may have the permit.
            Ok(true) if self.lock().is_fresh(permits) => {
                self.lock().turn_began.get_or_insert(now);
                self.queue.serve(slot);
                true
            }
            Ok(_) => {
                drop(slot);
                false
            }
            Err(error) => {
                tracing::warn!(%error, tool = %self.tool, "the store did not answer about shared permits; refusing the waiting calls");
                drop(slot);
                self.queue.refuse_waiters();
                false
            }
        }
    }

    /// Writes that this node holds so many permits, if the limit allows it.
    async fn take(&self, permits: &SharedPermits, wanted: usize) -> Result<bool, StoreError> {
        // A limit of zero is read as one, otherwise no call would ever run.
        let limit = self.limit.load(SeqCst).max(1);
        let fits = |row: &PermitRow, now| row.held_by_others(&self.holder, now) + wanted <= limit;
        // What is known may be old.
        let is_known_free = self.lock().seen.as_ref().is_none_or(|(row, _)| fits(row, permits.clock.now()));
        if !is_known_free {
            self.load(permits).await?;
        }
        self.write(permits, wanted, fits).await
    }

    /// Writes how many permits this node holds, if that has changed or must be renewed.
    async fn settle(&self, permits: &SharedPermits) -> Result<(), StoreError> {
        let (running, now) = (self.queue.running(), permits.clock.instant());
        let is_written = self.lock().written == Some(running);
        if is_written && self.renew_at(permits).is_none_or(|at| now < at) {
            return Ok(());
        }
        match self.write(permits, running, |_, _| true).await {
            Ok(_) => Ok(()),
            // What the row may still say has expired.
            Err(_) if running == 0 && self.lock().age(permits).is_none_or(|age| age > permits.lease()) => {
                *self.lock() = State { written: Some(0), ..State::default() };
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes that this node holds so many permits, if the row `allows` it.
    async fn write(
        &self,
        permits: &SharedPermits,
        wanted: usize,
        allows: impl Fn(&PermitRow, Timestamp) -> bool,
    ) -> Result<bool, StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let (at, now) = (permits.clock.instant(), permits.clock.now());
            let seen = self.lock().seen.clone();
            let row = seen.as_ref().map(|(row, _)| row.clone()).unwrap_or_default();
            if !allows(&row, now) {
                return Ok(false);
            }
            let next = row.with(&self.holder, wanted, now, permits.lease());
            let batch = next.write(&self.tool, seen.map(|(_, version)| version))?;
            let stamp = batch.stamp;
            match permits.store.commit(batch, now).await {
                Ok(versions) => {
                    let number = versions.first().copied().unwrap_or_default();
                    self.own_version.store(number, SeqCst);
                    let mut state = self.lock();
                    state.seen = (!next.is_empty()).then_some((next, RowVersion { number, stamp }));
                    (state.written, state.written_at) = (Some(wanted), Some(at));
                    state.turn_began = state.turn_began.filter(|_| wanted > 0);
                    return Ok(true);
                }
                Err(StoreError::Conflict { .. }) => self.load(permits).await?,
                Err(error) => {
                    let mut state = self.lock();
                    // Nothing was written, or it is unknown what the row says.
                    if !matches!(error, StoreError::Unavailable(_)) {
                        (state.seen, state.written, state.written_at) = (None, None, Some(at));
                    }
                    return Err(error);
                }
            }
        }
        Err(StoreError::Unavailable("too many nodes compete for the permits of a tool".into()))
    }

    async fn load(&self, permits: &SharedPermits) -> Result<(), StoreError> {
        let row = PermitRow::load(&self.tool, &*permits.store, permits.clock.now()).await?;
        self.lock().seen = row;
        Ok(())
    }

    /// When the permits must be written again, if this node holds any.
    fn renew_at(&self, permits: &SharedPermits) -> Option<Instant> {
        let state = self.lock();
        let holds = state.written != Some(0);
        state.written_at.filter(|_| holds).map(|at| at + permits.lease() / 3)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the permits in the row have surely not expired.
    fn is_fresh(&self, permits: &SharedPermits) -> bool {
        self.age(permits).is_some_and(|age| age < 2 * permits.lease() / 3)
    }

    /// How long ago they were written.
    fn age(&self, permits: &SharedPermits) -> Option<Duration> {
        self.written_at.map(|at| permits.clock.instant().saturating_duration_since(at))
    }
}
