//! Assembles a hub from its settings.
//!
//! In: a `HubBuilder`. Out: a running `ToolHub`. `validation.rs` checks all settings before anything is opened or started.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use smol_str::format_smolstr;
use tokio::{runtime::Handle, sync::Notify};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{BuildError, HubBuilder, validation::ValidatedParts};
use crate::{
    alerts::Alerts,
    approvals::Approvals,
    argument_memory::ArgumentMemory,
    batched_records::BatchedRecords,
    blocking::BlockingPool,
    engine::{Engine, Shutdown},
    events::{EventLog, Relay},
    extensions::Extensions,
    hub::{ToolHub, background, sources::Owner},
    journal::{CallIndex, Journal, LiveCalls},
    nodes::Nodes,
    offers::Offers,
    registry::Registry,
    scheduler::{Scheduler, SharedPermits, SharedRates},
    sealing::Sealer,
    services::Services,
    source_lists::SourceListTable,
    statuses::Statuses,
    threads::{InstancePool, ThreadActivity, ThreadRowBackend, ThreadStore},
};
use toolhub_state::{StateManager, StoreRouter};
use toolhub_storage::{
    backend::{Backend, Memory, StoreMeters, TimeoutBackend},
    clock::SystemClock,
};
use toolhub_types::event_kind::EventKind;

/// Longest delay with which a thread's last activity is written to the store while the thread is active.
const MAX_ACTIVITY_LAG: Duration = Duration::from_secs(60);

