//! Pool of live tool instances, one per thread and tool or group of tools, and their orderly close.
//!
//! In: a call's thread and tool. Out: a lease on the instance slot, released on drop. Every eviction closes the
//! instance in a separate task with a timeout and emits an event. `pool_state.rs` decides which instances are evicted.

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
use crate::{events::Events, reentrancy, registration::Registration};
use toolhub_state::ConnectionHold;
use toolhub_storage::clock::Clock;
use toolhub_types::{error::ToolError, event_kind::EventKind, ids::ThreadKey, tool::ToolName};

/// Timeout of closing an instance, and of waiting for the call that uses one. If the call takes longer, its instance is
/// closed when the call ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The instance slots of all threads.
pub(crate) struct InstancePool {
    state: Mutex<PoolState>,
    idle_timeout: Duration,
    /// Notified when an instance becomes idle, to wake the idle sweeper.
    idle_added: Notify,
    closing: TaskTracker,
    events: Events,
    clock: Arc<dyn Clock>,
    runtime: Handle,
}

impl InstancePool {
    pub(crate) fn new(
        limits: InstanceLimits,
        idle_timeout: Duration,
        events: Events,
        clock: Arc<dyn Clock>,
        runtime: Handle,
    ) -> Self {
        let (state, idle_added, closing) = (Mutex::new(PoolState::new(limits)), Notify::new(), TaskTracker::new());
        Self { state, idle_timeout, idle_added, closing, events, clock, runtime }
    }

    /// Leases the instance slot of a tool in a thread, and creates the slot if there is none. Calls from an offer
    /// (`from_offer`) may be followed by others of the same offer, so their instance stays even if the tool was
    /// removed.
    pub(crate) fn acquire<T: Send + 'static>(
        self: &Arc<Self>,
        owner: &ThreadKey,
        (tool, from_offer): (&Registration, bool),
        new_cell: impl FnOnce() -> InstanceCell<T>,
    ) -> InstanceLease {
        let (id, slot) = self.lock().acquire(owner, (tool, from_offer), self.clock.instant(), || Arc::new(new_cell()));
        InstanceLease { id, slot, pool: self.clone() }
    }

    /// Leases the slot of a tool in a thread if it has an instance.
    pub(crate) fn find(self: &Arc<Self>, owner: &ThreadKey, tool: &str) -> Option<InstanceLease> {
        let (id, slot) = self.lock().acquire_live(owner, tool)?;
        Some(InstanceLease { id, slot, pool: self.clone() })
    }

    pub(crate) fn instance_info(&self, owner: &ThreadKey, tool: &str) -> Option<InstanceInfo> {
        self.lock().instance_info(owner, tool)
    }

    pub(crate) fn instance_infos(&self, owner: &ThreadKey) -> Vec<InstanceInfo> {
        self.lock().instance_infos(owner)
    }

    pub(crate) fn is_in_use(&self, owner: &ThreadKey) -> bool {
        self.lock().is_in_use(owner)
    }

    /// Whether the thread has instances.
    pub(crate) fn has_instances(&self, owner: &ThreadKey) -> bool {
        self.lock().has_instances(owner)
    }

    /// The number of live instances.
    pub(crate) fn instance_count(&self) -> usize {
        self.lock().live_count()
    }

    /// Closes the instances of a thread, of one tool or of all. Returns the tools they belonged to.
    pub(crate) async fn close_instances(
        &self,
        owner: &ThreadKey,
        tool: Option<&str>,
        reason: &'static str,
    ) -> Vec<ToolName> {
        self.close_matching(SlotSelector::Thread(owner, tool), reason).await
    }

    /// Closes the instances of a tool that was removed or replaced, in every thread, unless other tools use them.
    pub(crate) async fn close_tool_instances(&self, tool: &Registration, reason: &'static str) {
        self.close_matching(SlotSelector::Tool(tool), reason).await;
    }

    /// Closes all instances and waits until they are closed or time out.
    pub(crate) async fn shut_down(&self) {
        self.close_matching(SlotSelector::All, "the hub was shut down").await;
        self.closing.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.closing.wait()).await;
    }

    async fn close_matching(&self, selector: SlotSelector<'_>, reason: &'static str) -> Vec<ToolName> {
        let (evicted, mut slots) = self.lock().evict(selector, reason);
        slots.extend(evicted.iter().map(|evicted| evicted.slot.clone()));
        // In separate tasks: dropping this future must not interrupt a close.
        self.spawn_closes(evicted);
        let closed = futures_util::future::join_all(slots.iter().map(|slot| slot.closed.cancelled()));
        let _ = tokio::time::timeout(2 * CLOSE_TIMEOUT, closed).await;
        slots.iter().map(|slot| slot.tool.clone()).collect()
    }

    /// Closes the evicted instances in separate tasks.
    fn spawn_closes(&self, evicted: Vec<EvictedSlot>) {
        for EvictedSlot { slot, reason } in evicted {
            let (events, clock) = (self.events.clone(), self.clock.clone());
            self.closing.spawn_on(close_instance(slot, reason, events, clock), &self.runtime);
        }
    }

    fn emit_cleaned(&self, slot: &InstanceSlot, reason: &'static str) {
        emit_executor_cleaned(slot, reason, &self.events, &*self.clock);
    }

    /// Closes instances that reached the idle timeout. Returns when the next one will.
    fn close_idle(&self) -> Option<tokio::time::Instant> {
        let (evicted, next) = self.lock().evict_idle(self.idle_timeout, self.clock.instant());
        self.spawn_closes(evicted);
        next
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn close_instance(slot: Arc<InstanceSlot>, reason: &'static str, events: Events, clock: Arc<dyn Clock>) {
    let _closed = slot.closed.clone().drop_guard();
    if let Some(close) = slot.cell.begin_close() {
        // A close that panics or hangs must not affect others, not even when its future is dropped.
        let bounded = async { tokio::time::timeout(CLOSE_TIMEOUT, close).await.is_ok() };
        if !matches!(AssertUnwindSafe(bounded).catch_unwind().await, Ok(true)) {
            tracing::warn!(tool = %slot.tool, "closing a tool instance panicked or timed out");
        }
        slot.release_connections();
        emit_executor_cleaned(&slot, reason, &events, &*clock);
    }
}

fn emit_executor_cleaned(slot: &InstanceSlot, reason: &'static str, events: &Events, clock: &dyn Clock) {
    let ThreadKey { tenant, thread } = &slot.owner;
    let event = EventKind::ExecutorCleaned { tool_name: slot.tool.clone(), reason };
    events.emit_for_tenant(clock.now(), tenant, Some(thread), event);
}

/// Closes idle instances for as long as the hub exists.
pub(crate) async fn run_idle_sweeper(pool: Weak<InstancePool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        match pool.close_idle() {
            Some(next) => {
                drop(pool);
                tokio::time::sleep_until(next).await;
            }
            // This wait keeps the pool alive; the shutdown of the hub aborts the whole task.
            None => pool.idle_added.notified().await,
        }
    }
}

