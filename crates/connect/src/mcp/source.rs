//! `McpSource`: an MCP server as a source of tools.
//!
//! In: the settings of a server. Out: its tools in the hub while it is connected. `supervisor` connects and lists, `registration`
//! turns lists into registered tools, `executor` runs calls on the connections in `connections`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, json};
use tokio::sync::{Notify, watch};
use toolhub_core::{
    BoxFuture, DefinitionApproval, DefinitionApprovalError, DefinitionChange, Glob, Latency, SourceConnection,
    SourceHandle, SourceInfo, SourceReaders, SourceStatus, SourceTool, ToolSource,
    backend::StoreError,
    clock::{Clock, SystemClock, Timestamp},
};

use super::{
    catalog::CatalogOptions,
    connection::PeerFacts,
    connections::Connections,
    lists::ServerLists,
    log_ring::LogRing,
    pins::PendingDefinition,
    registration,
    server::{McpServer, McpServerError, SingleTools},
    supervisor,
};

/// An MCP server as a source of tools.
pub struct McpSource {
    pub(super) server: McpServer,
    pub(super) catalog_options: CatalogOptions,
    pub(super) connections: Arc<Connections>,
    pub(super) logs: Arc<LogRing>,
    pub(super) restart: Notify,
    /// Asks the supervisor to read the list of tools again.
    pub(super) refresh: Notify,
    single_tools: Mutex<Arc<SingleTools>>,
    /// The resources whose changes the hub wants to know.
    pub(super) watched: watch::Sender<Vec<String>>,
    pub(super) status: Mutex<ServerStatus>,
    /// The hub, while the source runs.
    pub(super) handle: Mutex<Option<SourceHandle>>,
    /// Held while tools are registered, so that an older list never replaces a newer one.
    pub(super) registering: tokio::sync::Mutex<registration::Registered>,
}

/// What is known about the server now.
#[derive(Debug)]
pub(super) struct ServerStatus {
    pub(super) connection: SourceConnection,
    pub(super) since: Timestamp,
    pub(super) last_error: Option<String>,
    pub(super) next_attempt: Option<Timestamp>,
    /// The last line that its program wrote to stderr before the loss.
    pub(super) last_stderr: Option<String>,
    pub(super) facts: Option<PeerFacts>,
    pub(super) tools: Vec<SourceTool>,
    pub(super) pending: Vec<PendingDefinition>,
    pub(super) notes: Vec<String>,
    /// What it lists besides tools, and the tools that read it.
    pub(super) lists: ServerLists,
    pub(super) readers: SourceReaders,
    /// What of the lists the hub does not accept, and why.
    left_out: Vec<String>,
}

