//! The agent service: defines agents, sends messages to them, and resumes their runs after a restart.
//!
//! In: user messages by thread. Out: runs that continue in the background, and queries for runs and conversations. All
//! durable state is in the hub's store; this service holds only the agent definitions and the runs it drives.

mod export;
mod handle;
mod nodes;
mod queries;
mod removed_agent;
mod run_start;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use smol_str::SmolStr;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use toolhub_core::{
    CancellationToken, ToolHub, Toolset,
    backend::StoreError,
    ids::{RunId, Tenant, ThreadId, ThreadKey},
    status::Language,
};

use crate::{
    active_runs::ActiveRuns, definition::AgentDefinition, message::UserMessage, meters::Metrics, run_store::RunStore,
};

pub use export::{ExportPart, ThreadExport};
pub use handle::RunHandle;
pub(crate) use nodes::POLL_INTERVALS;
pub use queries::RunCancellation;

/// The agent of a message that names none.
pub const DEFAULT_AGENT: &str = "default";
/// The name that is stored for a thread's own agent.
const THREAD_AGENT: &str = "own";
/// How long an unused agent of a thread is kept.
const IDLE_PLAN_TTL: Duration = Duration::from_secs(3600);
/// Delay before another attempt to take a drive permit.
const CONTENTION_DELAY: Duration = Duration::from_millis(2);

/// Why a message could not be delivered to an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A run is open in the thread.
    #[error("the run {0} is still open in this thread; wait for it, answer its approvals, or cancel it")]
    Busy(RunId),
    /// There is no agent of this name.
    #[error("there is no agent `{name}`")]
    NoSuchAgent {
        /// The name.
        name: SmolStr,
        /// The names of the defined agents.
        available: Vec<SmolStr>,
    },
    /// The message has no content.
    #[error("the message is empty")]
    Empty,
    /// The idempotency key was used for another message in this thread.
    #[error("the idempotency key was used for another message in this thread")]
    KeyReused,
    /// The service is shutting down.
    #[error("the agent service is shutting down; send the message again later")]
    Stopping,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The agents of a hub. Cheap to clone; all clones are the same service.
#[derive(Clone)]
pub struct AgentService(Arc<Inner>);

struct Inner {
    hub: ToolHub,
    run_store: RunStore,
    active_runs: ActiveRuns,
    meters: Arc<Metrics>,
    /// The defined agents, by name.
    agents: Mutex<BTreeMap<SmolStr, Arc<AgentDefinition>>>,
    thread_plans: Mutex<ThreadPlans>,
    language: Language,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// Whether the tasks that watch other nodes were started.
    watches_requests: AtomicBool,
    watches_departures: AtomicBool,
}

/// The agents that were set for single threads.
#[derive(Default)]
struct ThreadPlans {
    plans: HashMap<ThreadKey, (Arc<AgentDefinition>, Instant)>,
    /// When idle plans were last evicted.
    last_sweep: Option<Instant>,
}

impl AgentService {
    /// A service on a hub; conversations and runs are in the hub's store. Several services on one hub share the active
    /// runs: a thread has at most one open run, whichever service started it.
    #[must_use]
    pub fn new(hub: &ToolHub) -> Self {
        Self::with_language(hub, Language::English)
    }

    /// The same, with log summaries in this language.
    #[must_use]
    pub fn with_language(hub: &ToolHub, language: Language) -> Self {
        Self(Arc::new(Inner {
            hub: hub.clone(),
            run_store: RunStore {
                store: hub.store(),
                sealer: hub.sealer().clone(),
                node: hub.node_id().into(),
                alerts: hub.alert_signals(),
            },
            active_runs: (*hub.extension::<ActiveRuns>()).clone(),
            meters: Arc::default(),
            agents: Mutex::default(),
            thread_plans: Mutex::default(),
            language,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            watches_requests: AtomicBool::new(false),
            watches_departures: AtomicBool::new(false),
        }))
    }

    /// The hub.
    #[must_use]
    pub fn hub(&self) -> &ToolHub {
        &self.0.hub
    }

    /// Defines an agent by name, or redefines it. Open runs finish with the definition they started with.
    pub fn define(&self, name: impl Into<SmolStr>, plan: AgentDefinition) {
        lock(&self.0.agents).insert(name.into(), Arc::new(plan));
    }

    /// Removes all definitions except these.
    pub fn retain_only(&self, names: &[SmolStr]) {
        lock(&self.0.agents).retain(|name, _| names.contains(name));
    }

    /// The defined agents, by name.
    #[must_use]
    pub fn agents(&self) -> BTreeMap<SmolStr, Arc<AgentDefinition>> {
        lock(&self.0.agents).clone()
    }

