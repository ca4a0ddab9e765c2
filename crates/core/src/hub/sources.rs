//! Tool sources: what adds and removes tools while the hub runs, such as the supervisor of an MCP server.
//!
//! In: sources. Out: a running task for each, and a [`SourceHandle`] through which it changes its own tools and reports whether it
//! is connected. A source never touches the tools of others.

mod handle;
mod info;

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_core::future::BoxFuture;
use futures_util::future::join_all;
use smol_str::SmolStr;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use handle::SourceHandle;
pub use info::{
    DefinitionApproval, DefinitionApprovalError, DefinitionChange, DefinitionDifference, SourceConnection, SourceInfo,
    SourceStatus, SourceTool, SourceToolState,
};

use super::{ChangeSummary, ToolHub};
pub use crate::registry::DuplicateSource;
use crate::{
    link::Link,
    registry::{ToolBuilder, Tools},
    tasks,
};
use toolhub_storage::latency::Latency;
use toolhub_types::{
    language::Language,
    policy::Glob,
    tool::{Kind, ToolName},
};

/// How long a source that is removed may take to close its connections.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Something that adds and removes tools while the hub runs, such as an MCP server.
pub trait ToolSource: Any + Send + Sync {
    /// Its name, unique in a hub.
    fn name(&self) -> &str;

    /// The names of the tools it may add. Other tools may depend on these before they exist.
    fn tool_names(&self) -> Vec<Glob>;

    /// Runs until the [stop signal](SourceHandle::stop_signal) of the handle, then closes its connections and returns. Called again
    /// after a panic.
    fn run(self: Arc<Self>, handle: SourceHandle) -> BoxFuture<'static, ()>;

    /// What is known about it now.
    fn info(&self) -> SourceInfo;

    /// Closes its connections and connects again at once.
    fn restart(&self);

    /// Reads again which tools it has, without a new connection. Must be cheap.
    fn refresh(&self) {}

    /// The definitions that wait for approval, and how they differ from those that were approved.
    fn pending_changes(&self) -> Vec<DefinitionChange>;

    /// Approves pending definitions; all, if none is named. Returns the approved names.
    ///
    /// # Errors
    /// When a name is unknown, a definition is another one than was named, or the store does not answer.
    fn approve<'a>(
        &'a self,
        tools: &'a [DefinitionApproval],
    ) -> BoxFuture<'a, Result<Vec<String>, DefinitionApprovalError>>;

    /// What it logged last, the oldest line first.
    fn log_lines(&self) -> Vec<String>;

    /// Replaces the set of its resources whose changes it must report with [`SourceHandle::resource_updated`]. Must be cheap.
    fn watch_resources(&self, uris: Vec<String>) {
        drop(uris);
    }

    /// How long its requests to the service took, by operation, for metrics.
    fn operations(&self) -> Vec<(&'static str, Latency)> {
        Vec::new()
    }

    /// How many outputs of its tools did not fit the output schema of their tool, for metrics.
    fn output_mismatches(&self) -> u64 {
        0
    }
}

/// The sources of a hub, by name.
#[derive(Default)]
struct SourceTable(Mutex<BTreeMap<SmolStr, SourceEntry>>);

struct SourceEntry {
    source: Arc<dyn ToolSource>,
    owner: Owner,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Whose source it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Hub,
    /// The tool of the same name: it is added and removed with it.
    Tool,
}

/// A source in a [`ToolBuilder`].
struct OwnSource(Arc<dyn ToolSource>);

impl ToolBuilder {
    /// A tool that its own source registers when it is connected. The source has the name of the tool, adds no other, and is added and
    /// removed with it.
    pub fn from_source(kind: impl Into<Kind>, source: impl ToolSource) -> Self {
        Self::new(source.name(), kind).own_source(Arc::new(OwnSource(Arc::new(source))))
    }
}

/// Separates a tool from its own source.
pub(super) fn split_own(mut tool: ToolBuilder) -> (ToolBuilder, Option<Arc<dyn ToolSource>>) {
    let source = tool.take_own_source().and_then(|source| source.downcast::<OwnSource>().ok());
    (tool, source.map(|source| source.0.clone()))
}

/// The name of a source and the names it may add.
fn declaration(source: &dyn ToolSource) -> (SmolStr, Vec<Glob>) {
    (SmolStr::new(source.name()), source.tool_names())
}

