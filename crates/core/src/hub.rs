//! `ToolHub`, the public API: registers, lists, exports and calls tools.
//!
//! In: requests of the embedding program. Out: outcomes and events. It owns the engine and leaves every decision to the
//! modules below.

mod activity;
mod alerts;
mod approvals;
mod availability;
mod background;
mod batch;
mod builder;
mod change;
mod details;
mod events;
mod explain;
mod external_calls;
mod health_checks;
mod journal;
mod lists;
mod monitor;
mod node_requests;
mod nodes;
mod offer;
mod recovery;
mod request;
mod requests;
mod sessions;
mod shared_offer;
mod snapshot;
mod sources;
mod status;
mod store_losses;
mod store_trim;
mod thread_context;
mod thread_removal;
mod thread_watch;
mod threads;
mod time;
mod timeline;
mod written_layouts;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use serde_json::Value;
use smol_str::SmolStr;

pub use alerts::{ActiveAlert, AlertTargetError, AlertTargetInfo, DeliveryPage};
pub use batch::{BatchHandle, BatchRequest};
pub use builder::{BuildError, HubBuilder};
pub use change::{ChangeSummary, HubChange};
pub use details::{DependencyStatus, StatusDetails, ToolStatusDetails};
pub use explain::{CallForecast, DecidingRule, Explanation, ForecastError, ForecastResult, RateQuota};
pub use journal::Cancellation;
pub use lists::{ResourceSubscription, SubscribeError};
pub use node_requests::NodeRequestError;
pub use offer::{Offer, OfferOptions};
pub use request::{CallHandle, CallRequest};
pub use snapshot::SnapshotRestore;
pub use sources::{
    DefinitionApproval, DefinitionApprovalError, DefinitionChange, DefinitionDifference, DuplicateSource,
    SourceConnection, SourceHandle, SourceInfo, SourceStatus, SourceTool, SourceToolState, ToolSource,
};
pub use status::{StatusScope, ToolStatusInfo};
pub use thread_context::{InstanceGuard, ThreadContext, Threads};
pub use threads::ThreadError;
pub use timeline::{TimelineApproval, TimelineStage, TimelineStep};
pub use written_layouts::NewerRecords;

use self::sources::Owner;
use crate::{
    artifact::{self, Artifact},
    engine::Engine,
    execution::Tool,
    registry::{BuildContext, BuiltTools, Registry, RegistryError, ToolBuilder, ToolFilter, Tools},
};
use toolhub_state::StateManager;
use toolhub_storage::backend::{Backend, StoreError};
use toolhub_types::{
    event_kind::EventKind,
    ids::{ArtifactId, Tenant},
    tool::{Kind, ToolName},
};

/// Interval at which `shutdown` cancels calls that arrived after it had cancelled all others.
const CANCEL_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long an executor may take to close the connections of one tool.
const EXECUTOR_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A hub: registers tools and runs their calls. Cheap to clone; all clones are the same hub.
///
/// ```
/// use serde::Deserialize;
/// use schemars::JsonSchema;
/// use serde_json::json;
/// use toolhub_core::{ToolError, ToolHub, tool};
///
/// /// Add two numbers.
/// #[derive(Deserialize, JsonSchema)]
/// struct Add { a: i64, b: i64 }
///
/// async fn add(numbers: Add) -> Result<i64, ToolError> {
///     numbers.a.checked_add(numbers.b).ok_or_else(|| ToolError::refused("the sum is too large"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hub = ToolHub::builder().tool(tool("add", add).read_only()).build().await?;
/// let outcome = hub.call("add", json!({"a": 1, "b": 2})).await;
/// assert_eq!(outcome.into_result()?, json!(3));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ToolHub {
    engine: Arc<Engine>,
}

impl ToolHub {
    /// Starts building a hub.
    pub fn builder() -> HubBuilder {
        HubBuilder::new()
    }

    /// Prepares a call. Nothing happens before the request is awaited or started.
    pub fn call(&self, tool: impl Into<SmolStr>, arguments: impl Into<Value>) -> CallRequest<'_> {
        CallRequest::new(&self.engine, tool.into(), arguments.into())
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// When its name is taken or not valid, its schema cannot be used, or it depends on a tool that is not registered.
    pub fn register(&self, tool: ToolBuilder) -> Result<(), RegistryError> {
        self.register_all([tool])
    }

    /// Adds tools, all or none; they may depend on each other.
    ///
    /// # Errors
    /// When one of them cannot be registered; every problem of every tool is reported.
    pub fn register_all(&self, tools: impl IntoIterator<Item = ToolBuilder>) -> Result<(), RegistryError> {
        let (new, sources) = self.build_tools(tools);
        let listed = new.tools.iter().filter(|tool| !tool.unlisted);
        let names: Vec<_> = listed.map(|tool| tool.definition.name.clone()).collect();
        self.engine.registry.add(new, &self.engine.services.state)?;
        self.engine.services.availability_changed.notify_one();
        for tool_name in names {
            self.emit(EventKind::ToolRegistered { tool_name });
        }
        sources.into_iter().for_each(|source| self.start_source(source, Owner::Tool));
        Ok(())
    }

