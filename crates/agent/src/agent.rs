//! An agent in its thread: what a program holds that speaks to one.
//!
//! In: what a user says. Out: what the model answers after its calls, at once or as it comes. Whatever it remembers lies in the hub's
//! store; the same thread can be taken up by another agent, or by another process.

use std::{sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use toolhub_core::{
    CallError, CancellationToken, Offer, Restored, StatusScope, ToolError, ToolHub, ToolStatusInfo,
    events::Event,
    ids::{CallId, Tenant, ThreadId, ThreadKey},
    status::ToolStatus,
};

use crate::{
    follower,
    message::UserMessage,
    model::Model,
    plan::{AgentPlan, ToolExecution},
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
#[must_use = "an agent is made only when it is built"]
pub struct AgentBuilder {
    plan: AgentPlan,
    tenant: Tenant,
    thread: Option<ThreadId>,
}

impl AgentBuilder {
    /// An agent with this model.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { plan: AgentPlan::new(model), tenant: Tenant::default(), thread: None }
    }

    /// Who the model is and what it must know.
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.plan = self.plan.system_prompt(text);
        self
    }

    /// The tools it may use; all of them where nothing is said.
    pub fn toolset(mut self, toolset: toolhub_core::Toolset) -> Self {
        self.plan = self.plan.toolset(toolset);
        self
    }

    /// The hub does the work of its calls, and tries each again so often, within the rules of what may be tried again.
    pub fn internal(mut self, max_retries: u32) -> Self {
        self.plan = self.plan.execution(ToolExecution::Internal { max_retries: Some(max_retries) });
        self
    }

    /// The program does the work of its calls, and [reports](Agent::report) their results in this time.
    pub fn external(mut self, deadline: Duration) -> Self {
        self.plan = self.plan.execution(ToolExecution::External { deadline });
        self
    }

    /// How often the model is asked for one message at most.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.plan = self.plan.max_steps(steps);
        self
    }

    /// How many tokens the model may read and write for one message.
    pub fn token_budget(mut self, tokens: u64) -> Self {
        self.plan = self.plan.token_budget(Some(tokens));
        self
    }

    /// How long one message may take.
    pub fn time_budget(mut self, time: Duration) -> Self {
        self.plan = self.plan.time_budget(Some(time));
        self
    }

    /// How many tokens the model can be told at once. A longer conversation loses its beginning.
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.plan = self.plan.context_window(tokens);
        self
    }

    /// The conversation; a new one where nothing is said.
    pub fn thread(mut self, thread: ThreadId) -> Self {
        self.thread = Some(thread);
        self
    }

    /// Whose conversation it is; `main` where nothing is said.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// The agent, in its thread, as it was left there. Agents that were built on one hub for the same thread share its conversation,
    /// and speak in it one after the other.
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
    /// Held, so that the service does not let go of it.
    _plan: Option<Arc<AgentPlan>>,
}