    /// Sets or replaces a thread's own plan.
    pub(crate) fn set_thread_plan(&self, thread_key: &ThreadKey, plan: Arc<AgentDefinition>) {
        lock(&self.0.thread_plans).plans.insert(thread_key.clone(), (plan, Instant::now()));
    }

    /// Whether the agent that got the last message of a thread is still defined.
    pub(crate) async fn is_last_agent_defined(&self, thread_key: &ThreadKey) -> Result<bool, StoreError> {
        let head = self.0.run_store.head(thread_key, self.0.hub.now()).await?;
        Ok(head.is_some_and(|head| lock(&self.0.agents).contains_key(&head.agent)))
    }

    /// Removes a thread's own agent; returns whether it had one. The thread keeps its conversation and state, and an
    /// open run finishes with the agent it started with.
    pub fn remove_agent(&self, tenant: &Tenant, thread: &ThreadId) -> bool {
        let thread_key = ThreadKey::new(tenant, thread);
        lock(&self.0.thread_plans).plans.remove(&thread_key).is_some()
    }

    /// Sends a message to the agent of a thread. The message is durable when this returns, and the run continues in the
    /// background.
    ///
    /// # Errors
    /// When a run is open in the thread, there is no such agent, the idempotency key was used for another message, or
    /// the store does not answer.
    pub async fn send(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: impl Into<UserMessage>,
    ) -> Result<RunHandle, AgentError> {
        let thread_key = ThreadKey::new(tenant, thread);
        self.begin(&thread_key, message.into(), CancellationToken::new()).await
    }

    /// Whether this node drives a run.
    pub(crate) fn is_driving(&self, thread: &ThreadKey, run: RunId) -> bool {
        self.0.active_runs.get(thread).is_some_and(|active| active.run == run)
    }

    /// Resumes the runs that a dead process left open; returns how many. Runs of agents that were
    /// [set](Self::set_agent) for their thread resume when those are set again. On a store with several nodes this concerns the
    /// runs of dead nodes, and from now on the service resumes those of each node that dies; one that never calls this leaves them to
    /// other nodes. So it does with a run whose agent is not defined here.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        self.watch_requests();
        self.watch_departures();
        self.resume_all().await
    }

    /// Stops driving all runs. They stay open in the store, and the next process resumes them. Their calls keep running
    /// until the hub shuts down.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Metrics of runs and model requests.
    #[must_use]
    pub fn meters(&self) -> &Arc<Metrics> {
        &self.0.meters
    }

    /// The tools the agent of a thread may use.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn thread_toolset(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Toolset, StoreError> {
        let thread_key = ThreadKey::new(tenant, thread);
        match self.resolve_plan(&thread_key, None).await {
            Ok((_, plan)) => Ok(plan.toolset.clone()),
            Err(AgentError::Store(error)) => Err(error),
            Err(_) => Ok(Toolset::all()),
        }
    }

    /// The name and plan of a thread's agent.
    pub(crate) async fn resolve_plan(
        &self,
        thread_key: &ThreadKey,
        named: Option<&SmolStr>,
    ) -> Result<(SmolStr, Arc<AgentDefinition>), AgentError> {
        if let (None, Some(plan)) = (named, self.thread_plan(thread_key)) {
            return Ok((SmolStr::new_static(THREAD_AGENT), plan));
        }
        let name = match named {
            Some(name) => name.clone(),
            None => {
                let head = self.0.run_store.head(thread_key, self.0.hub.now()).await?;
                let last = head.map(|head| head.agent).filter(|name| lock(&self.0.agents).contains_key(name));
                last.unwrap_or(SmolStr::new_static(DEFAULT_AGENT))
            }
        };
        let agents = lock(&self.0.agents);
        match agents.get(&name) {
            Some(plan) => Ok((name, plan.clone())),
            None => Err(AgentError::NoSuchAgent { name, available: agents.keys().cloned().collect() }),
        }
    }

    /// The agent that was set for a thread. Also evicts plans that are idle and not referenced.
    pub(crate) fn thread_plan(&self, thread_key: &ThreadKey) -> Option<Arc<AgentDefinition>> {
        let (mut thread_plans, now) = (lock(&self.0.thread_plans), Instant::now());
        if thread_plans.last_sweep.is_none_or(|swept| now - swept > IDLE_PLAN_TTL / 60) {
            // Agent handles and drivers hold a reference to their plan.
            thread_plans.plans.retain(|_, (plan, used)| now - *used < IDLE_PLAN_TTL || Arc::strong_count(plan) > 1);
            thread_plans.last_sweep = Some(now);
        }
        thread_plans.plans.get_mut(thread_key).map(|(plan, used)| {
            *used = now;
            plan.clone()
        })
    }
}

impl std::fmt::Debug for AgentService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentService").field("agents", &self.agents()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
