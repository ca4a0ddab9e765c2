//! What answers the requests of other nodes to this one.
//!
//! In: handlers of the crates above, by kind. Out: the handler of a request, and what cancels it while it is answered; and what wakes those
//! that wait for an answer of another node.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_core::future::BoxFuture;
use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) type NodeRequestHandler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

#[derive(Default)]
pub(crate) struct NodeRequestHandlers {
    by_kind: Mutex<HashMap<&'static str, NodeRequestHandler>>,
    /// Requests that are being answered, by the id of their row.
    running: Mutex<HashMap<SmolStr, CancellationToken>>,
    /// Requests of this node that have no answer yet.
    waiting: Mutex<HashMap<SmolStr, Arc<Notify>>>,
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

    /// Cancels all requests but these: the others were withdrawn.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        lock(&self.running).iter().filter(|(id, _)| !is_there(id)).for_each(|(_, cancel)| cancel.cancel());
    }

    /// Begins to wait for the answer to a request of this node.
    pub(crate) fn wait(&self, id: &SmolStr) -> AnswerWait<'_> {
        let changed = lock(&self.waiting).entry(id.clone()).or_default().clone();
        AnswerWait { handlers: self, id: id.clone(), changed }
    }

    /// Wakes the task that waits for the answer to a request.
    pub(crate) fn notify(&self, id: &str) {
        if let Some(waiting) = lock(&self.waiting).get(id) {
            waiting.notify_one();
        }
    }
}

/// Waits for the answer to a request until it is dropped.
pub(crate) struct AnswerWait<'a> {
    handlers: &'a NodeRequestHandlers,
    id: SmolStr,
    changed: Arc<Notify>,
}

impl AnswerWait<'_> {
    /// Waits until the row of the request has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for AnswerWait<'_> {
    fn drop(&mut self) {
        lock(&self.handlers.waiting).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
