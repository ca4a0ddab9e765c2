//! What answers the requests of other nodes to this one.
//!
//! In: handlers of the crates above, by kind. Out: the handler of a request, and what cancels it while it is answered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_core::future::BoxFuture;
use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::{Notify, futures::Notified};
use tokio_util::sync::CancellationToken;

pub(crate) type NodeRequestHandler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

#[derive(Default)]
pub(crate) struct NodeRequestHandlers {
    by_kind: Mutex<HashMap<&'static str, NodeRequestHandler>>,
    /// Requests that are being answered, by the id of their row.
    running: Mutex<HashMap<SmolStr, CancellationToken>>,
    changed: Notify,
}

impl NodeRequestHandlers {
    pub(crate) fn set(&self, kind: &'static str, handler: NodeRequestHandler) {
        lock(&self.by_kind).insert(kind, handler);
    }

    pub(crate) fn get(&self, kind: &str) -> Option<NodeRequestHandler> {
        lock(&self.by_kind).get(kind).cloned()
    }

    /// Begins to answer a request, unless it is being answered. Returns what cancels it.
    pub(crate) fn begin(&self, id: &SmolStr) -> Option<CancellationToken> {
        let mut running = lock(&self.running);
        if running.contains_key(id) {
            return None;
        }
        let cancel = CancellationToken::new();
        running.insert(id.clone(), cancel.clone());
        Some(cancel)
    }

    pub(crate) fn end(&self, id: &str) {
        lock(&self.running).remove(id);
    }

    /// Cancels a request that was withdrawn.
    pub(crate) fn cancel(&self, id: &str) {
        if let Some(cancel) = lock(&self.running).get(id) {
            cancel.cancel();
        }
    }

    /// Wakes those that wait for an answer of another node.
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Resolves when a request of any node was changed after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
