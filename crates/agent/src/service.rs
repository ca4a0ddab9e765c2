//! Agents by thread: they are set, found and taken away; they are spoken to, and their runs go on over restarts.
//!
//! In: what a user says in a thread. Out: a run that goes on by itself, and everything that is known about runs and conversations. All
//! that must survive is in the hub's store; here is only which agent a thread has, and which runs are driven.

mod handle;
mod queries;
mod removed_agent;
mod run_start;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

use crate::{active_runs::ActiveRuns, message::UserMessage, meters::Meters, plan::AgentPlan, run_store::RunStore};

pub use handle::RunHandle;
pub use queries::{RunCancellation, ThreadExport};

/// The agent of a message that names none.
pub const DEFAULT_AGENT: &str = "default";
/// The agent that was set for its thread, by name.
const THREAD_AGENT: &str = "own";
/// How long an agent that was set for a thread is kept when nobody uses it.
const IDLE_PLAN_TTL: Duration = Duration::from_secs(3600);
/// How soon a place that is taken is asked for again.
const CONTENTION_DELAY: Duration = Duration::from_millis(2);

/// Why an agent was not spoken to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A run is open in the thread.
    #[error("the run {0} is open in this thread; wait for its end, answer what it waits for, or cancel it")]
    Busy(RunId),
    /// There is no agent of this name.
    #[error("there is no agent `{name}`")]
    NoSuchAgent {
        /// The name.
        name: SmolStr,
        /// Those there are.
        available: Vec<SmolStr>,
    },
    /// Nothing was said.
    #[error("the message is empty")]
    Empty,
    /// The key was used for another message in this thread.
    #[error("the key was used for another message in this thread")]
    KeyReused,
    /// The process is about to end.
    #[error("the agents are stopping; send the message again")]
    Stopping,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps agents by thread. Cheap to clone; all clones are the same service.
#[derive(Clone)]
pub struct AgentService(Arc<Inner>);

struct Inner {
    hub: ToolHub,
    run_store: RunStore,
    active_runs: ActiveRuns,
    meters: Arc<Meters>,
    /// By name.
    agents: Mutex<BTreeMap<SmolStr, Arc<AgentPlan>>>,
    thread_plans: Mutex<ThreadPlans>,
    language: Language,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// The agents that were set for one thread.
#[derive(Default)]
struct ThreadPlans {
    plans: HashMap<ThreadKey, (Arc<AgentPlan>, Instant)>,
    /// When those were let go of that nobody uses.
    last_sweep: Option<Instant>,
}

impl AgentService {
    /// A service on a hub; conversations and runs lie in the hub's store. Several services on one hub know of each other's runs: in a
    /// thread one run at a time is open, whoever began it.
    #[must_use]
    pub fn new(hub: &ToolHub) -> Self {
        Self::with_language(hub, Language::English)
    }

    /// The same, with a log in this language.
    #[must_use]
    pub fn with_language(hub: &ToolHub, language: Language) -> Self {
        Self(Arc::new(Inner {
            hub: hub.clone(),
            run_store: RunStore { store: hub.store() },
            active_runs: (*hub.extension::<ActiveRuns>()).clone(),
            meters: Arc::default(),
            agents: Mutex::default(),
            thread_plans: Mutex::default(),
            language,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        }))
    }

    /// The hub.
    #[must_use]
    pub fn hub(&self) -> &ToolHub {
        &self.0.hub
    }

    /// Defines an agent by name, or redefines it. Runs that are open finish as they began.
    pub fn define(&self, name: impl Into<SmolStr>, plan: AgentPlan) {
        lock(&self.0.agents).insert(name.into(), Arc::new(plan));
    }

    /// Takes all definitions away that are not among these.
    pub fn retain_only(&self, names: &[SmolStr]) {
        lock(&self.0.agents).retain(|name, _| names.contains(name));
    }

    /// The agents that were defined, by name.
    #[must_use]
    pub fn agents(&self) -> BTreeMap<SmolStr, Arc<AgentPlan>> {
        lock(&self.0.agents).clone()
    }

    /// Gives a thread a plan of its own, in the place of the one it had.
    pub(crate) fn set_thread_plan(&self, thread_key: &ThreadKey, plan: Arc<AgentPlan>) {
        lock(&self.0.thread_plans).plans.insert(thread_key.clone(), (plan, Instant::now()));
    }

    /// Whether the agent that was spoken to last in a thread is still defined.
    pub(crate) async fn is_last_agent_defined(&self, thread_key: &ThreadKey) -> Result<bool, StoreError> {
        let head = self.0.run_store.head(thread_key, self.0.hub.now()).await?;
        Ok(head.is_some_and(|head| lock(&self.0.agents).contains_key(&head.agent)))
    }

    /// Takes a thread's own agent away; says whether it had one. What the thread remembers stays, and a run that is open ends
    /// as it began.
    pub fn remove_agent(&self, tenant: &Tenant, thread: &ThreadId) -> bool {
        let thread_key = ThreadKey::new(tenant, thread);
        lock(&self.0.thread_plans).plans.remove(&thread_key).is_some()
    }

    /// Speaks to the agent of a thread. What was said is safe when this returns, and the run goes on by itself.
    ///
    /// # Errors
    /// When a run is open in the thread, there is no such agent, the key was used for something else, or the store does not
    /// answer.
    pub async fn send(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        said: impl Into<UserMessage>,
    ) -> Result<RunHandle, AgentError> {
        let thread_key = ThreadKey::new(tenant, thread);
        self.begin(&thread_key, said.into(), CancellationToken::new()).await
    }

    /// Goes on with the runs that a dead process has left open; says how many. Those of agents that were [set](Self::set_agent)
    /// for their thread go on when they are set again.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        let Inner { hub, run_store, .. } = &*self.0;
        let mut many = 0;
        if !run_store.store.is_exclusive() {
            // They may be those of somebody who lives; their threads are looked at when somebody speaks in them.
            return Ok(0);
        }
        for thread_key in run_store.threads_with_open_run(hub.now()).await? {
            match self.resume_thread(&thread_key).await {
                Ok(goes_on) => many += usize::from(goes_on),
                // One that cannot be read stops nobody else.
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(thread = %thread_key.thread, %error, "an open run cannot be read and stays as it is");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(many)
    }

    /// Lets go of all runs. They stay as they are written down, and go on when the next process resumes them. Calls that run
    /// go on until the hub ends them.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// What is counted of runs and models.
    #[must_use]
    pub fn meters(&self) -> &Arc<Meters> {
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

    /// The agent of a thread, and what it is called.
    pub(crate) async fn resolve_plan(
        &self,
        thread_key: &ThreadKey,
        named: Option<&SmolStr>,
    ) -> Result<(SmolStr, Arc<AgentPlan>), AgentError> {
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

    /// The agent that was set for a thread. Those that nobody holds and nobody has used for long are let go of.
    pub(crate) fn thread_plan(&self, thread_key: &ThreadKey) -> Option<Arc<AgentPlan>> {
        let (mut own, now) = (lock(&self.0.thread_plans), Instant::now());
        if own.last_sweep.is_none_or(|swept| now - swept > IDLE_PLAN_TTL / 60) {
            // Whoever holds an agent, or drives its run, holds its plan.
            own.plans.retain(|_, (plan, used)| now - *used < IDLE_PLAN_TTL || Arc::strong_count(plan) > 1);
            own.last_sweep = Some(now);
        }
        own.plans.get_mut(thread_key).map(|(plan, used)| {
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

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
