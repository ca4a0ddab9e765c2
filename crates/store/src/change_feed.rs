//! Change feed: broadcasts committed changes to the watchers in this process, in commit order.
//!
//! A store emits from a single place, so the versions of a row arrive in order.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast::{self, error::RecvError};
use toolhub_storage::backend::{RowKey, Table, WatchEvent, Watcher};

/// How many changes of a table a watcher may lag before it receives `WatchEvent::Lagged`.
const BACKLOG: usize = 1024;

/// One broadcast channel per table, created by its first watcher: most tables have none, and a channel allocates its backlog.
#[derive(Clone)]
pub(crate) struct ChangeFeed(Arc<[OnceLock<ChangeChannel>]>);

type ChangeChannel = broadcast::Sender<WatchEvent>;

impl ChangeFeed {
    pub(crate) fn new() -> Self {
        Self(Table::ALL.map(|_| OnceLock::new()).into())
    }

    /// Whether the table has watchers.
    pub(crate) fn has_subscribers(&self, table: Table) -> bool {
        self.0[table as usize].get().is_some_and(|channel| channel.receiver_count() > 0)
    }

    pub(crate) fn emit(&self, key: RowKey, version: Option<u64>) {
        if let Some(channel) = self.0[key.table as usize].get() {
            // An error only means that the last watcher has unsubscribed meanwhile.
            let _ = channel.send(WatchEvent::Row(key, version));
        }
    }

    /// Tells all watchers that they missed changes.
    #[cfg(feature = "redis")]
    pub(crate) fn emit_lagged(&self) {
        for channel in self.0.iter().filter_map(OnceLock::get) {
            let _ = channel.send(WatchEvent::Lagged);
        }
    }

    pub(crate) fn watch(&self, table: Table) -> Watcher {
        let receiver = self.0[table as usize].get_or_init(|| broadcast::Sender::new(BACKLOG)).subscribe();
        Box::pin(futures_util::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(RecvError::Lagged(_)) => Some((WatchEvent::Lagged, receiver)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}