impl McpSource {
    pub(super) fn new(mut server: McpServer) -> Result<Self, McpServerError> {
        let single_tools = std::mem::take(&mut server.named_tools);
        server.check_name()?;
        server.check_endpoint()?;
        let catalog_options = CatalogOptions {
            prefix: server.tool_prefix().to_owned(),
            include: server.globs("include", &server.include)?,
            exclude: server.globs("exclude", &server.exclude)?,
            // Known when the list is read.
            named: Vec::new(),
            only_named: server.only_named,
            trust: server.trust,
            read_only: server.globs("read_only", &server.read_only)?,
            idempotent: server.globs("idempotent", &server.idempotent)?,
            // Known when the server is connected.
            param_headers: false,
            secrets: Arc::default(),
        };
        let logs = LogRing::new(Arc::new(SystemClock));
        let connection = if server.enabled { SourceConnection::Connecting } else { SourceConnection::Disabled };
        let status = ServerStatus {
            connection,
            since: SystemClock.now(),
            last_error: None,
            next_attempt: None,
            last_stderr: None,
            facts: None,
            tools: Vec::new(),
            pending: Vec::new(),
            notes: Vec::new(),
            lists: ServerLists::default(),
            readers: SourceReaders::default(),
            left_out: Vec::new(),
        };
        Ok(Self {
            connections: Arc::new(Connections::new(&server, logs.clone())),
            server,
            catalog_options,
            logs,
            restart: Notify::new(),
            refresh: Notify::new(),
            single_tools: Mutex::new(Arc::new(SingleTools::new(single_tools)?)),
            watched: watch::Sender::default(),
            status: Mutex::new(status),
            handle: Mutex::default(),
            registering: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn status(&self) -> MutexGuard<'_, ServerStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools with names of their own.
    pub(super) fn single_tools(&self) -> Arc<SingleTools> {
        self.single_tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over the tools with names of their own from a source with otherwise equal settings; connections and all other tools stay.
    /// Tools that it has no more are removed at once, new ones appear after [`refresh`](ToolSource::refresh).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn take_single_tools(&self, other: &Self) -> Result<(), StoreError> {
        let new = other.single_tools();
        let old = std::mem::replace(&mut *self.single_tools.lock().unwrap_or_else(PoisonError::into_inner), new);
        match self.handle() {
            Some(handle) => registration::apply_single_tools(self, &handle, &old).await,
            None => Ok(()),
        }
    }

    fn handle(&self) -> Option<SourceHandle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerStatus {
    /// Changes the state of the connection. The attempts to connect belong to the time without one.
    pub(super) fn set_connection(&mut self, connection: SourceConnection, now: Timestamp) {
        let is_connected = |connection| connection == SourceConnection::Connected;
        if is_connected(self.connection) != is_connected(connection) {
            self.since = now;
        }
        self.connection = connection;
    }

    /// Passes the lists besides that of the tools on to the hub.
    pub(super) fn publish_lists(&mut self, handle: &SourceHandle) {
        self.left_out = handle.replace_lists(self.lists.publish(self.readers.clone()));
    }
}

impl ToolSource for McpSource {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn tool_names(&self) -> Vec<Glob> {
        let single = self.single_tools();
        let names = single.names.iter().filter_map(|tool| Glob::new(tool.name.as_str()).ok());
        self.server.listed_names().into_iter().chain(names).collect()
    }

    fn run(self: Arc<Self>, handle: SourceHandle) -> BoxFuture<'static, ()> {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
        Box::pin(supervisor::run(self, handle))
    }

    fn info(&self) -> SourceInfo {
        let status = self.status();
        let mut details = Map::new();
        details.extend(self.server.endpoint.description());
        if let Some(facts) = &status.facts {
            details.insert("protocolVersion".into(), facts.protocol_version.as_str().into());
            if let Some((name, version)) = &facts.server {
                details.insert("serverInfo".into(), json!({"name": name, "version": version}));
            }
        }
        let notes: Vec<_> = status.notes.iter().chain(status.lists.notes()).chain(&status.left_out).cloned().collect();
        if !notes.is_empty() {
            details.insert("notes".into(), notes.into());
        }
        let lists = [
            ("prompts", status.lists.prompts.len()),
            ("resources", status.lists.resources.len()),
            ("resourceTemplates", status.lists.templates.len()),
        ];
        details
            .extend(lists.into_iter().filter(|(_, count)| *count > 0).map(|(list, count)| (list.into(), count.into())));
        let mut admin_details = self.server.endpoint.admin_description();
        admin_details.extend(status.last_stderr.iter().map(|line| ("lastStderr".to_owned(), line.as_str().into())));
        SourceInfo {
            status: SourceStatus {
                name: self.server.name.clone(),
                connection: status.connection,
                since: status.since,
                last_error: status.last_error.clone(),
                next_attempt: status.next_attempt,
            },
            details,
            admin_details,
            tools: status.tools.clone(),
        }
    }

    fn restart(&self) {
        self.restart.notify_one();
    }

    fn refresh(&self) {
        self.refresh.notify_one();
    }

    fn pending_changes(&self) -> Vec<DefinitionChange> {
        self.status().pending.iter().map(PendingDefinition::change).collect()
    }

    fn approve<'a>(
        &'a self,
        tools: &'a [DefinitionApproval],
    ) -> BoxFuture<'a, Result<Vec<String>, DefinitionApprovalError>> {
        Box::pin(async move {
            match self.handle() {
                Some(handle) => registration::approve(self, &handle, tools).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn log_lines(&self) -> Vec<String> {
        let lines = self.logs.last(super::log_ring::MAX_LINES);
        lines.into_iter().map(|line| format!("{} {}", line.at, line.text)).collect()
    }

    fn watch_resources(&self, uris: Vec<String>) {
        self.watched.send_if_modified(|watched| std::mem::replace(watched, uris) != *watched);
    }

    fn operations(&self) -> Vec<(&'static str, Latency)> {
        self.connections.meters.latencies()
    }

    fn output_mismatches(&self) -> u64 {
        self.connections.meters.mismatches()
    }
}

impl std::fmt::Debug for McpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpSource").field("server", &self.server).finish_non_exhaustive()
    }
}
