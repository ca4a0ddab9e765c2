//! Concurrency limits that the nodes of a store share.
//!
//! In: calls that wait in the queue of a tool, and the tool's shared limit. Out: a slot for each once the store has a permit for it. For each tool
//! with such calls, a keeper takes permits, renews them while the calls run, and gives them back. All permits of a tool are in one
//! row, changed by compare-and-set. Those of a node that is dead or cut off expire after the node timeout, by the clock of the store. While
//! the store does not answer, waiting calls are refused. Which node gets a freed permit is left to chance.

mod keeper;
mod row;

use std::{
    collections::{HashMap, HashSet},
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use smol_str::format_smolstr;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use keeper::Keeper;
use toolhub_storage::{
    backend::{Backend, WatchEvent, Watcher},
    clock::Clock,
};
use toolhub_types::tool::ToolName;

use super::ToolQueue;
use crate::nodes::Nodes;

/// The shared permits of a hub.
pub(crate) struct SharedPermits {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    nodes: Arc<Nodes>,
    /// Keepers by their queue; only of tools with calls that run or wait.
    keepers: Mutex<HashMap<u64, Arc<Keeper>>>,
    /// Notified when there is a new keeper.
    added: Notify,
}

impl SharedPermits {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, nodes: Arc<Nodes>) -> Self {
        Self { store, clock, nodes, keepers: Mutex::default(), added: Notify::new() }
    }

    /// Cares for the calls that wait in the queue of a tool: at most `limit` calls of it may run on all nodes.
    pub(crate) fn request(&self, tool: &ToolName, queue: &ToolQueue, limit: usize) {
        let mut keepers = self.lock();
        if let Some(keeper) = keepers.get(&queue.key()) {
            keeper.set_limit(limit);
            return;
        }
        let holder = format_smolstr!("{}-{}", self.nodes.own_id(), queue.key());
        keepers.insert(queue.key(), Arc::new(Keeper::new(tool.clone(), holder, queue.clone(), limit)));
        drop(keepers);
        self.added.notify_one();
    }

    /// How long permits hold that are not renewed.
    fn lease(&self) -> Duration {
        self.nodes.timeout()
    }

    /// Runs a keeper until nothing of its tool runs or waits.
    async fn run(&self, keeper: Arc<Keeper>, stopped: &CancellationToken) {
        while !stopped.is_cancelled() {
            keeper.run(self, stopped).await;
            let mut keepers = self.lock();
            // A call is in the queue before it looks for a keeper.
            if keeper.is_idle() {
                keepers.remove(&keeper.queue_key());
                return;
            }
        }
    }

    /// Wakes the keepers of a tool after its row changed, or all keepers.
    fn wake(&self, tool: Option<&ToolName>, version: Option<u64>) {
        let keepers: Vec<_> = self.lock().values().cloned().collect();
        keepers.iter().filter(|keeper| keeper.is_of(tool)).for_each(|keeper| keeper.row_changed(version));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Keeper>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the keepers until the hub stops; then gives all permits back whose calls have ended.
pub(crate) async fn run_shared_permits(permits: Arc<SharedPermits>, mut changes: Watcher, stopped: CancellationToken) {
    let (mut running, mut started) = (FuturesUnordered::new(), HashSet::new());
    let mut watches = true;
    while !stopped.is_cancelled() {
        let keepers: Vec<_> = permits.lock().values().cloned().collect();
        for keeper in keepers {
            let key = keeper.queue_key();
            if started.insert(key) {
                let (permits, stopped) = (&permits, &stopped);
                running.push(async move {
                    permits.run(keeper, stopped).await;
                    key
                });
            }
        }
        let (mut stop, mut added) = (pin!(stopped.cancelled()), pin!(permits.added.notified()));
        poll_fn(|cx| {
            while watches && let Poll::Ready(change) = changes.poll_next_unpin(cx) {
                match change {
                    Some(WatchEvent::Row(key, version)) => permits.wake(row::tool_of(&key), version),
                    Some(WatchEvent::Lagged) => permits.wake(None, None),
                    // Keepers also look from time to time.
                    None => watches = false,
                }
            }
            while let Poll::Ready(Some(ended)) = running.poll_next_unpin(cx) {
                started.remove(&ended);
            }
            if stop.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { added.as_mut().poll(cx) }
        })
        .await;
    }
    while running.next().await.is_some() {}
}
