//! Redis backend: all records in Redis 7 or later, on one server, behind Sentinel, or in a Cluster.
//!
//! In: the requests of `Backend`. Out: rows and versions. A commit is one script call (`commit`, `script/commit.lua`); what a lost answer
//! leaves open is settled by sending it again, because the script recognizes it. `keys` names the keys, `row_codec` the layout of values,
//! `io_thread` drives the connections (`supervisor`, `link`). Several nodes may open a store: each commit is atomic, and finds out what a
//! server has lost (`epoch`, `acknowledged`).

mod acknowledged;
mod address;
mod answer;
mod clock;
mod commit;
mod epoch;
mod error;
mod expiries;
mod io_thread;
mod keys;
mod link;
mod load;
mod loss_check;
mod notifications;
mod open;
mod options;
mod permissions;
mod replication;
mod requests;
mod row_codec;
mod scan;
mod script;
mod server_info;
mod server_monitor;
mod server_run;
mod supervisor;
mod sweep;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Backend, Batch, LossReport, Page, Row, RowKey, Scan, ServersReport, StoreError, Table, Watcher},
    clock::{Clock, Timestamp},
    seal::SealKey,
};

use acknowledged::Acknowledged;
pub use address::{Address, AddressError};
use clock::StoreClock;
pub use error::{OpenError, SettingNames};
use io_thread::IoThread;
use keys::Keys;
use notifications::NotificationState;
pub use open::Inspection;
use open::Opened;
pub use options::{Options, TlsFiles};
use replication::Replication;
use requests::Requests;
use server_monitor::ServerState;

use crate::change_feed::ChangeFeed;

/// A backend that stores everything in Redis.
///
/// ```no_run
/// use toolhub_store::{Redis, redis::{Address, Options}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Redis::open(Options::new(Address::parse("redis://localhost:6379/0")?))?;
/// # drop(store); Ok(()) }
/// ```
///
/// A thread of its own drives the connections, and tokio's paused clock does not wait for it: tests that pause time use the in-memory
/// backend.
// The drop order matters: nothing uses the connections any more when their thread ends.
pub struct Redis {
    keys: Keys,
    requests: Arc<Requests>,
    is_cluster: bool,
    replication: Option<Replication>,
    acknowledged: Arc<Acknowledged>,
    servers: Arc<ServerState>,
    notifications: Arc<NotificationState>,
    clock: Arc<StoreClock>,
    seal_key: Option<SealKey>,
    change_feed: ChangeFeed,
    address: Address,
    _thread: IoThread,
}

impl Redis {
    /// Opens the store at this address, or creates it. Blocks until the server has answered.
    ///
    /// # Errors
    /// When no server answers, when it loses records or is too old, when the user may not run a command, and when a later version wrote it.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let (address, is_cluster) = (options.address.clone(), options.address.is_cluster());
        let (seal_key, names) = (options.seal_key.clone(), options.setting_names);
        let (thread, opened) = IoThread::open(options).map_err(|error| names.rename_error(error))?;
        let Opened { keys, requests, replication, change_feed, acknowledged, servers, notifications, clock } = opened;
        Ok(Self {
            keys,
            requests,
            is_cluster,
            replication,
            acknowledged,
            servers,
            notifications,
            clock,
            seal_key,
            change_feed,
            address,
            _thread: thread,
        })
    }
}

impl Redis {
    /// Checks whether the store at this address can be opened, or created. Writes nothing. Blocks until the server has answered.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn inspect(options: Options) -> Result<Inspection, OpenError> {
        let names = options.setting_names;
        IoThread::inspect(options).map_err(|error| names.rename_error(error))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.keys.prefix();
        f.debug_struct("Redis").field("address", &self.address).field("prefix", &prefix).finish_non_exhaustive()
    }
}

impl Backend for Redis {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(self.load_rows(keys, now))
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(self.commit_batch(batch, now))
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move { self.scan_page(&scan, now).await })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(self.sweep_rows(limit, now))
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        Box::pin(self.count_rows_by_id(table, now))
    }

    fn watch(&self, table: Table) -> Watcher {
        self.change_feed.watch(table)
    }

    /// Commits that a fail-over lost, and those that too few replicas have.
    fn damage(&self) -> Option<String> {
        let lost = acknowledged::describe(&self.acknowledged.reports(0));
        let problems = [lost, self.replication.as_ref().and_then(Replication::problem)];
        problems.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))
    }

    fn write_error(&self) -> Option<String> {
        self.requests.refusal()
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        self.acknowledged.reports(seen)
    }

    fn warnings(&self) -> Vec<String> {
        self.servers.warnings()
    }

    fn memory_pressure(&self) -> Option<f64> {
        self.servers.used_memory()
    }

    fn lacks_replicas(&self, stamp: u64) -> bool {
        self.replication.as_ref().is_some_and(|replication| replication.is_short(stamp))
    }

    fn servers(&self) -> Option<ServersReport> {
        Some(ServersReport {
            servers: self.servers.list(),
            clock_difference: self.clock.difference(),
            notification_lag: self.notifications.lag(),
            notification_gaps: self.notifications.gaps(),
        })
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        Some(self.clock.clone())
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.seal_key.clone()
    }

    fn name(&self) -> &'static str {
        "redis"
    }
}
