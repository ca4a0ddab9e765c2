//! The front door: one value through which tools are registered, listed, exported and called.
//!
//! In: requests of the program around it. Out: outcomes and events. It owns the rooms and leaves every decision to them.

mod approvals;
mod availability;
mod background;
mod batch;
mod builder;
mod change;
mod events;
mod explain;
mod external_calls;
mod health_checks;
mod journal;
mod monitor;
mod offer;
mod recovery;
mod request;
mod sessions;
mod snapshot;
mod status;
mod thread_removal;
mod threads;

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use smol_str::SmolStr;

pub use batch::BatchRequest;
pub use builder::{BuildError, HubBuilder};
pub use change::{ChangeSummary, HubChange};
pub use explain::{Explanation, RateLeft};
pub use journal::Cancellation;
pub use offer::Offer;
pub use request::{CallHandle, CallRequest};
pub use snapshot::Restored;
pub use status::{StatusScope, ToolStatusInfo};
pub use threads::ThreadError;

use crate::{
    artifact::{self, Artifact},
    engine::Engine,
    execution::Tool,
    registry::{BuildContext, Registry, RegistryError, ToolBuilder, ToolFilter, Tools},
    state::StateManager,
};
use toolhub_schema::export;
use toolhub_storage::backend::{Backend, StoreError};
use toolhub_types::{
    event_kind::EventKind,
    export_format::Format,
    ids::{ArtifactId, Tenant},
    timestamp::Timestamp,
    tool::{Definition, Kind, ToolName},
};

