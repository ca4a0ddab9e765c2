//! Puts a hub together. What was said is checked by `check.rs` before anything is begun.

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
/// How old the last activity of a thread may grow in the store while the thread is active here.
const MAX_ACTIVITY_LAG: Duration = Duration::from_secs(60);

/// A hub in the making.
#[must_use = "a hub exists only after `build`"]
pub struct HubBuilder {
    tools: Vec<ToolBuilder>,
    executors: HashMap<Kind, Arc<dyn Executor>>,
    /// A kind that was given two executors.
    duplicate_executor: Option<Kind>,
    resources: Extensions,
    store: Option<Arc<dyn Backend>>,
    /// Whether somebody else may use the store.
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
    /// The store does not answer, or what it keeps cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was said about tools cannot hold; every problem is named.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Policy(Vec<PolicyError>),
    /// The store that `manager_type` asks for cannot be opened.
    #[error("the store that `manager_type` asks for cannot be opened: {0}")]
    StateStore(String),
    /// A kind was given two executors.
    #[error("there are two executors for tools of kind `{0}`; give the hub one")]
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

    /// Shares a thing with all tools; they ask for it with `Shared<T>`.
    pub fn resource<T: Send + Sync + 'static>(self, resource: T) -> Self {
        self.resources.insert(resource);
        self
    }

    /// Where records and state are kept; in memory where nothing is said.
    pub fn store(mut self, store: impl Backend) -> Self {
        self = self.shared_store(Arc::new(store));
        self.store_is_shared = false;
        self
    }

    /// The same, for a store that is used elsewhere too, such as by a second hub.
    pub fn shared_store(mut self, store: Arc<dyn Backend>) -> Self {
        (self.store, self.store_is_shared) = (Some(store), true);
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// What holds for tools of which nothing else is said.
    pub fn default_policy(mut self, policy: Policy) -> Self {
        self.default_policy = policy;
        self
    }

    /// What holds for the tools whose names fit the glob. It weighs more than the defaults and less than what a tool says
    /// itself; of two that fit, the later one weighs more.
    pub fn policy(mut self, tools: impl Into<String>, policy: Policy) -> Self {
        self.policies.push((tools.into(), policy));
        self
    }

    /// A rule that denies, asks or allows. All denying rules are looked at first, then those that ask, then those that
    /// allow.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Code around the calls of the tools whose names fit the glob.
    pub fn hook(mut self, tools: impl Into<String>, hook: impl Hook) -> Self {
        self.hooks.push((tools.into(), Arc::new(hook)));
        self
    }

    /// How many calls may run at once, of all tools together; no limit where nothing is said.
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.max_concurrency = Some(calls);
        self
    }

    /// How many calls may wait for their turn: of one tool, and in all. 1,000 and 10,000 where nothing is said. As many as in
    /// all may wait for people besides.
    pub fn queue_limits(mut self, per_tool: usize, in_all: usize) -> Self {
        self.queue_limits = QueueLimits { per_tool, total: in_all };
        self
    }

    /// When a run is stopped from going round in circles.
    pub fn run_limits(mut self, limits: RunLimits) -> Self {
        self.run_limits = limits;
        self
    }

    /// When a failing tool is withheld, and for how long.
    pub fn status(mut self, settings: StatusSettings) -> Self {
        self.status = settings;
        self
    }

    /// How much of what tools remember is kept, and who wins when two write.
    pub fn business_state(mut self, config: BusinessStateConfig) -> Self {
        self.business_state = config;
        self
    }

    /// Where states are kept, and for how long.
    pub fn state_manager(mut self, config: StateManagerConfig) -> Self {
        self.state_manager = config;
        self
    }

    /// What opens the stores that `manager_type` asks for; `toolhub::open_store` knows all there are.
    pub fn state_store_factory<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        open: impl Fn(&StateManagerConfig, &BusinessStateConfig) -> Result<Arc<dyn Backend>, E> + Send + Sync + 'static,
    ) -> Self {
        self.state_store_factory = Some(Arc::new(move |manager, business| open(manager, business).map_err(Into::into)));
        self
    }

    /// How many blocking functions may run at once; 64 where nothing is said.
    pub fn max_blocking_threads(mut self, places: usize) -> Self {
        self.max_blocking_threads = places;
        self
    }

    /// How long ended calls stay in the journal; 30 days where nothing is said.
    pub fn call_retention(mut self, time: Duration) -> Self {
        self.call_retention = time;
        self
    }

    /// How long events about statuses and questions to people can be heard later; 7 days where nothing is said.
    pub fn event_retention(mut self, time: Duration) -> Self {
        self.event_retention = time;
        self
    }

    /// How long a live instance is kept while nobody uses it; 30 minutes where nothing is said.
    pub fn instance_idle_timeout(mut self, time: Duration) -> Self {
        self.instance_idle_timeout = time;
        self
    }

    /// How many live instances are kept: in one thread, and in all. 32 and 10,000 where nothing is said. The least recently
    /// used goes first, and one that is in use never goes: while more are in use at once, there are more.
    pub fn instance_limits(mut self, per_thread: usize, in_all: usize) -> Self {
        self.instance_limits = InstanceLimits { per_thread, total: in_all };
        self
    }

    /// How long a thread is kept that nobody uses; 14 days where nothing is said, for ever with `None`. Then it is swept
    /// with its state and all its records, unless a question to a person or a call is open in it.
    pub fn idle_thread_retention(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle_thread_retention = time.into();
        self
    }

    /// Arguments under these names are secret too: globs over the names of members, in lower case. They are taken out of records
    /// of calls that have ended, of questions to people, and of the history of states, as are those whose names hold
    /// `authorization`, `apikey`, `token`, `secret` or `password`.
    pub fn redact<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.secret_names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Listens from before the first event, `hub.initialized`.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.events.subscribe()
    }

    /// The finished hub.
    ///
    /// # Errors
    /// When a tool cannot be registered; the error says which and why.
    pub async fn build(mut self) -> Result<ToolHub, BuildError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (said, hooks, redactor) = self.validate()?;
        let given = self.store.is_some();
        let store = self.store.unwrap_or_else(|| Arc::new(Memory::new()));
        let meters = Arc::new(StoreMeters::default());
        let store: Arc<dyn Backend> = Arc::new(TimeoutBackend::new(store, &meters));
        let alone = !self.store_is_shared && store.is_exclusive();
        let journal = Journal::new(store.clone(), self.call_retention, alone);
        let batched = || Arc::new(BatchedRecords::new(store.clone(), self.clock.clone(), self.call_retention));
        let batched_records = given.then(batched);
        let kept_events = given.then(|| {
            Arc::new(EventLog::new(store.clone(), self.clock.clone(), journal.node.clone(), self.event_retention))
        });
        if let Some(kept) = &kept_events {
            self.events.attach_log(kept, kept.last_id().await?);
        }
        let stirred = Arc::new(Notify::new());
        let gone = CancellationToken::new();
        let statuses = Arc::new(Statuses::new(
            self.status,
            store.clone(),
            self.clock.clone(),
            self.events.clone(),
            stirred.clone(),
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
        let homes = StoreRouter::new(
            (store.clone(), given),
            meters.clone(),
            self.state_store_factory,
            manager.clone(),
            business.clone(),
        );
        let homes = homes.map_err(BuildError::StateStore)?;
        let state = StateManager::new(homes, self.clock.clone(), business, manager);
        let lag = self.idle_thread_retention.map_or(MAX_ACTIVITY_LAG, |idle| MAX_ACTIVITY_LAG.min(idle / 4));
        let known = Arc::new(ThreadActivity::new(lag));
        let book = Arc::new(ThreadStore::new(known.clone(), store.clone(), self.clock.clone()));
        let rooms = Arc::new(InstancePool::new(
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
            instances: rooms.clone(),
            thread_activity: known,
            blocking: BlockingPool::new(self.max_blocking_threads.min(tokio::sync::Semaphore::MAX_PERMITS)),
            resources: self.resources,
            redactor,
            availability_changed: stirred.clone(),
        });
        let hub = ToolHub {
            engine: Arc::new(Engine {
                batched_records,
                registry: Registry::with_policies(said),
                journal,
                event_log: kept_events,
                approvals: approvals.clone(),
                scheduler: Scheduler::new(self.max_concurrency, self.queue_limits, self.run_limits),
                statuses: statuses.clone(),
                thread_store: book.clone(),
                services,
                executors: self.executors,
                hooks,
                live_calls: crate::journal::LiveCalls::default(),
                offers: crate::offers::Offers::default(),
                extensions: Extensions::default(),
                shutdown: crate::engine::Shutdown::default(),
                background_tasks: tokio_util::task::TaskTracker::new(),
                stopped: gone.clone(),
                _stop_guard: gone.clone().drop_guard(),
                call_tasks: tokio_util::task::TaskTracker::new(),
                runtime: runtime.clone(),
            }),
        };
        hub.register_all(self.tools)?;
        background::start_tasks(&hub.engine, &gone, self.idle_thread_retention, cleanup).await?;
        hub.emit(EventKind::HubInitialized { tools: hub.tools().len() });
        Ok(hub)
    }
}
