//! The slot of an instance in one thread: of one tool, or of a group of tools that share it.
//!
//! In: an instance of any type. Out: a cell to take it from and to put it back into, and its close. `pool_state.rs`
//! decides who uses a slot and when it is evicted.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use futures_core::future::BoxFuture;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::registration::InstanceGroup;
use toolhub_state::ConnectionHold;
use toolhub_types::{ids::ThreadKey, tool::ToolName};

/// The slot of an instance in one thread.
pub(crate) struct InstanceSlot {
    pub(super) owner: ThreadKey,
    /// The tool whose call made the slot.
    pub(super) tool: ToolName,
    /// The tools that use the instance. Unless it shares its instances, a tool that is registered later with the same name is
    /// a different one and gets its own slot.
    pub(super) group: InstanceGroup,
    pub(super) cell: Arc<dyn AnyInstance>,
    /// Mark the connections of the tools that have used the instance as active while there is one.
    pub(super) connections: Mutex<Vec<(ToolName, ConnectionHold)>>,
    /// Cancelled when the instance is closed, or when there was none.
    pub(super) closed: CancellationToken,
}

impl InstanceSlot {
    /// Holds the connection of a tool that uses the instance, unless it is held already.
    pub(super) fn hold_connection(&self, tool: &ToolName, hold: impl FnOnce() -> Option<ConnectionHold>) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if !connections.iter().any(|(holder, _)| holder == tool) {
            connections.extend(hold().map(|hold| (tool.clone(), hold)));
        }
    }

    /// Releases the connections: the instance is gone.
    pub(super) fn release_connections(&self) {
        drop(std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// Whether it belongs to a tool of this name.
    pub(super) fn is_for_tool(&self, tool: &str) -> bool {
        self.tool.as_str() == tool || self.group.has_tool(tool)
    }
}

/// An [`InstanceCell`] with its type erased.
pub(crate) trait AnyInstance: Any + Send + Sync {
    /// Takes the instance out and returns the future that closes it. Must be called only when no call uses the slot.
    fn begin_close(&self) -> Option<BoxFuture<'static, ()>>;
}

/// Holds an instance: empty until it is created, and while a call uses it exclusively.
pub(crate) struct InstanceCell<T> {
    exclusive: Arc<AsyncMutex<()>>,
    instance: Mutex<Option<T>>,
    close: fn(T) -> BoxFuture<'static, ()>,
}

impl<T: Send + 'static> InstanceCell<T> {
    pub(crate) fn new(close: fn(T) -> BoxFuture<'static, ()>) -> Self {
        Self { exclusive: Arc::default(), instance: Mutex::default(), close }
    }

    /// Waits until no other call has exclusive use. The deadline of the enclosing call bounds the wait.
    pub(crate) async fn lock_exclusive(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().await
    }

    /// The same, as a guard that owns its reference to the lock.
    pub(crate) async fn lock_owned(&self) -> OwnedMutexGuard<()> {
        self.exclusive.clone().lock_owned().await
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put(&self, instance: T) {
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = Some(instance);
    }
}

impl<I: Send + Sync + 'static> InstanceCell<Arc<I>> {
    /// A clone of the handle to an instance that calls share.
    pub(crate) fn get_shared(&self) -> Option<Arc<I>> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops this instance; returns whether the cell still held it.
    pub(crate) fn discard(&self, instance: &Arc<I>) -> bool {
        let taken = {
            let mut current = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
            current.take_if(|current| Arc::ptr_eq(current, instance))
        };
        taken.is_some()
    }
}

impl<T: Send + 'static> AnyInstance for InstanceCell<T> {
    fn begin_close(&self) -> Option<BoxFuture<'static, ()>> {
        self.take().map(self.close)
    }
}
