//! Watches the servers while the store is open: what they keep, how full they are, and their time.
//!
//! In: the answers to `INFO`, `CONFIG GET` and `TIME`, every 10 s. Out: what the servers are, warnings, the used part of the memory, a clock
//! that is set right.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use toolhub_storage::backend::{StoreError, StoreServer};

use super::{
    Options,
    clock::StoreClock,
    keys::Keys,
    requests::{Request, Requests},
    server_info::{self, ServerInfo},
};

const INTERVAL: Duration = Duration::from_secs(10);
/// How long a warning of delayed syncs stays after the last one.
const DELAYED_SYNC_RETENTION: Duration = Duration::from_secs(600);

/// What is known of the servers.
#[derive(Default)]
pub(super) struct ServerState {
    warnings: Mutex<Vec<String>>,
    list: Mutex<Vec<StoreServer>>,
    /// The used part of `maxmemory` of the fullest server, as the bits of an `f64`; 0 without a limit.
    used_memory: AtomicU64,
}

impl ServerState {
    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The servers as of the last look.
    pub(super) fn list(&self) -> Vec<StoreServer> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The used part of `maxmemory`, if there is such a limit.
    pub(super) fn used_memory(&self) -> Option<f64> {
        Some(f64::from_bits(self.used_memory.load(Ordering::Relaxed))).filter(|used| *used > 0.0)
    }

    /// Logs the warnings that are new.
    fn set(&self, list: Vec<StoreServer>, warnings: Vec<String>, used_memory: f64, address: &str) {
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list;
        self.used_memory.store(used_memory.to_bits(), Ordering::Relaxed);
        let mut known = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(%address, "{warning}");
        }
        *known = warnings;
    }
}

/// Handle of the task. Dropping it ends it.
pub(super) struct ServerMonitor(JoinHandle<()>);

impl Drop for ServerMonitor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Inspector {
    requests: Arc<Requests>,
    keys: Keys,
    options: Options,
    clock: Arc<StoreClock>,
    state: Arc<ServerState>,
    /// How many syncs of each run of a server were delayed, at the last look.
    delayed_syncs: HashMap<String, u64>,
    last_delayed_sync: Option<Instant>,
}

impl ServerMonitor {
    /// Inspects the servers once, and then regularly. Must be called inside a runtime.
    pub(super) async fn start(
        requests: Arc<Requests>,
        keys: Keys,
        options: Options,
        clock: Arc<StoreClock>,
    ) -> (Self, Arc<ServerState>) {
        let state = Arc::new(ServerState::default());
        let (delayed_syncs, last_delayed_sync) = (HashMap::new(), None);
        let mut inspector =
            Inspector { requests, keys, options, clock, state: state.clone(), delayed_syncs, last_delayed_sync };
        inspector.inspect_and_log().await;
        let run = async move {
            loop {
                sleep(INTERVAL).await;
                if let Err(error) = inspector.clock.adjust(&inspector.requests, &inspector.keys).await {
                    tracing::debug!(%error, "the time of Redis cannot be read");
                }
                inspector.inspect_and_log().await;
            }
        };
        (Self(tokio::spawn(run)), state)
    }
}

impl Inspector {
    async fn inspect_and_log(&mut self) {
        if let Err(error) = self.inspect().await {
            tracing::debug!(%error, "the servers of Redis cannot be inspected");
        }
    }

    async fn inspect(&mut self) -> Result<(), StoreError> {
        let info = self.requests.read(&[Request::Command(redis::cmd("INFO"))]).await?;
        let servers = info.into_iter().map(server_info::parse).collect::<Result<Vec<_>, _>>();
        let servers = servers.map_err(|_| super::answer::unexpected())?.concat();
        // A user may be denied to read settings.
        let settings = self.requests.read(&[Request::Command(server_info::settings_command())]).await;
        let settings = settings.ok().and_then(|answers| server_info::parse_settings(answers.into_iter().next()?));
        let mut warnings = server_info::warnings(&servers, settings.as_ref(), &self.options);
        if self.has_delayed_syncs(&servers) {
            warnings.push(
                "the disk of Redis is slow: syncs of its append-only file are delayed; acknowledged records may be lost with the process"
                    .into(),
            );
        }
        warnings.extend(self.clock.warning());
        warnings.extend(self.options.bucket_warning(&self.keys));
        let used_memory = servers.iter().filter_map(ServerInfo::used_memory).fold(0.0, f64::max);
        let address = self.options.address.to_string();
        let list = servers.iter().map(|server| server.describe(&address, settings.as_ref())).collect();
        self.state.set(list, warnings, used_memory, &address);
        Ok(())
    }

    /// Whether the number of delayed syncs has grown lately.
    fn has_delayed_syncs(&mut self, servers: &[ServerInfo]) -> bool {
        let counts = servers.iter().map(|server| (server.get("run_id").to_owned(), server.number("aof_delayed_fsync")));
        let counts: HashMap<String, u64> = counts.collect();
        let has_grown = |(run, count): (&String, &u64)| self.delayed_syncs.get(run).is_some_and(|last| count > last);
        if counts.iter().any(has_grown) {
            self.last_delayed_sync = Some(Instant::now());
        }
        self.delayed_syncs = counts;
        self.last_delayed_sync.is_some_and(|last| last.elapsed() < DELAYED_SYNC_RETENTION)
    }
}