/// How soon calls are cancelled that were made after a hub cancelled all others.
const CANCEL_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The one place through which tool calls pass. Cheap to clone; all clones are the same hub.
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
    /// Begins a hub.
    pub fn builder() -> HubBuilder {
        HubBuilder::new()
    }

    /// Asks for a call. Nothing happens before the answer is awaited or started.
    pub fn call(&self, tool: impl Into<SmolStr>, arguments: impl Into<Value>) -> CallRequest<'_> {
        CallRequest::new(&self.engine, tool.into(), arguments.into())
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// When its name is taken or not legal, its schema cannot be used, or it depends on a tool that is not there.
    pub fn register(&self, tool: ToolBuilder) -> Result<(), RegistryError> {
        self.register_all([tool])
    }

    /// Adds tools, all or none; they may depend on each other.
    ///
    /// # Errors
    /// When one of them cannot be registered.
    pub fn register_all(&self, tools: impl IntoIterator<Item = ToolBuilder>) -> Result<(), RegistryError> {
        let new = self.build_tools(tools)?;
        let names: Vec<_> = new.iter().map(|tool| tool.definition.name.clone()).collect();
        self.engine.registry.add(new, self.engine.services.state.store_router())?;
        self.engine.services.availability_changed.notify_one();
        for tool_name in names {
            self.emit(EventKind::ToolRegistered { tool_name });
        }
        Ok(())
    }

    /// Adds a tool that remembers nothing.
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

    /// Takes a tool away and closes its instances. Calls that run go on. Tools that depend on it wait for it.
    pub async fn unregister(&self, name: &str) -> Option<Arc<Tool>> {
        let tool = self.engine.registry.remove(&ToolName::new(name).ok()?)?;
        self.finish_removal(&tool).await;
        Some(tool)
    }

    /// Takes all tools away; says how many there were.
    pub async fn clear(&self) -> usize {
        let before = self.engine.registry.clear();
        for tool in before.list(&ToolFilter::default()) {
            self.finish_removal(&tool).await;
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

    /// The tools that pass the filter, by name.
    #[must_use]
    pub fn list(&self, filter: &ToolFilter) -> Vec<Arc<Tool>> {
        self.tools().list(filter)
    }

    /// What the hub knows; it cannot execute.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.engine.registry
    }

    /// What tools remember, for everybody who is not the tool.
    #[must_use]
    pub fn state(&self) -> StateManager {
        self.engine.services.state.clone()
    }

    /// The one value of this type that belongs to this hub, made when it is first asked for. For crates that may be set up more
    /// than once on one hub and must share something. A value that holds the hub would keep both alive for ever.
    #[must_use]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.engine.extensions.get_or_default()
    }

    /// Where the hub keeps its durable records, for rooms that keep theirs beside them. Every answer of it has an end, as for
    /// the hub's own questions. Rows are written with the time of [`now`](Self::now).
    #[must_use]
    pub fn store(&self) -> Arc<dyn Backend> {
        self.engine.services.store.clone()
    }

    /// What time it is for the hub: a test may have chosen it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.engine.services.clock.now()
    }

    /// The tools as they are now. The list stays as it is while it is held, and a call may be made
    /// [among](CallRequest::among) exactly these.
    #[must_use]
    pub fn tools(&self) -> Arc<Tools> {
        self.engine.registry.snapshot()
    }

    /// The definitions of all tools as a model provider wants them, by name.
    #[must_use]
    pub fn export(&self, format: Format) -> Vec<Value> {
        let tools = self.list(&ToolFilter::default());
        let definitions: Vec<&Definition> = tools.iter().map(|tool| &tool.definition).collect();
        let exported = export::export(format, definitions);
        self.emit(EventKind::ExecutorExported { format, count: exported.len() });
        exported
    }

    /// Content that was too long for the model.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn artifact(&self, tenant: &Tenant, id: &ArtifactId) -> Result<Option<Artifact>, StoreError> {
        artifact::fetch(&*self.engine.services.store, tenant, id, self.engine.services.clock.now()).await
    }

    /// How many calls run on tasks of their own.
    #[must_use]
    pub fn running_calls(&self) -> usize {
        self.engine.live_calls.len()
    }

    /// How many blocking functions run on although nobody waits for them.
    #[must_use]
    pub fn stuck_calls(&self) -> usize {
        self.engine.services.blocking.stuck_count()
    }

    /// Takes no new calls from here on (`shutting_down`), lets running ones finish for this long, cancels the rest, closes all instances, and writes down which threads were
    /// active and what is noted of read-only calls. Calls that wait for a person and go on without their caller stay as they are, for
    /// the next start. What the hub does by itself has ended then, so that its store is free as
    /// soon as the last clone of the hub is dropped.
    pub async fn shutdown(&self, grace: Duration) {
        let Engine {
            call_tasks: tasks,
            live_calls: live,
            services,
            thread_store: book,
            background_tasks: own,
            stopped: gone,
            shutdown: leaving,
            ..
        } = &*self.engine;
        leaving.request();
        tasks.close();
        if tokio::time::timeout(grace, tasks.wait()).await.is_err() {
            live.cancel_all_by_shutdown();
            // Somebody may go on making calls, and nobody must wait for those either.
            while tokio::time::timeout(CANCEL_RETRY_INTERVAL, tasks.wait()).await.is_err() {
                live.cancel_all_by_shutdown();
            }
        }
        services.instances.shut_down().await;
        if let Err(error) = book.flush_all().await {
            tracing::warn!(%error, "which threads were active lately could not be written down");
        }
        self.flush_batched_records().await;
        self.flush_events().await;
        gone.cancel();
        own.close();
        own.wait().await;
    }

    /// Waits until the hub is [shut down](Self::shutdown); from then on it takes no new calls.
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

    fn build_tools(&self, tools: impl IntoIterator<Item = ToolBuilder>) -> Result<Vec<Tool>, RegistryError> {
        let Engine { executors, hooks, scheduler, services, .. } = &*self.engine;
        let workshop = BuildContext { executors, hooks, scheduler, services };
        tools.into_iter().map(|tool| tool.build(&workshop)).collect()
    }

    async fn finish_removal(&self, tool: &Arc<Tool>) {
        let name = &tool.definition.name;
        self.emit(EventKind::ToolUnregistered { tool_name: name.clone() });
        self.engine.services.availability_changed.notify_one();
        self.engine.scheduler.result_cache.forget_tool(name);
        self.close_instances(tool).await;
    }

    async fn close_instances(&self, tool: &Arc<Tool>) {
        self.engine.services.instances.close_tool_instances(&tool.registration, "the tool was removed").await;
    }

    fn emit(&self, news: EventKind) {
        self.engine.services.events.emit(self.now(), news);
    }
}
