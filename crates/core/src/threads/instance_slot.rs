//! Where the instance of one tool lives in one thread.
//!
//! In: an instance of any type. Out: a chair to take it from and to put it back on, and its goodbye. Who may come in, and
//! when the room is given up, is decided by `directory.rs`.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use futures_core::future::BoxFuture;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::registration::Registration;
use toolhub_types::{ids::ThreadKey, tool::ToolName};

/// The place of one tool's instance in one thread.
pub(crate) struct InstanceSlot {
    pub(super) owner: ThreadKey,
    pub(super) tool: ToolName,
    /// The registration whose factory makes the instance. A tool of the same name that is registered later is another
    /// one, and never finds this room.
    pub(super) registration: Registration,
    pub(super) cell: Arc<dyn AnyInstance>,
    /// Given when the instance has said goodbye, or there was none.
    pub(super) closed: CancellationToken,
}

impl InstanceSlot {
    /// Whether it belongs to a tool of this name.
    pub(super) fn is_for_tool(&self, tool: &str) -> bool {
        self.tool.as_str() == tool
    }
}

/// A chair, whatever sits on it.
pub(crate) trait AnyInstance: Any + Send + Sync {
    /// Takes the instance away; answers its goodbye. To be asked when no call is in the room.
    fn begin_close(&self) -> Option<BoxFuture<'static, ()>>;
}

/// The chair of an instance: empty until it is made, and while a call works with it alone.
pub(crate) struct InstanceCell<T> {
    exclusive: AsyncMutex<()>,
    instance: Mutex<Option<T>>,
    close: fn(T) -> BoxFuture<'static, ()>,
}

impl<T: Send + 'static> InstanceCell<T> {
    pub(crate) fn new(close: fn(T) -> BoxFuture<'static, ()>) -> Self {
        Self { exclusive: AsyncMutex::default(), instance: Mutex::default(), close }
    }

    /// Waits until no other call works alone in this room. The wait is bounded by the deadline of the call around it.
    pub(crate) async fn lock_exclusive(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().await
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put(&self, live: T) {
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }
}

impl<I: Send + Sync + 'static> InstanceCell<Arc<I>> {
    /// A share of an instance that many calls use.
    pub(crate) fn get_shared(&self) -> Option<Arc<I>> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes this very instance away; says whether it was still there.
    pub(crate) fn discard(&self, spoiled: &Arc<I>) -> bool {
        let gone = {
            let mut live = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
            live.take_if(|live| Arc::ptr_eq(live, spoiled))
        };
        gone.is_some()
    }
}

impl<T: Send + 'static> AnyInstance for InstanceCell<T> {
    fn begin_close(&self) -> Option<BoxFuture<'static, ()>> {
        self.take().map(self.close)
    }
}