    /// Adds a stateless tool.
    ///
    /// # Errors
    /// As [`register`](Self::register), and when the tool has state or instances.
    pub fn register_stateless(&self, tool: ToolBuilder) -> Result<(), RegistryError> {
        self.register_kind(tool, &Kind::Stateless)
    }

    /// Adds a tool with state or instances.
    ///
    /// # Errors
    /// As [`register`](Self::register), and when the tool has neither.
    pub fn register_stateful(&self, tool: ToolBuilder) -> Result<(), RegistryError> {
        self.register_kind(tool, &Kind::Stateful)
    }

    /// Adds a tool that is an HTTP request, made with `toolhub::rest::Rest`.
    ///
    /// # Errors
    /// As [`register`](Self::register), and when the tool is something else.
    pub fn register_rest(&self, tool: ToolBuilder) -> Result<(), RegistryError> {
        self.register_kind(tool, &Kind::Rest)
    }

    /// Adds one tool of an MCP server, made with `toolhub::mcp::McpServer::single_tool`. It appears when its server is connected.
    ///
    /// # Errors
    /// As [`register`](Self::register), and when the tool is something else.
    pub fn register_mcp(&self, tool: ToolBuilder) -> Result<(), RegistryError> {
        self.register_kind(tool, &Kind::Mcp)
    }

    /// Removes a tool and closes its instances and connections. Running calls continue. Tools that depend on it stay registered and wait
    /// for it.
    pub async fn unregister(&self, name: &str) -> Option<Arc<Tool>> {
        if self.has_own_source(name) {
            let tool = self.get(name);
            self.remove_source(name).await;
            return tool;
        }
        let tool = self.engine.registry.remove(&ToolName::new(name).ok()?)?;
        self.finish_removal(&tool).await;
        Some(tool)
    }

    /// Removes all tools; returns how many there were.
    pub async fn clear(&self) -> usize {
        let own_sources: Vec<_> =
            self.sources().into_iter().filter(|source| self.has_own_source(source.name())).collect();
        let before = self.engine.registry.clear();
        for tool in before.iter() {
            self.finish_removal(tool).await;
        }
        for source in own_sources {
            self.remove_source(source.name()).await;
        }
        let removed = before.len();
        self.emit(EventKind::HubCleared { removed });
        removed
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Tool>> {
        self.engine.registry.find(name).map(|(tool, _)| tool)
    }

    /// The tools that pass the filter, sorted by name. Its status is the shared one.
    #[must_use]
    pub fn list(&self, filter: &ToolFilter) -> Vec<Arc<Tool>> {
        let mut tools = self.tools().list(filter);
        if let Some(status) = filter.status {
            tools.retain(|tool| self.shared_status(tool).status == status);
        }
        tools
    }

    /// The registry of tools. It cannot execute them.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.engine.registry
    }