/// A lease on an instance slot. While it is held, the slot is not evicted.
pub(crate) struct InstanceLease {
    id: u64,
    slot: Arc<InstanceSlot>,
    pool: Arc<InstancePool>,
}

impl InstanceLease {
    /// The slot's cell, if it holds instances of type `T`.
    pub(crate) fn cell<T: Send + 'static>(&self) -> Option<Arc<InstanceCell<T>>> {
        let any: Arc<dyn std::any::Any + Send + Sync> = self.slot.cell.clone();
        any.downcast().ok()
    }

    /// Identifies the slot for the re-entrancy check.
    pub(crate) fn lock_id(&self) -> reentrancy::LockId {
        let slot: Weak<InstanceSlot> = Arc::downgrade(&self.slot);
        slot
    }

    /// Records that an instance was created in this slot. Evicts others that exceed the limits.
    pub(crate) fn mark_created(&self) {
        let evicted = self.pool.lock().instance_created(self.id, self.pool.clock.now());
        self.pool.spawn_closes(evicted);
    }

    /// Holds the connection of a tool that uses the instance, for as long as it lives.
    pub(crate) fn hold_connection(&self, tool: &ToolName, hold: impl FnOnce() -> Option<ConnectionHold>) {
        self.slot.hold_connection(tool, hold);
    }

    /// Records that the instance was dropped without a close.
    pub(crate) fn mark_lost(&self, reason: &'static str) {
        self.slot.release_connections();
        self.pool.lock().instance_lost(self.id);
        self.pool.emit_cleaned(&self.slot, reason);
    }
}

impl Drop for InstanceLease {
    fn drop(&mut self) {
        let evicted = self.pool.lock().release(self.id, self.pool.clock.instant());
        self.pool.spawn_closes(evicted);
        self.pool.idle_added.notify_one();
    }
}

/// Runs work with exclusive access to an instance slot.
///
/// # Errors
/// When an enclosing call holds the slot already: the two would deadlock.
pub(crate) async fn run_exclusive<T>(lease: &InstanceLease, work: impl Future<Output = T>) -> Result<T, ToolError> {
    reentrancy::with_locks(vec![lease.lock_id()], work).await.map_err(|reentrancy::Reentrant| {
        let text = "this tool is at work in this thread and has, directly or through other tools, called itself; \
                    the two calls would wait for each other";
        ToolError::refused(text).uncounted()
    })
}
