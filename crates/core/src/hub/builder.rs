//! `HubBuilder`: collects the settings of a hub.
//!
//! In: tools, executors, a store, policies, limits. Out: the settings, for `assembly.rs`, which builds the hub.

mod assembly;
mod validation;

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use super::{
    sources::{DuplicateSource, ToolSource},
    written_layouts::NewerRecords,
};
use crate::{
    alerts::AlertTarget,
    argument_memory,
    batched_records::ReadOnlyCalls,
    events::{EventClasses, Events, Subscription},
    execution::Executor,
    extensions::Extensions,
    hooks::Hook,
    nodes::{self, NewerNode, NodeInfo},
    registry::{RegistryError, ToolBuilder, join_lines},
    runaway::RunLimits,
    scheduler::QueueLimits,
    threads::InstanceLimits,
};
use toolhub_state::OpenStore;
use toolhub_storage::{
    backend::{Backend, StoreError},
    clock::Clock,
};
use toolhub_types::{
    policy::{Policy, PolicyError, Rule},
    state_config::{BusinessStateConfig, StateManagerConfig},
    status::StatusSettings,
    tool::Kind,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Builds a hub.
#[must_use = "a hub exists only after `build`"]
pub struct HubBuilder {
    tools: Vec<ToolBuilder>,
    sources: Vec<Arc<dyn ToolSource>>,
    executors: HashMap<Kind, Arc<dyn Executor>>,
    /// A kind for which two executors were set.
    duplicate_executor: Option<Kind>,
    resources: Extensions,
    store: Option<Arc<dyn Backend>>,
    /// Whether the store has other users, such as a second hub.
    store_is_shared: bool,
    node: NodeInfo,
    node_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
    status: StatusSettings,
    business_state: BusinessStateConfig,
    state_manager: StateManagerConfig,
    state_store_factory: Option<Arc<OpenStore>>,
    events: Events,
    alert_targets: Vec<AlertTarget>,
    delivers_alerts: bool,
    default_policy: Policy,
    policies: Vec<(String, Policy)>,
    rules: Vec<Rule>,
    hooks: Vec<(String, Arc<dyn Hook>)>,
    max_concurrency: Option<usize>,
    queue_limits: QueueLimits,
    max_argument_memory: usize,
    run_limits: RunLimits,
    max_blocking_threads: usize,
    call_retention: Duration,
    read_only_calls: ReadOnlyCalls,
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
    /// Another node of the store writes records that this version cannot read.
    #[error(transparent)]
    NewerNode(#[from] NewerNode),
    /// The store may contain records that this version cannot read.
    #[error(transparent)]
    NewerRecords(#[from] NewerRecords),
    /// Policies, rules or settings are invalid; all problems are listed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Policy(Vec<PolicyError>),
    /// The store for `manager_type` cannot be opened.
    #[error("cannot open the store for `manager_type`: {0}")]
    StateStore(String),
    /// A kind has two executors.
    #[error("there are two executors for tools of kind `{0}`; register only one")]
    DuplicateExecutor(Kind),
    /// Two sources of tools have one name.
    #[error(transparent)]
    DuplicateSource(#[from] DuplicateSource),
    /// There is no tokio runtime to run calls on.
    #[error("a hub must be built inside a tokio runtime: calls run on its tasks")]
    NoRuntime,
    /// Several problems; all are listed.
    #[error("{} problems:\n{}", .0.len(), join_lines(.0))]
    Several(Vec<BuildError>),
}

impl BuildError {
    /// Both errors as one.
    pub(super) fn combine(first: Self, second: Option<Self>) -> Self {
        match second {
            Some(second) => Self::Several(first.into_problems().into_iter().chain(second.into_problems()).collect()),
            None => first,
        }
    }

    /// The single problems.
    #[must_use]
    pub fn into_problems(self) -> Vec<Self> {
        match self {
            Self::Several(problems) => problems,
            Self::Tool(error) => error.into_problems().into_iter().map(Self::Tool).collect(),
            Self::Policy(problems) => problems.into_iter().map(|problem| Self::Policy(vec![problem])).collect(),
            one => vec![one],
        }
    }
}

impl HubBuilder {
    /// The least [`node_timeout`](Self::node_timeout).
    pub const MIN_NODE_TIMEOUT: Duration = nodes::MIN_TIMEOUT;

    pub(super) fn new() -> Self {
        Self {
            tools: Vec::new(),
            sources: Vec::new(),
            executors: HashMap::new(),
            duplicate_executor: None,
            resources: Extensions::default(),
            store: None,
            store_is_shared: false,
            node: NodeInfo::default(),
            node_timeout: nodes::DEFAULT_TIMEOUT,
            clock: None,
            status: StatusSettings::default(),
            business_state: BusinessStateConfig::default(),
            state_manager: StateManagerConfig::default(),
            state_store_factory: None,
            events: Events::new(),
            alert_targets: Vec::new(),
            delivers_alerts: true,
            default_policy: Policy::default(),
            policies: Vec::new(),
            rules: Vec::new(),
            hooks: Vec::new(),
            max_concurrency: None,
            queue_limits: QueueLimits::default(),
            max_argument_memory: argument_memory::DEFAULT_LIMIT,
            run_limits: RunLimits::default(),
            max_blocking_threads: 64,
            call_retention: 30 * DAY,
            read_only_calls: ReadOnlyCalls::default(),
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

    /// Adds a source of tools, such as an MCP server. The hub is ready before the source has connected.
    pub fn source(mut self, source: impl ToolSource) -> Self {
        self.sources.push(Arc::new(source));
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

    /// What the other nodes of a shared store see of this one. Default: a node without a name of its own.
    pub fn node(mut self, node: NodeInfo) -> Self {
        self.node = node;
        self
    }

    /// How long a node of a shared store may be silent before the others take over its calls and runs; it renews its row each
    /// third of this. Between two nodes the longer one counts. At least [`MIN_NODE_TIMEOUT`](Self::MIN_NODE_TIMEOUT); default: 15 seconds.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = time;
        self
    }

    /// The clock of the hub. Default: that of the store, if it has one (a Redis server), otherwise the system clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
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

    /// Adds a target of alerts. With a durable store, messages that were not delivered are sent after a restart.
    pub fn alert(mut self, target: AlertTarget) -> Self {
        self.alert_targets.push(target);
        self
    }

    /// Stores what alerts are about, and leaves it to another hub of the store, or a later one, to report it: for a program that
    /// uses the store only for a moment.
    pub fn without_alert_delivery(mut self) -> Self {
        self.delivers_alerts = false;
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

    /// Maximum memory, in bytes, that large arguments of one tenant's calls take while they wait and run; a further call is
    /// refused with `overloaded`. Default: 256 MiB.
    pub fn max_argument_memory(mut self, bytes: usize) -> Self {
        self.max_argument_memory = bytes;
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

    /// Which plain read-only calls are recorded in the journal. Default: all. Calls with effects, keys or approvals always are.
    pub fn read_only_calls(mut self, recorded: ReadOnlyCalls) -> Self {
        self.read_only_calls = recorded;
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
        self.events.subscribe(EventClasses::DEFAULT)
    }
}