impl Agent {
    /// Its conversation.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.thread_key.thread
    }

    /// Makes sure that its thread is there, and goes on with a run that a dead process left open. What speaks to the agent does
    /// so by itself.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn initialize(&self) -> Result<(), AgentError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        self.service.hub().touch_thread(tenant, thread).await?;
        self.service.resume_thread(&self.thread_key).await?;
        Ok(())
    }

    /// Says something, and waits for the end of the run. Whoever stops waiting cancels it.
    ///
    /// # Errors
    /// When a run is open in the thread, or the store does not answer. A run that failed is no error here: see
    /// [`RunRecord::error`].
    pub async fn invoke(&self, said: impl Into<UserMessage>) -> Result<RunRecord, AgentError> {
        let cancel = CancellationToken::new();
        let unwanted = cancel.clone().drop_guard();
        let record = self.service.begin(&self.thread_key, said.into(), cancel).await?.wait_ended().await;
        unwanted.disarm();
        Ok(record)
    }

    /// Says something, and lets the run go on by itself.
    ///
    /// # Errors
    /// When a run is open in the thread, or the store does not answer.
    pub async fn start(&self, said: impl Into<UserMessage>) -> Result<RunHandle, AgentError> {
        self.service.begin(&self.thread_key, said.into(), CancellationToken::new()).await
    }

    /// Says something, and tells what happens until the end of the run: its text as it comes, its calls, what it waits for. The
    /// last event is `run.completed` or `run.failed`; or `stream.reset`, for a listener that was too slow to hear the end.
    ///
    /// # Errors
    /// When a run is open in the thread, or the store does not answer.
    pub async fn stream(&self, said: impl Into<UserMessage>) -> Result<BoxStream<'static, Arc<Event>>, AgentError> {
        let news = self.service.hub().subscribe();
        let handle = self.start(said).await?;
        Ok(Box::pin(follower::run_events(news, handle)))
    }

    /// Brings the result of a call that was handed out.
    ///
    /// # Errors
    /// When there is no such call, it has ended, or the hub does its work.
    pub async fn report(
        &self,
        call: CallId,
        result: Result<serde_json::Value, ToolError>,
    ) -> Result<(), toolhub_core::ReportError> {
        self.service.hub().report_external_result(&self.thread_key.tenant, call, result).await
    }

    /// The tools it is offered from now on.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rebind(&self) -> Result<Offer, AgentError> {
        let (_, plan) = self.service.resolve_plan(&self.thread_key, None).await?;
        let ThreadKey { tenant, thread } = &self.thread_key;
        let offer = self.service.hub().rebind_of(tenant, thread, &plan.toolset).await;
        offer.map_err(|error| AgentError::Store(toolhub_core::backend::StoreError::Unavailable(error.operator)))
    }

    /// How its tools stand.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_status_details(&self) -> Result<Vec<ToolStatusInfo>, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        let toolset = self.service.thread_toolset(tenant, thread).await?;
        let mut statuses = self.service.hub().tool_statuses(StatusScope::Thread(tenant, thread)).await?;
        statuses.retain(|info| toolset.contains(&info.tool_name));
        Ok(statuses)
    }

    /// Forgets what is held against a tool in this thread.
    ///
    /// # Errors
    /// When there is no such tool, or the store does not answer.
    pub async fn reset_tool_status(&self, tool: &str) -> Result<ToolStatusInfo, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        self.service.hub().reset_tool_status(tool, StatusScope::Thread(tenant, thread)).await
    }

    /// Says how a tool stands in this thread.
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

    /// One line about its tools.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn tool_states_summary(&self) -> Result<String, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        let toolset = self.service.thread_toolset(tenant, thread).await?;
        self.service.hub().summary_of(tenant, thread, &toolset, Default::default()).await
    }

    /// How its tools stand and which have succeeded, as a text.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn serialize_tool_states(&self) -> Result<String, CallError> {
        self.service.hub().serialize_tool_states(&self.thread_key.tenant, &self.thread_key.thread).await
    }

    /// Restores what [`serialize_tool_states`](Self::serialize_tool_states) wrote.
    ///
    /// # Errors
    /// When the store does not answer. A text that cannot be read is no error: see [`Restored::warning`].
    pub async fn deserialize_tool_states(&self, text: &str) -> Result<Restored, CallError> {
        self.service.hub().deserialize_tool_states(&self.thread_key.tenant, &self.thread_key.thread, text).await
    }
}

impl AgentService {
    /// Gives a thread an agent of its own. What the thread remembers is there as it was; a run that a dead process left open
    /// goes on.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn set_agent(&self, tenant: &Tenant, thread: &ThreadId, plan: AgentPlan) -> Result<Agent, AgentError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let plan = Arc::new(plan);
        self.set_thread_plan(&thread_key, plan.clone());
        let agent = Agent { service: self.clone(), thread_key, _plan: Some(plan) };
        agent.initialize().await?;
        Ok(agent)
    }

    /// The agent of a thread: its own, or the one that was spoken to last.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get_agent(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Option<Agent>, AgentError> {
        let thread_key = ThreadKey::new(tenant, thread);
        let plan = self.thread_plan(&thread_key);
        let known = plan.is_some() || self.is_last_agent_defined(&thread_key).await?;
        Ok(known.then(|| Agent { service: self.clone(), thread_key, _plan: plan }))
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("thread", &self.thread_key.thread).finish_non_exhaustive()
    }
}