impl HubBuilder {
    /// Builds the hub and starts its background tasks.
    ///
    /// # Errors
    /// When a setting is invalid, a tool cannot be registered, or the store does not answer. Every invalid setting and every
    /// problem of every tool is reported.
    pub async fn build(mut self) -> Result<ToolHub, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        match self.validate() {
            Ok(parts) => self.assemble(parts, runtime).await,
            Err(error) => Err(BuildError::combine(error, self.check_tools(runtime).await)),
        }
    }

    /// Opens the stores, registers the tools and starts the background tasks.
    pub(super) async fn assemble(self, parts: ValidatedParts, runtime: Handle) -> Result<ToolHub, BuildError> {
        let (policies, hooks, redactor) = parts;
        let has_store = self.store.is_some();
        let store = self.store.unwrap_or_else(|| Arc::new(Memory::new()));
        let clock = self.clock.or_else(|| store.clock()).unwrap_or_else(|| Arc::new(SystemClock));
        let meters = Arc::new(StoreMeters::default());
        let lag = self.idle_thread_retention.map_or(MAX_ACTIVITY_LAG, |idle| MAX_ACTIVITY_LAG.min(idle / 4));
        let thread_activity = Arc::new(ThreadActivity::new(lag));
        let store = Arc::new(TimeoutBackend::new(store, &meters));
        let call_index = CallIndex::new(store.clone());
        let thread_rows = Arc::new(ThreadRowBackend::new(store, thread_activity.clone()));
        let store: Arc<dyn Backend> = thread_rows.clone();
        let is_exclusive = !self.store_is_shared && store.is_exclusive();
        let sealer = Sealer::new(&store, redactor.clone());
        let node = format_smolstr!("{:016x}", fastrand::u64(..));
        let journal = Journal::new(store.clone(), call_index, self.call_retention, node.clone(), sealer.clone());
        let batched = || {
            let (store, clock) = (store.clone(), clock.clone());
            Arc::new(BatchedRecords::new(store, clock, self.call_retention, self.read_only_calls))
        };
        let batched_records = has_store.then(batched);
        let event_log = has_store.then(|| {
            let (store, events) = ((store.clone(), !is_exclusive), self.events.clone());
            Arc::new(EventLog::new(store, clock.clone(), events, journal.node.clone(), self.event_retention))
        });
        if let Some(log) = &event_log {
            log.attach().await?;
        }
        let event_relay = (!is_exclusive)
            .then(|| Arc::new(Relay::new(store.clone(), clock.clone(), self.events.clone(), node.clone())));
        let membership = (self.node, self.node_timeout);
        let (nodes_store, events) = ((store.clone(), is_exclusive), self.events.clone());
        let nodes = Arc::new(Nodes::new(nodes_store, clock.clone(), events, node, membership));
        let alerts = Arc::new(Alerts::new(self.delivers_alerts));
        alerts.set_targets(self.alert_targets);
        let availability_changed = Arc::new(Notify::new());
        let stopped = CancellationToken::new();
        let statuses = Arc::new(Statuses::new(
            self.status,
            store.clone(),
            clock.clone(),
            (self.events.clone(), alerts.clone()),
            availability_changed.clone(),
            runtime.clone(),
        ));
        let approvals = Arc::new(Approvals::new(
            store.clone(),
            clock.clone(),
            self.events.clone(),
            self.call_retention,
            (redactor.clone(), sealer.clone()),
            alerts.clone(),
        ));
        let cleanup = self.state_manager.auto_cleanup.then_some(self.state_manager.cleanup_interval);
        let (business, manager) = (self.business_state, self.state_manager);
        let router = StoreRouter::new(
            (thread_rows.clone(), has_store),
            thread_rows,
            meters.clone(),
            self.state_store_factory,
            manager.clone(),
            business.clone(),
        );
        let router = router.map_err(BuildError::StateStore)?;
        let state = StateManager::new(router, clock.clone(), (business, manager), redactor.clone());
        let thread_store = Arc::new(ThreadStore::new(thread_activity.clone(), store.clone(), clock.clone()));
        let instances = Arc::new(InstancePool::new(
            self.instance_limits,
            self.instance_idle_timeout,
            self.events.clone(),
            clock.clone(),
            runtime.clone(),
        ));
        let shared_rates =
            (!is_exclusive).then(|| Arc::new(SharedRates::new(store.clone(), clock.clone(), nodes.clone())));
        let shared_permits =
            (!is_exclusive).then(|| Arc::new(SharedPermits::new(store.clone(), clock.clone(), nodes.clone())));
        let services = Arc::new(Services {
            state,
            write_locks: Arc::default(),
            clock,
            events: self.events,
            alerts,
            store: store.clone(),
            store_meters: meters,
            instances,
            thread_activity,
            shared_rates,
            shared_permits,
            blocking: BlockingPool::new(self.max_blocking_threads.min(tokio::sync::Semaphore::MAX_PERMITS)),
            resources: self.resources,
            redactor,
            sealer,
            refusals: Default::default(),
            availability_changed,
        });
        let hub = ToolHub {
            engine: Arc::new(Engine {
                batched_records,
                registry: Registry::with_policies(policies),
                journal,
                nodes,
                node_requests: Default::default(),
                event_log,
                event_relay,
                approvals,
                scheduler: Scheduler::new(self.max_concurrency, self.queue_limits, self.run_limits),
                argument_memory: ArgumentMemory::new(self.max_argument_memory),
                statuses,
                thread_store,
                services,
                source_lists: SourceListTable::default(),
                executors: self.executors,
                hooks,
                live_calls: LiveCalls::default(),
                offers: Offers::default(),
                started_at: OnceLock::new(),
                extensions: Extensions::default(),
                has_metrics_ticks: AtomicBool::default(),
                shutdown: Shutdown::default(),
                background_tasks: TaskTracker::new(),
                stopped: stopped.clone(),
                _stop_guard: stopped.clone().drop_guard(),
                call_tasks: TaskTracker::new(),
                runtime: runtime.clone(),
            }),
        };
        let engine = Arc::downgrade(&hub.engine);
        hub.engine.statuses.set_presence(move |tool| {
            let tool = engine.upgrade().and_then(|engine| engine.registry.snapshot().get(tool).cloned());
            tool.and_then(|tool| tool.presence_override()).unwrap_or_default()
        });
        for source in &self.sources {
            hub.declare_source(&**source)?;
        }
        hub.register_all(self.tools)?;
        hub.warn_of_concurrency_per_node();
        hub.engine.started_at.get_or_init(|| hub.now());
        background::start_tasks(&hub.engine, &stopped, self.idle_thread_retention, cleanup).await?;
        self.sources.into_iter().for_each(|source| hub.start_source(source, Owner::Hub));
        hub.emit(EventKind::HubInitialized { tools: hub.tools().len() });
        Ok(hub)
    }
}
