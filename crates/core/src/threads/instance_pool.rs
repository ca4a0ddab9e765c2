//! The rooms of all threads, and the goodbyes of their instances.
//!
//! In: a call's thread and tool. Out: the right to use the tool's room, until it is dropped. Whatever makes an instance go,
//! its goodbye runs on a task of its own, within a bound, and listeners are told. Which one goes is decided by
//! `directory.rs`.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::Notify};
use tokio_util::task::TaskTracker;

use super::{
    InstanceInfo, InstanceLimits,
    instance_slot::{InstanceCell, InstanceSlot},
    pool_state::{EvictedSlot, PoolState, SlotSelector},
};
use crate::{
    events::Events,
    reentrancy,
    registration::{RegisteredTool, Registration},
};
use toolhub_storage::clock::Clock;
use toolhub_types::{error::ToolError, event_kind::EventKind, ids::ThreadKey, tool::ToolName};

/// How long an instance may take to say goodbye; and how long somebody who cleans up waits for the call that uses one. If
/// the call takes longer, its instance is closed when it ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Every room, of all threads.
pub(crate) struct InstancePool {
    state: Mutex<PoolState>,
    idle_timeout: Duration,
    /// Told when the first room is kept, so that somebody looks when it has been idle for too long.
    idle_added: Notify,
    closing: TaskTracker,
    events: Events,
    clock: Arc<dyn Clock>,
    runtime: Handle,
}

impl InstancePool {
    pub(crate) fn new(
        caps: InstanceLimits,
        idle: Duration,
        events: Events,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let (directory, kept, goodbyes) = (Mutex::new(PoolState::new(caps)), Notify::new(), TaskTracker::new());
        Self { state: directory, idle_timeout: idle, idle_added: kept, closing: goodbyes, events, clock, runtime }
    }

    /// Enters the room of a tool in a thread. A call among a list of tools that is held may be followed by others: what it needs
    /// is kept although its tool was taken away.
    pub(crate) fn acquire<T: Send + 'static>(
        self: &Arc<Self>,
        owner: &ThreadKey,
        (tool, among): (RegisteredTool<'_>, bool),
        chair: impl FnOnce() -> InstanceCell<T>,
    ) -> InstanceLease {
        let (id, room) = self.lock().acquire(owner, (tool, among), self.clock.instant(), || Arc::new(chair()));
        InstanceLease { id, slot: room, pool: self.clone() }
    }

    pub(crate) fn instance_info(&self, owner: &ThreadKey, tool: &str) -> Option<InstanceInfo> {
        self.lock().instance_info(owner, tool)
    }

    pub(crate) fn is_in_use(&self, owner: &ThreadKey) -> bool {
        self.lock().is_in_use(owner)
    }

    /// How many instances there are.
    pub(crate) fn instance_count(&self) -> usize {
        self.lock().live_count()
    }

    /// Closes the instances of a thread; of one tool, or of all. Names the tools they belonged to.
    pub(crate) async fn close_instances(
        &self,
        owner: &ThreadKey,
        tool: Option<&str>,
        reason: &'static str,
    ) -> Vec<ToolName> {
        self.close_matching(SlotSelector::Thread(owner, tool), reason).await
    }

    /// Closes the instances this registration of a tool has made, in every thread.
    pub(crate) async fn close_tool_instances(&self, tool: &Registration, reason: &'static str) {
        self.close_matching(SlotSelector::Tool(tool), reason).await;
    }

