//! The handle of an agent in its thread, and its builder.
//!
//! In: user messages. Out: the model's answer after its tool calls, complete or as a stream of events. All state is in
//! the hub's store, so another agent or another process can continue the same thread.

use std::{sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use toolhub_core::{
    CallError, CancellationToken, Offer, SnapshotRestore, StatusDetails, StatusScope, ToolError, ToolHub,
    ToolStatusInfo,
    events::Event,
    ids::{CallId, Tenant, ThreadId, ThreadKey},
    status::ToolStatus,
};

use crate::{
    definition::{AgentDefinition, ToolExecution},
    follower,
    message::UserMessage,
    model::Model,
    record::RunRecord,
    service::{AgentError, AgentService, RunHandle},
};

/// Builds an agent.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use toolhub_agent::{AgentBuilder, Model};
/// # use toolhub_core::ToolHub;
/// # async fn run(hub: ToolHub, model: Arc<dyn Model>) -> Result<(), toolhub_agent::AgentError> {
/// let agent = AgentBuilder::new(model).system_prompt("You are careful.").max_steps(8).build(&hub).await?;
/// let run = agent.invoke("What is on the list?").await?;
/// println!("{}", run.content);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "the builder does nothing until `build` is called"]
pub struct AgentBuilder {
    plan: AgentDefinition,
    tenant: Tenant,
    thread: Option<ThreadId>,
}

impl AgentBuilder {
    /// An agent with this model.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { plan: AgentDefinition::new(model), tenant: Tenant::default(), thread: None }
    }

    /// The system prompt.
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.plan = self.plan.system_prompt(text);
        self
    }

    /// The tools it may use; default: all.
    pub fn toolset(mut self, toolset: toolhub_core::Toolset) -> Self {
        self.plan = self.plan.toolset(toolset);
        self
    }

    /// The hub executes its calls, and retries each up to this many times, if the retry rules allow it.
    pub fn internal(mut self, max_retries: u32) -> Self {
        self.plan = self.plan.execution(ToolExecution::Internal { max_retries: Some(max_retries) });
        self
    }

    /// The program executes its calls itself, and [reports](Agent::report) their results within this time.
    pub fn external(mut self, deadline: Duration) -> Self {
        self.plan = self.plan.execution(ToolExecution::External { deadline });
        self
    }

    /// Maximum number of model requests for one message.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.plan = self.plan.max_steps(steps);
        self
    }

    /// Maximum number of input and output tokens for one message.
    pub fn token_budget(mut self, tokens: u64) -> Self {
        self.plan = self.plan.token_budget(Some(tokens));
        self
    }

    /// Time limit for one message.
    pub fn time_budget(mut self, time: Duration) -> Self {
        self.plan = self.plan.time_budget(Some(time));
        self
    }

    /// The model's context window in tokens. Older messages that do not fit are not sent to the model.
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.plan = self.plan.context_window(tokens);
        self
    }

    /// The thread; default: a new one.
    pub fn thread(mut self, thread: ThreadId) -> Self {
        self.thread = Some(thread);
        self
    }

    /// The tenant of the thread; default: `main`.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Builds the agent; an existing thread continues where it stopped. Agents that are built on one hub for the same
    /// thread share its conversation, and run one at a time.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn build(self, hub: &ToolHub) -> Result<Agent, AgentError> {
        let thread = self.thread.unwrap_or_else(ThreadId::mint);
        AgentService::new(hub).set_agent(&self.tenant, &thread, self.plan).await
    }
}

/// An agent in its thread. Cheap to clone; all clones are the same agent.
#[derive(Clone)]
pub struct Agent {
    service: AgentService,
    thread_key: ThreadKey,
    /// Held, so that the service does not evict it.
    _plan: Option<Arc<AgentDefinition>>,
}