impl SourceEntry {
    async fn stop(self) {
        self.stop.cancel();
        if tokio::time::timeout(STOP_TIMEOUT, self.task).await.is_err() {
            tracing::warn!(source = self.source.name(), "a removed source of tools did not stop in time");
        }
    }
}

impl SourceTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SmolStr, SourceEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolHub {
    /// Adds a source and starts it.
    ///
    /// # Errors
    /// When there is a source of this name, or one whose tools have the same names.
    pub fn add_source(&self, source: Arc<dyn ToolSource>) -> Result<(), DuplicateSource> {
        let changed = self.declare_source(&*source)?;
        self.finish_declaration(&*source, changed);
        self.start_source(source, Owner::Hub);
        Ok(())
    }

    /// Makes the names known that a source may add. Tools of other sources that have such a name are removed.
    pub(super) fn declare_source(&self, source: &dyn ToolSource) -> Result<(Arc<Tools>, Arc<Tools>), DuplicateSource> {
        let changed = self.engine.registry.replace_sources(&[], [declaration(source)], || {})?;
        self.engine.source_lists.remove_misplaced(&self.engine.registry);
        Ok(changed)
    }

    /// Reads again which names a source may add, after its settings have changed.
    pub fn redeclare_source(&self, name: &str) {
        if let Some(source) = self.source(name) {
            let changed = self.engine.registry.rename_source_tools(&name.into(), source.tool_names());
            self.engine.source_lists.remove_misplaced(&self.engine.registry);
            self.finish_declaration(&*source, changed);
        }
    }

    pub(super) fn start_source(&self, source: Arc<dyn ToolSource>, owner: Owner) {
        let name = SmolStr::new(source.name());
        let (stop, link) = (self.engine.stopped.child_token(), Link::default());
        let handle = SourceHandle::new(&self.engine, name.clone(), link, stop.clone());
        // The shutdown waits until the token is dropped.
        let (running, tracked) = (source.clone(), self.engine.background_tasks.token());
        let task = tasks::spawn("tool source", stop.clone(), move |_| {
            let _tracked = &tracked;
            handle.reset_link();
            running.clone().run(handle.clone())
        });
        self.source_table().lock().insert(name.clone(), SourceEntry { source, owner, stop, task });
        // A source that replaces another of its name takes over what is watched.
        if !self.engine.source_lists.watches.uris(&name).is_empty() {
            self.report_watched_resources(&name);
        }
    }

    /// Removes a source with its tools, and waits until it has closed its connections. Running calls may fail.
    /// Returns what changed; `None` if there is no such source.
    pub async fn remove_source(&self, name: &str) -> Option<ChangeSummary> {
        let entry = self.source_table().lock().remove(name)?;
        let changed = self.engine.registry.replace_sources(&[name.into()], [], || entry.stop.cancel()).ok()?;
        Some(self.finish_replacement(vec![entry], Vec::new(), changed).await)
    }

    /// Removes sources and adds others. Names that the new ones may add belong to them at once, so that no other source takes them
    /// while the old ones close their connections, which this waits for. Returns what changed.
    ///
    /// # Errors
    /// When there is another source of such a name, or one whose tools have the same names. Nothing has changed then.
    pub async fn replace_sources(
        &self,
        removed: &[&str],
        added: Vec<Arc<dyn ToolSource>>,
    ) -> Result<ChangeSummary, DuplicateSource> {
        let (entries, changed) = {
            let table = self.source_table();
            let mut table = table.lock();
            let names = removed.iter().filter(|name| table.contains_key(**name)).map(SmolStr::new);
            let names: Vec<SmolStr> = names.collect();
            let stop = || names.iter().filter_map(|name| table.get(name)).for_each(|entry| entry.stop.cancel());
            let declared = added.iter().map(|source| declaration(&**source));
            let changed = self.engine.registry.replace_sources(&names, declared, stop)?;
            (names.iter().filter_map(|name| table.remove(name)).collect(), changed)
        };
        self.engine.source_lists.remove_misplaced(&self.engine.registry);
        Ok(self.finish_replacement(entries, added, changed).await)
    }