    /// Closes all instances, and waits for every goodbye.
    pub(crate) async fn shut_down(&self) {
        self.close_matching(SlotSelector::All, "the hub was shut down").await;
        self.closing.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.closing.wait()).await;
    }

    async fn close_matching(&self, which: SlotSelector<'_>, reason: &'static str) -> Vec<ToolName> {
        let (free, mut rooms) = self.lock().evict(which, reason);
        rooms.extend(free.iter().map(|leaving| leaving.slot.clone()));
        // On tasks of their own: somebody who stops waiting for the cleaning must not cut a goodbye short.
        self.spawn_closes(free);
        let closed = futures_util::future::join_all(rooms.iter().map(|room| room.closed.cancelled()));
        let _ = tokio::time::timeout(2 * CLOSE_TIMEOUT, closed).await;
        rooms.iter().map(|room| room.tool.clone()).collect()
    }

    /// Lets these say goodbye.
    fn spawn_closes(&self, leaving: Vec<EvictedSlot>) {
        for EvictedSlot { slot: room, reason } in leaving {
            let (events, clock) = (self.events.clone(), self.clock.clone());
            self.closing.spawn_on(close_instance(room, reason, events, clock), &self.runtime);
        }
    }

    fn emit_cleaned(&self, room: &InstanceSlot, reason: &'static str) {
        emit_executor_cleaned(room, reason, &self.events, &*self.clock);
    }

    /// Drops what was idle for too long.
    fn close_idle(&self) -> Option<tokio::time::Instant> {
        let (leaving, next) = self.lock().evict_idle(self.idle_timeout, self.clock.instant());
        self.spawn_closes(leaving);
        next
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn close_instance(room: Arc<InstanceSlot>, reason: &'static str, events: Events, clock: Arc<dyn Clock>) {
    let _closed = room.closed.clone().drop_guard();
    if let Some(goodbye) = room.cell.begin_close() {
        // One that panics or hangs while it says goodbye harms nobody, not even when it is dropped for it.
        let bounded = async { tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await.is_ok() };
        if !matches!(AssertUnwindSafe(bounded).catch_unwind().await, Ok(true)) {
            tracing::warn!(tool = %room.tool, "an instance did not close in an orderly way");
        }
        emit_executor_cleaned(&room, reason, &events, &*clock);
    }
}

fn emit_executor_cleaned(room: &InstanceSlot, reason: &'static str, events: &Events, clock: &dyn Clock) {
    let ThreadKey { tenant, thread } = &room.owner;
    let news = EventKind::ExecutorCleaned { tool_name: room.tool.clone(), reason };
    events.emit_for_tenant(clock.now(), tenant, Some(thread), news);
}

/// Drops instances that nobody has used for long, for as long as the hub lives.
pub(crate) async fn run_idle_sweeper(rooms: Weak<InstancePool>) {
    loop {
        let Some(here) = rooms.upgrade() else { return };
        match here.close_idle() {
            Some(next) => {
                drop(here);
                tokio::time::sleep_until(next).await;
            }
            // Kept alive by this wait; the hub's end cuts the whole task off.
            None => here.idle_added.notified().await,
        }
    }
}

/// The right to be in a room. While it is held, the room is not given up.
pub(crate) struct InstanceLease {
    id: u64,
    slot: Arc<InstanceSlot>,
    pool: Arc<InstancePool>,
}

impl InstanceLease {
    /// The room's chair; of the type that the tool of this room sits on.
    pub(crate) fn cell<T: Send + 'static>(&self) -> Option<Arc<InstanceCell<T>>> {
        let any: Arc<dyn std::any::Any + Send + Sync> = self.slot.cell.clone();
        any.downcast().ok()
    }

    /// An instance was made here. Others may have to go for it.
    pub(crate) fn mark_created(&self) {
        let leaving = self.pool.lock().instance_created(self.id, self.pool.clock.now());
        self.pool.spawn_closes(leaving);
    }

    /// The instance is gone without a goodbye.
    pub(crate) fn mark_lost(&self, why: &'static str) {
        self.pool.lock().instance_lost(self.id);
        self.pool.emit_cleaned(&self.slot, why);
    }
}

impl Drop for InstanceLease {
    fn drop(&mut self) {
        let leaving = self.pool.lock().release(self.id, self.pool.clock.instant());
        self.pool.spawn_closes(leaving);
        self.pool.idle_added.notify_one();
    }
}

/// Runs work that is alone in a room.
///
/// # Errors
/// When the work around this is in the room already: the two would wait for each other.
pub(crate) async fn run_exclusive<T>(place: &InstanceLease, work: impl Future<Output = T>) -> Result<T, ToolError> {
    let room: Weak<InstanceSlot> = Arc::downgrade(&place.slot);
    reentrancy::with_locks(vec![room], work).await.map_err(|reentrancy::Reentrant| {
        let text = "this tool is at work in this thread and has, directly or through other tools, called itself; \
                    the two calls would wait for each other";
        ToolError::refused(text).uncounted()
    })
}