impl Agent {
    /// Its thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.thread_key.thread
    }

    /// Creates its thread if needed, and resumes a run that a dead process left open. The methods that send messages do
    /// this too.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn initialize(&self) -> Result<(), AgentError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        self.service.hub().touch_thread(tenant, thread).await?;
        self.service.resume_thread(&self.thread_key).await?;
        Ok(())
    }

    /// Sends a message, and waits for the end of the run. Dropping the future cancels the run.
    ///
    /// # Errors
    /// When a run is open in the thread, or the store does not answer. A run that failed is no error here: see
    /// [`RunRecord::error`].
    pub async fn invoke(&self, message: impl Into<UserMessage>) -> Result<RunRecord, AgentError> {
        let cancel = CancellationToken::new();
        let cancel_guard = cancel.clone().drop_guard();
        let record = self.service.begin(&self.thread_key, message.into(), cancel).await?.wait_ended().await;
        cancel_guard.disarm();
        Ok(record)
    }

    /// Sends a message, and returns while the run continues in the background.
    ///
    /// # Errors
    /// When a run is open in the thread, or the store does not answer.
    pub async fn start(&self, message: impl Into<UserMessage>) -> Result<RunHandle, AgentError> {
        self.service.begin(&self.thread_key, message.into(), CancellationToken::new()).await
    }

    /// Sends a message, and streams the events of the run until its end: text deltas, calls, what it waits for. The
    /// last event is `run.completed` or `run.failed`; or `stream.reset`, if the subscriber lagged and missed the end.
    ///
    /// # Errors
    /// When a run is open in the thread, or the store does not answer.
    pub async fn stream(&self, message: impl Into<UserMessage>) -> Result<BoxStream<'static, Arc<Event>>, AgentError> {
        let mut events = self.service.hub().subscribe();
        let handle = self.start(message).await?;
        if handle.is_remote() {
            self.service.hub().follow_thread(&mut events, &self.thread_key.tenant, &self.thread_key.thread);
        }
        Ok(Box::pin(follower::run_events(events, self.thread_key.clone(), handle)))
    }

    /// Reports the result of an external call.
    ///
    /// # Errors
    /// When there is no such call, it has ended, or the hub executes it.
    pub async fn report(
        &self,
        call: CallId,
        result: Result<serde_json::Value, ToolError>,
    ) -> Result<(), toolhub_core::ReportError> {
        self.service.hub().report_external_result(&self.thread_key.tenant, call, result).await
    }

    /// Renews its offer: the tools that are available now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rebind(&self) -> Result<Offer, AgentError> {
        let (_, plan) = self.service.resolve_plan(&self.thread_key, None).await?;
        let ThreadKey { tenant, thread } = &self.thread_key;
        let offer = self.service.hub().rebind_with(tenant, thread, &plan.toolset.clone().into()).await;
        offer.map_err(|error| AgentError::Store(toolhub_core::backend::StoreError::Unavailable(error.operator)))
    }

    /// The statuses of its tools.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_status_details(&self) -> Result<Vec<ToolStatusInfo>, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        let toolset = self.service.thread_toolset(tenant, thread).await?;
        self.service.hub().tool_statuses_with(StatusScope::Thread(tenant, thread), &toolset.into()).await
    }

    /// Resets the status of a tool in this thread.
    ///
    /// # Errors
    /// When there is no such tool, or the store does not answer.
    pub async fn reset_tool_status(&self, tool: &str) -> Result<ToolStatusInfo, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        self.service.hub().reset_tool_status(tool, StatusScope::Thread(tenant, thread)).await
    }

    /// Sets the status of a tool in this thread.
    ///
    /// # Errors
    /// When there is no such tool, or the store does not answer.
    pub async fn set_tool_status(
        &self,
        tool: &str,
        status: ToolStatus,
        reason: Option<String>,
    ) -> Result<ToolStatusInfo, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        self.service.hub().set_tool_status(tool, status, reason, None, StatusScope::Thread(tenant, thread)).await
    }

    /// A one-line summary of its tools.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_states_summary(&self) -> Result<String, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        let toolset = self.service.thread_toolset(tenant, thread).await?;
        self.service.hub().status_summary(tenant, thread, &toolset.into()).await
    }

    /// A summary of its tools in detail: status, reason, counters, times and dependencies of each.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_states_details(&self) -> Result<StatusDetails, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        let toolset = self.service.thread_toolset(tenant, thread).await?;
        self.service.hub().status_details(tenant, thread, &toolset.into()).await
    }

    /// The statuses of its tools and which have succeeded, serialized.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn serialize_tool_states(&self) -> Result<String, CallError> {
        self.service.hub().serialize_tool_states(&self.thread_key.tenant, &self.thread_key.thread).await
    }

    /// Restores what [`serialize_tool_states`](Self::serialize_tool_states) wrote.
    ///
    /// # Errors
    /// When the store does not answer. A text that cannot be parsed is no error: see [`SnapshotRestore::warning`].
    pub async fn deserialize_tool_states(&self, text: &str) -> Result<SnapshotRestore, CallError> {
        self.service.hub().deserialize_tool_states(&self.thread_key.tenant, &self.thread_key.thread, text).await
    }
}

impl AgentService {
    /// Sets a thread's own agent. The thread keeps its conversation and state; a run that a dead process left open
    /// resumes.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn set_agent(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        plan: AgentDefinition,
    ) -> Result<Agent, AgentError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let plan = Arc::new(plan);
        self.set_thread_plan(&thread_key, plan.clone());
        let agent = Agent { service: self.clone(), thread_key, _plan: Some(plan) };
        agent.initialize().await?;
        Ok(agent)
    }

    /// The agent of a thread: its own, or the one that got the last message.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get_agent(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Option<Agent>, AgentError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let plan = self.thread_plan(&thread_key);
        let has_agent = plan.is_some() || self.is_last_agent_defined(&thread_key).await?;
        Ok(has_agent.then(|| Agent { service: self.clone(), thread_key, _plan: plan }))
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("thread", &self.thread_key.thread).finish_non_exhaustive()
    }
}
