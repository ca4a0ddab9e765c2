//! Tells watchers in this process what was committed, in the order it was committed.
//!
//! One at a time tells, so the versions of a row are told in order.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast::{self, error::RecvError};
use toolhub_storage::backend::{RowKey, Table, WatchEvent, Watcher};

/// How many changes of a table a watcher may be behind before it is told that it missed some.
const BACKLOG: usize = 1024;

/// One line per table, begun by the first who listens: most tables have nobody, and a line takes room for its backlog.
#[derive(Clone)]
pub(crate) struct ChangeFeed(Arc<[OnceLock<ChangeChannel>]>);

type ChangeChannel = broadcast::Sender<(RowKey, Option<u64>)>;

impl ChangeFeed {
    pub(crate) fn new() -> Self {
        Self(Table::ALL.map(|_| OnceLock::new()).into())
    }

    /// Whether anybody would hear of it.
    pub(crate) fn has_subscribers(&self, table: Table) -> bool {
        self.0[table as usize].get().is_some_and(|line| line.receiver_count() > 0)
    }

    pub(crate) fn emit(&self, key: RowKey, version: Option<u64>) {
        if let Some(line) = self.0[key.table as usize].get() {
            // Whoever stopped listening meanwhile misses nothing.
            let _ = line.send((key, version));
        }
    }

    pub(crate) fn watch(&self, table: Table) -> Watcher {
        let line = self.0[table as usize].get_or_init(|| broadcast::Sender::new(BACKLOG)).subscribe();
        Box::pin(futures_util::stream::unfold(line, |mut line| async move {
            match line.recv().await {
                Ok((key, version)) => Some((WatchEvent::Row(key, version), line)),
                Err(RecvError::Lagged(_)) => Some((WatchEvent::Lagged, line)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}
