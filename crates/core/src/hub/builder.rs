//! `HubBuilder`: collects settings and assembles a hub.
//!
//! In: tools, executors, a store, policies, limits. Out: a running `ToolHub`, or a `BuildError`. `validation.rs` checks all settings
//! before anything is opened or started.

mod validation;

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{ToolHub, background};
use crate::{
    approvals::Approvals,
    batched_records::BatchedRecords,
    blocking::BlockingPool,
    engine::Engine,
    events::{EventLog, Events, Subscription},
    execution::Executor,
    extensions::Extensions,
    hooks::Hook,
    journal::Journal,
    registry::{Registry, RegistryError, ToolBuilder},
    runaway::RunLimits,
    scheduler::{QueueLimits, Scheduler},
    services::Services,
    state::{OpenStore, StateManager, StoreRouter},
    statuses::Statuses,
    threads::{InstanceLimits, InstancePool, ThreadActivity, ThreadStore},
};
use toolhub_storage::{
    backend::{Backend, Memory, StoreError, StoreMeters, TimeoutBackend},
    clock::{Clock, SystemClock},
};
use toolhub_types::{
    event_kind::EventKind,
    policy::{Policy, PolicyError, Rule},
    state_config::{BusinessStateConfig, StateManagerConfig},
    status::StatusSettings,
    tool::Kind,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longest delay with which a thread's last activity is written to the store while the thread is active.
const MAX_ACTIVITY_LAG: Duration = Duration::from_secs(60);

/// Builds a hub.
#[must_use = "a hub exists only after `build`"]
pub struct HubBuilder {
    tools: Vec<ToolBuilder>,
    executors: HashMap<Kind, Arc<dyn Executor>>,
    /// A kind for which two executors were set.
    duplicate_executor: Option<Kind>,
    resources: Extensions,
    store: Option<Arc<dyn Backend>>,
    /// Whether the store has other users, such as a second hub.
    store_is_shared: bool,
    clock: Arc<dyn Clock>,
    status: StatusSettings,
    business_state: BusinessStateConfig,
    state_manager: StateManagerConfig,
    state_store_factory: Option<Arc<OpenStore>>,
    events: Events,
    default_policy: Policy,
    policies: Vec<(String, Policy)>,
    rules: Vec<Rule>,
    hooks: Vec<(String, Arc<dyn Hook>)>,
    max_concurrency: Option<usize>,
    queue_limits: QueueLimits,
    run_limits: RunLimits,
    max_blocking_threads: usize,
    call_retention: Duration,
    event_retention: Duration,
    instance_idle_timeout: Duration,
    instance_limits: InstanceLimits,
    idle_thread_retention: Option<Duration>,
    secret_names: Vec<String>,
}

/// Why a hub cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A tool cannot be registered.
    #[error(transparent)]
    Tool(#[from] RegistryError),
    /// The store does not answer, or a record cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Policies, rules or settings are invalid; all problems are listed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Policy(Vec<PolicyError>),
    /// The store for `manager_type` cannot be opened.
    #[error("cannot open the store for `manager_type`: {0}")]
    StateStore(String),
    /// A kind has two executors.
    #[error("there are two executors for tools of kind `{0}`; register only one")]
    DuplicateExecutor(Kind),
    /// There is no tokio runtime to run calls on.
    #[error("a hub must be built inside a tokio runtime: calls run on its tasks")]
    NoRuntime,
}

impl HubBuilder {
    pub(super) fn new() -> Self {
        Self {
            tools: Vec::new(),
            executors: HashMap::new(),
            duplicate_executor: None,
            resources: Extensions::default(),
            store: None,
            store_is_shared: false,
            clock: Arc::new(SystemClock),
            status: StatusSettings::default(),
            business_state: BusinessStateConfig::default(),
            state_manager: StateManagerConfig::default(),
            state_store_factory: None,
            events: Events::new(),
            default_policy: Policy::default(),
            policies: Vec::new(),
            rules: Vec::new(),
            hooks: Vec::new(),
            max_concurrency: None,
            queue_limits: QueueLimits::default(),
            run_limits: RunLimits::default(),
            max_blocking_threads: 64,
            call_retention: 30 * DAY,
            event_retention: 7 * DAY,
            instance_idle_timeout: Duration::from_secs(30 * 60),
            instance_limits: InstanceLimits { per_thread: 32, total: 10_000 },
            idle_thread_retention: Some(14 * DAY),
            secret_names: Vec::new(),
        }
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: ToolBuilder) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = ToolBuilder>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Adds a kind of tool: this executor runs every tool of that kind.
    pub fn executor(mut self, kind: impl Into<Kind>, executor: impl Executor) -> Self {
        let kind = kind.into();
        if self.executors.insert(kind.clone(), Arc::new(executor)).is_some() {
            self.duplicate_executor = Some(kind);
        }
        self
    }

    /// Shares a value with all tools, which take it as a parameter `Shared<T>`.
    pub fn resource<T: Send + Sync + 'static>(self, resource: T) -> Self {
        self.resources.insert(resource);
        self
    }

    /// The store of records and state. Default: in memory.
    pub fn store(mut self, store: impl Backend) -> Self {
        self = self.shared_store(Arc::new(store));
        self.store_is_shared = false;
        self
    }

    /// Like [`store`](Self::store), for a store that has other users, such as a second hub.
    pub fn shared_store(mut self, store: Arc<dyn Backend>) -> Self {
        (self.store, self.store_is_shared) = (Some(store), true);
        self
    }

    /// The clock of the hub. Default: the system clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The policy of tools that no other policy covers.
    pub fn default_policy(mut self, policy: Policy) -> Self {
        self.default_policy = policy;
        self
    }

    /// Adds a policy for the tools whose names match the glob. It takes precedence over the default policy, and a tool's own
    /// policy over it. Where two match, the later one takes precedence.
    pub fn policy(mut self, tools: impl Into<String>, policy: Policy) -> Self {
        self.policies.push((tools.into(), policy));
        self
    }

    /// Adds a rule that denies, asks or allows. All deny rules are evaluated first, then those that ask, then those that
    /// allow.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds a hook around the calls of the tools whose names match the glob.
    pub fn hook(mut self, tools: impl Into<String>, hook: impl Hook) -> Self {
        self.hooks.push((tools.into(), Arc::new(hook)));
        self
    }

    /// Maximum number of concurrent calls of all tools. Default: no limit.
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.max_concurrency = Some(calls);
        self
    }

    /// Maximum number of queued calls of one tool. Default: 1,000.
    pub fn max_queued_per_tool(mut self, calls: usize) -> Self {
        self.queue_limits.per_tool = calls;
        self
    }

    /// Maximum number of queued calls of all tools, and separately of calls that wait for approval. Default: 10,000.
    pub fn max_queued(mut self, calls: usize) -> Self {
        self.queue_limits.total = calls;
        self
    }

    /// Runaway guard: when a run is stopped because it repeats itself or makes too many calls.
    pub fn run_limits(mut self, limits: RunLimits) -> Self {
        self.run_limits = limits;
        self
    }

    /// When a failing tool is withheld, and for how long.
    pub fn status(mut self, settings: StatusSettings) -> Self {
        self.status = settings;
        self
    }

    /// History, versions, size limits and conflict resolution of tool state.
    pub fn business_state(mut self, config: BusinessStateConfig) -> Self {
        self.business_state = config;
        self
    }

    /// Where tool state is stored, and for how long.
    pub fn state_manager(mut self, config: StateManagerConfig) -> Self {
        self.state_manager = config;
        self
    }

    /// The function that opens the store for a `manager_type`; `toolhub::open_store` supports all of them.
    pub fn state_store_factory<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        open: impl Fn(&StateManagerConfig, &BusinessStateConfig) -> Result<Arc<dyn Backend>, E> + Send + Sync + 'static,
    ) -> Self {
        self.state_store_factory = Some(Arc::new(move |manager, business| open(manager, business).map_err(Into::into)));
        self
    }

    /// Maximum number of blocking functions that run concurrently. Default: 64.
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.max_blocking_threads = threads;
        self
    }

    /// How long ended calls stay in the journal. Default: 30 days.
    pub fn call_retention(mut self, time: Duration) -> Self {
        self.call_retention = time;
        self
    }

    /// How long stored events, such as those of statuses and approvals, can be read. Default: 7 days.
    pub fn event_retention(mut self, time: Duration) -> Self {
        self.event_retention = time;
        self
    }

    /// How long an idle instance lives. Default: 30 minutes.
    pub fn instance_idle_timeout(mut self, time: Duration) -> Self {
        self.instance_idle_timeout = time;
        self
    }

    /// Maximum number of live instances in one thread. Default: 32. The least recently used one is closed first. Instances in
    /// use are never closed, so the limit is exceeded while more are in use.
    pub fn max_instances_per_thread(mut self, instances: usize) -> Self {
        self.instance_limits.per_thread = instances;
        self
    }

    /// Maximum number of live instances in all threads, enforced like
    /// [`max_instances_per_thread`](Self::max_instances_per_thread). Default: 10,000.
    pub fn max_instances(mut self, instances: usize) -> Self {
        self.instance_limits.total = instances;
        self
    }

    /// How long an idle thread is kept. Default: 14 days; `None` keeps it forever. After that it is swept with its state and
    /// all its records, unless it has a pending approval, an open call or an open run.
    pub fn idle_thread_retention(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle_thread_retention = time.into();
        self
    }

    /// Adds names of secret arguments: globs over lower-case member names. They are redacted in records of ended calls, in
    /// approvals and in the state history, like those whose names contain `authorization`, `apikey`, `token`, `secret` or
    /// `password`.
    pub fn redact<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.secret_names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Subscribes before the first event, `hub.initialized`.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.events.subscribe()
    }

    /// Builds the hub and starts its background tasks.
    ///
    /// # Errors
    /// When a setting is invalid, a tool cannot be registered, or the store does not answer.
    pub async fn build(mut self) -> Result<ToolHub, BuildError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (policies, hooks, redactor) = self.validate()?;
        let has_store = self.store.is_some();
        let store = self.store.unwrap_or_else(|| Arc::new(Memory::new()));
        let meters = Arc::new(StoreMeters::default());
        let store: Arc<dyn Backend> = Arc::new(TimeoutBackend::new(store, &meters));
        let is_exclusive = !self.store_is_shared && store.is_exclusive();
        let journal = Journal::new(store.clone(), self.call_retention, is_exclusive);
        let batched = || Arc::new(BatchedRecords::new(store.clone(), self.clock.clone(), self.call_retention));
        let batched_records = has_store.then(batched);
        let event_log = has_store.then(|| {
            Arc::new(EventLog::new(store.clone(), self.clock.clone(), journal.node.clone(), self.event_retention))
        });
        if let Some(log) = &event_log {
            self.events.attach_log(log, log.last_id().await?);
        }
        let availability_changed = Arc::new(Notify::new());
        let stopped = CancellationToken::new();
        let statuses = Arc::new(Statuses::new(
            self.status,
            store.clone(),
            self.clock.clone(),
            self.events.clone(),
            availability_changed.clone(),
            runtime.clone(),
        ));
        let approvals = Arc::new(Approvals::new(
            store.clone(),
            self.clock.clone(),
            self.events.clone(),
            self.call_retention,
            redactor.clone(),
        ));
        let cleanup = self.state_manager.auto_cleanup.then_some(self.state_manager.cleanup_interval);
        let (business, manager) = (self.business_state, self.state_manager);
        let router = StoreRouter::new(
            (store.clone(), has_store),
            meters.clone(),
            self.state_store_factory,
            manager.clone(),
            business.clone(),
        );
        let router = router.map_err(BuildError::StateStore)?;
        let state = StateManager::new(router, self.clock.clone(), business, manager);
        let lag = self.idle_thread_retention.map_or(MAX_ACTIVITY_LAG, |idle| MAX_ACTIVITY_LAG.min(idle / 4));
        let thread_activity = Arc::new(ThreadActivity::new(lag));
        let thread_store = Arc::new(ThreadStore::new(thread_activity.clone(), store.clone(), self.clock.clone()));
        let instances = Arc::new(InstancePool::new(
            self.instance_limits,
            self.instance_idle_timeout,
            self.events.clone(),
            self.clock.clone(),
            runtime.clone(),
        ));
        let services = Arc::new(Services {
            state,
            write_locks: Arc::default(),
            clock: self.clock,
            events: self.events,
            store: store.clone(),
            store_meters: meters,
            instances,
            thread_activity,
            blocking: BlockingPool::new(self.max_blocking_threads.min(tokio::sync::Semaphore::MAX_PERMITS)),
            resources: self.resources,
            redactor,
            availability_changed,
        });
        let hub = ToolHub {
            engine: Arc::new(Engine {
                batched_records,
                registry: Registry::with_policies(policies),
                journal,
                event_log,
                approvals,
                scheduler: Scheduler::new(self.max_concurrency, self.queue_limits, self.run_limits),
                statuses,
                thread_store,
                services,
                executors: self.executors,
                hooks,
                live_calls: crate::journal::LiveCalls::default(),
                offers: crate::offers::Offers::default(),
                extensions: Extensions::default(),
                shutdown: crate::engine::Shutdown::default(),
                background_tasks: tokio_util::task::TaskTracker::new(),
                stopped: stopped.clone(),
                _stop_guard: stopped.clone().drop_guard(),
                call_tasks: tokio_util::task::TaskTracker::new(),
                runtime: runtime.clone(),
            }),
        };
        hub.register_all(self.tools)?;
        background::start_tasks(&hub.engine, &stopped, self.idle_thread_retention, cleanup).await?;
        hub.emit(EventKind::HubInitialized { tools: hub.tools().len() });
        Ok(hub)
    }
}