    /// The state manager: access to the state of tools from outside a call.
    ///
    /// ```
    /// use serde_json::json;
    /// use toolhub_core::{StateKind, ToolHub, ids::{StateName, Tenant, ThreadId}};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hub = ToolHub::builder().build().await?;
    /// let (state, tenant) = (hub.state(), Tenant::default());
    /// let cart = state.create_context(&tenant, &StateName::new("cart")?, &ThreadId::new("t1")?).await?;
    /// state.set_state(&tenant, &cart, StateKind::Business, json!({"tea": 1}), None).await?;
    /// let version = state.update_state(&tenant, &cart, StateKind::Business, json!({"cake": 2})).await?;
    /// assert_eq!(version, 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn state(&self) -> StateManager {
        self.engine.services.state.clone()
    }

    /// This hub's singleton of type `T`, created with `Default` on first use. For crates that may be set up more than once
    /// on one hub and must share something. A value that holds the hub is a reference cycle: neither is ever dropped.
    #[must_use]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.engine.extensions.get_or_default()
    }

    /// The hub's durable store, for crates that keep rows of their own beside the hub's. Every request to it has a timeout.
    /// Rows must be written with the time of [`now`](Self::now).
    #[must_use]
    pub fn store(&self) -> Arc<dyn Backend> {
        self.engine.services.store.clone()
    }

    /// An immutable snapshot of the current tools. A call can be made [from](CallRequest::from_offer) exactly these.
    #[must_use]
    pub fn tools(&self) -> Arc<Tools> {
        self.engine.registry.snapshot()
    }

    /// Fetches an artifact: content that was too long for the model.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn artifact(&self, tenant: &Tenant, id: &ArtifactId) -> Result<Option<Artifact>, StoreError> {
        artifact::fetch(&*self.engine.services.store, tenant, id, self.engine.services.clock.now()).await
    }

    /// Number of calls that run on tasks of their own.
    #[must_use]
    pub fn running_calls(&self) -> usize {
        self.engine.live_calls.len()
    }

    /// Number of blocking functions that still run after their call has ended.
    #[must_use]
    pub fn stuck_calls(&self) -> usize {
        self.engine.services.blocking.stuck_count()
    }

    /// Shuts down gracefully: refuses new calls (`shutting_down`), lets running ones finish for `grace`, cancels the rest,
    /// closes all instances and connections, and flushes thread activity, batched call records and stored events. Detached calls that wait
    /// for approval stay open for the next start. The hub's background tasks have ended when this returns, so the store is
    /// free as soon as the last clone of the hub is dropped.
    pub async fn shutdown(&self, grace: Duration) {
        let Engine { call_tasks, live_calls, services, thread_store, background_tasks, stopped, shutdown, .. } =
            &*self.engine;
        shutdown.request();
        call_tasks.close();
        if tokio::time::timeout(grace, call_tasks.wait()).await.is_err() {
            live_calls.cancel_all_by_shutdown();
            // Calls that were admitted just before the request may still start; shutdown must not wait for those either.
            while tokio::time::timeout(CANCEL_RETRY_INTERVAL, call_tasks.wait()).await.is_err() {
                live_calls.cancel_all_by_shutdown();
            }
        }
        services.instances.shut_down().await;
        let tools = self.tools();
        join_all(tools.iter().map(|tool| self.close_executor(tool, "the hub was shut down"))).await;
        if let Err(error) = thread_store.flush_all().await {
            tracing::warn!(%error, "thread activity not flushed at shutdown");
        }
        self.flush_batched_records().await;
        self.engine.nodes.leave().await;
        self.flush_events().await;
        stopped.cancel();
        background_tasks.close();
        background_tasks.wait().await;
    }

    /// Resolves when [`shutdown`](Self::shutdown) is requested; from then on the hub takes no new calls.
    pub async fn shutdown_requested(&self) {
        self.engine.shutdown.requested().await;
    }

    /// Whether the hub is being [shut down](Self::shutdown), or has been.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.engine.is_shutting_down()
    }

    fn register_kind(&self, tool: ToolBuilder, kind: &Kind) -> Result<(), RegistryError> {
        if tool.kind() == kind {
            return self.register(tool);
        }
        let tool_name = tool.name()?;
        let reason = format!("it is {}; use `register_{}`", tool.kind(), tool.kind());
        Err(RegistryError::Refused { tool: tool_name, reason })
    }

    /// Builds tools, except those that have a source of their own; returns these sources too.
    fn build_tools(&self, tools: impl IntoIterator<Item = ToolBuilder>) -> (BuiltTools, Vec<Arc<dyn ToolSource>>) {
        let Engine { executors, hooks, scheduler, services, .. } = &*self.engine;
        let context = BuildContext { executors, hooks, scheduler, services };
        let registered_at = self.engine.started_at.get().map(|_| self.now());
        let (own, sourced): (Vec<_>, Vec<_>) =
            tools.into_iter().map(sources::split_own).partition(|(_, source)| source.is_none());
        let mut built = BuiltTools::build(own.into_iter().map(|(tool, _)| tool), &context);
        built.tools.iter_mut().for_each(|tool| tool.registered_at = registered_at);
        let mut started = Vec::new();
        for (tool, source) in sourced {
            match tool.check_sourced() {
                Ok(name) => {
                    built.sourced.push(name);
                    started.extend(source);
                }
                Err(problem) => built.problems.push(problem),
            }
        }
        (built, started)
    }

    async fn finish_removal(&self, tool: &Arc<Tool>) {
        let name = &tool.definition.name;
        if !tool.unlisted {
            self.emit(EventKind::ToolUnregistered { tool_name: name.clone() });
        }
        self.engine.services.availability_changed.notify_one();
        self.engine.scheduler.result_cache.forget_tool(name);
        self.close_resources(tool).await;
    }

    /// Closes the instances and the connections of a tool that was removed or replaced.
    async fn close_resources(&self, tool: &Arc<Tool>) {
        let reason = "the tool was removed";
        self.engine.services.instances.close_tool_instances(&tool.registration, reason).await;
        self.close_executor(tool, reason).await;
    }

    async fn close_executor(&self, tool: &Tool, reason: &'static str) {
        let closing = AssertUnwindSafe(async { tool.executor.close(&tool.definition).await }).catch_unwind();
        match tokio::time::timeout(EXECUTOR_CLOSE_TIMEOUT, closing).await {
            Ok(Ok(true)) => {
                self.emit(EventKind::ExecutorCleaned { tool_name: tool.definition.name.clone(), reason });
            }
            Ok(Ok(false)) => {}
            _ => tracing::warn!(tool = %tool.definition.name, "closing an executor panicked or timed out"),
        }
    }

    fn emit(&self, kind: EventKind) {
        self.engine.services.events.emit(self.now(), kind);
    }
}