    /// Closes what removed sources hold, then starts those that were added. Goes on if the caller is dropped: the added ones have their
    /// names already.
    async fn finish_replacement(
        &self,
        removed: Vec<SourceEntry>,
        added: Vec<Arc<dyn ToolSource>>,
        changed: (Arc<Tools>, Arc<Tools>),
    ) -> ChangeSummary {
        let hub = self.clone();
        let finishing = self.engine.background_tasks.spawn(async move {
            let summary = hub.finish_source_removal(removed, changed).await;
            for source in added {
                hub.start_source(source.clone(), Owner::Hub);
                hub.names_changed(&*source);
            }
            summary
        });
        // It fails only when the runtime ends.
        finishing.await.unwrap_or_default()
    }

    /// Closes what removed sources hold.
    async fn finish_source_removal(
        &self,
        entries: Vec<SourceEntry>,
        changed: (Arc<Tools>, Arc<Tools>),
    ) -> ChangeSummary {
        let removed: Vec<_> = entries.iter().map(|entry| entry.source.clone()).collect();
        let remove_lists = || removed.iter().for_each(|source| self.engine.source_lists.remove(&source.name().into()));
        remove_lists();
        let summary = self.finish_change(&changed.0, &changed.1).await;
        join_all(entries.into_iter().map(SourceEntry::stop)).await;
        // They may have replaced their lists once more before they stopped.
        remove_lists();
        removed.iter().for_each(|source| self.names_changed(&**source));
        summary
    }

    /// Closes what tools of other sources held that a source has removed by its declaration.
    fn finish_declaration(&self, source: &dyn ToolSource, (before, after): (Arc<Tools>, Arc<Tools>)) {
        if !Arc::ptr_eq(&before, &after) {
            let hub = self.clone();
            // The shutdown waits for it.
            self.engine.background_tasks.spawn(async move { hub.finish_change(&before, &after).await });
        }
        self.names_changed(source);
    }

    /// A source was added or removed: sources whose patterns include its names may have lost or gained some of them.
    fn names_changed(&self, changed: &dyn ToolSource) {
        let names = changed.tool_names();
        let includes = |pattern: &Glob| names.iter().any(|name| pattern.matches(name.as_str()));
        let others = self.sources().into_iter().filter(|other| other.name() != changed.name());
        let concerned = others.filter(|other| other.tool_names().iter().any(includes));
        concerned.for_each(|other| other.refresh());
    }

    /// Stops sources whose tools were removed already.
    pub(super) async fn stop_sources(&self, names: &[SmolStr]) {
        let entries: Vec<_> = names.iter().filter_map(|name| self.source_table().lock().remove(name)).collect();
        names.iter().for_each(|name| self.engine.source_lists.remove(name));
        join_all(entries.into_iter().map(SourceEntry::stop)).await;
    }

    /// Whether the tool of this name has a source of its own.
    pub(super) fn has_own_source(&self, tool: &str) -> bool {
        self.source_table().lock().get(tool).is_some_and(|entry| entry.owner == Owner::Tool)
    }

    /// All sources, sorted by name.
    #[must_use]
    pub fn sources(&self) -> Vec<Arc<dyn ToolSource>> {
        self.source_table().lock().values().map(|entry| entry.source.clone()).collect()
    }

    /// The source of this name.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<Arc<dyn ToolSource>> {
        self.source_table().lock().get(name).map(|entry| entry.source.clone())
    }

    /// Why a source has not registered a tool of this name, if it knows the tool or has no tools yet.
    pub(super) fn missing_tool_reason(&self, name: &str) -> Option<String> {
        let owner = self.engine.registry.owner(&ToolName::new(name).ok()?)?;
        let source = self.source(&owner)?;
        let (patterns, info) = (source.tool_names(), source.info());
        // The name of a tool at its source follows the fixed part of the pattern.
        let is_meant = |tool: &&SourceTool| {
            let mut prefixes = patterns.iter().map(|pattern| pattern.as_str().trim_end_matches('*'));
            tool.tool_name.is_none() && prefixes.any(|prefix| name.strip_prefix(prefix) == Some(&tool.name))
        };
        if let Some(tool) = info.tools.iter().find(is_meant) {
            let reason = tool.reason.as_deref().unwrap_or("it cannot be registered");
            return Some(format!("`{name}` is not registered: the server `{owner}` offers it, but {reason}"));
        }
        let is_waiting = info.tools.is_empty() && info.status.connection != SourceConnection::Connected;
        is_waiting.then(|| {
            let status = info.status.text(Language::English);
            format!("no tool is named `{name}`; the server `{owner}`, which may add it, is {status}")
        })
    }

    fn source_table(&self) -> Arc<SourceTable> {
        self.engine.extensions.get_or_default()
    }
}
