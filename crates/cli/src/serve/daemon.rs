//! The hub of a config with its store, and the operations that the server delegates to the program around it ([`HostControl`]).
//!
//! In: a valid config. Out: a running hub and its server. `reload` applies a changed config, `created_tools` the tools of the API.

mod added_servers;
mod created_tools;
mod definition_sync;
mod mcp_servers;
mod open_store;
mod reload;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::Router;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolhub::{
    BoxFuture, BuildError, BusinessStateConfig, ManagerType, StateBackups, StateManagerConfig, StoreRole, ToolHub,
    agent::AgentService,
    backend::Backend,
    clock::{Clock as _, SystemClock},
    server::{
        Auth, Backup, ConfigValue, HostControl, HostControlError, KeyRing, KeySetting, Limits, NamedToolset,
        ReloadReport, Server, Settings, ToolChangeError,
    },
    sqlite,
    status::Language,
};

use self::open_store::open_store;
pub(crate) use self::{mcp_servers::wait_for_first_connections, open_store::Purpose};
use super::{
    agents,
    api_definitions::{self as definitions, Stored},
    api_servers, api_tools, backup_age, open_files,
};
use crate::{
    config::{self, AuthMode, Config, LoadOptions, LoadedConfig, StoreHandle},
    failure::Failure,
    local_hub::LocalHub,
};

/// A hub with its store, agents and config.
pub(crate) struct Daemon {
    pub(crate) hub: ToolHub,
    pub(crate) agents: AgentService,
    store: StoreHandle,
    /// Makes backups of the persistent state manager's store, if it was opened.
    state_backups: Arc<OnceLock<StateBackups>>,
    /// The options of the config, for a reload.
    load_options: LoadOptions,
    /// The config file; `None` in a demo.
    file: Option<PathBuf>,
    /// The config at startup; some of its keys only change with a restart.
    startup_config: Arc<LoadedConfig>,
    /// The current config.
    loaded: Mutex<Arc<LoadedConfig>>,
    /// Notified after each reload.
    reloaded: tokio::sync::Notify,
    /// The API keys of the server, once it was created.
    keys: OnceLock<KeyRing>,
    /// Serializes config reloads and changes of tools.
    reload_lock: tokio::sync::Mutex<()>,
    /// The definitions of the API that are in the hub; changed under `reload_lock`.
    definitions: Mutex<Stored>,
    /// Ends the watch of the stored definitions.
    definition_watch: OnceLock<DropGuard>,
    /// Ends the watch of the backups.
    backup_watch: OnceLock<DropGuard>,
}

impl Daemon {
    /// Opens the store and builds the hub. `file` is the config file reported by the API.
    ///
    /// # Errors
    /// When the store is in use or cannot be opened, or a tool cannot be built.
    pub(crate) async fn open(local: &LocalHub, file: Option<&Path>, purpose: Purpose) -> Result<Self, Failure> {
        let store = open_store(&local.loaded.config, purpose).await?;
        Self::open_on(store, local, file, purpose).await
    }

    /// Builds the hub on an open store.
    async fn open_on(
        store: StoreHandle,
        local: &LocalHub,
        file: Option<&Path>,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let config = &local.loaded.config;
        // A command connects to MCP servers when it needs their tools.
        let is_connecting = matches!(purpose, Purpose::Serve);
        // There is no hub with a clock yet; these rows never expire.
        let stored = definitions::load_all(&store.backend(), SystemClock.now()).await;
        let stored = stored.map_err(|error| Failure::new("store_unavailable", error.to_string()))?;
        for warning in &config.warnings {
            tracing::warn!(%warning, "config warning");
        }
        for problem in config::find_obstacles(&local.loaded, &[]) {
            tracing::warn!(key = %problem.key, problem = %problem.message, "tool cannot work; see `toolhub config check`");
        }
        let api_tools = api_tools::build_all(&stored.tools, config, is_connecting);
        let plans = agents::build_plans(&config.agents)
            .map_err(|error| Failure::new("config_invalid", error).help("toolhub config check"))?;
        let state_backups = Arc::<OnceLock<StateBackups>>::default();
        let opened = state_backups.clone();
        let state_server = config.state.redis.as_ref().map(|server| server.open().map(Arc::new)).transpose();
        let state_server = state_server.map_err(|error| Failure::new("store_unavailable", error.to_string()))?;
        let open_state_store = move |manager: &StateManagerConfig, business: &BusinessStateConfig| {
            if let (Some(ManagerType::Distributed), Some(server)) = (manager.manager_type, &state_server) {
                return Ok::<Arc<dyn Backend>, String>(server.clone());
            }
            let opened_now = toolhub::open_store_with_backups(manager, business);
            let (store, backups) = opened_now.map_err(|error| error.to_string())?;
            let _ = backups.map(|backups| opened.set(backups));
            Ok(store)
        };
        let servers = api_servers::merge(config, &stored.servers);
        let builder = config.hub_builder(&servers, is_connecting, &store).state_store_factory(open_state_store);
        let builder = builder.node(match purpose {
            Purpose::Serve => config::node_info(&local.loaded),
            Purpose::Command => config::command_info(&local.loaded),
        });
        let builder = if is_connecting { builder } else { builder.without_alert_delivery() };
        let hub = builder.tools(api_tools).build().await.map_err(|error| build_failure(&error))?;
        let service = AgentService::with_language(&hub, log_language(&local.options));
        agents::define(&service, plans);
        // Resume the runs that a crashed process left open. On a shared store a command leaves them to the servers: it would interrupt them
        // again at its end.
        let is_leaving_runs = matches!(purpose, Purpose::Command) && !hub.has_exclusive_store();
        let resumed = if is_leaving_runs { Ok(0) } else { service.resume().await };
        let resumed = resumed.unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "cannot look up open agent runs; runs left open by a crash were not resumed; restart to retry"
            );
            0
        });
        if resumed > 0 {
            tracing::info!(runs = resumed, "resumed open agent runs");
        }
        let daemon = Self {
            hub,
            agents: service,
            store,
            state_backups,
            load_options: local.options.clone().of_running_server(),
            file: file.map(Path::to_owned),
            startup_config: local.loaded.clone(),
            loaded: Mutex::new(local.loaded.clone()),
            reloaded: tokio::sync::Notify::new(),
            keys: OnceLock::new(),
            reload_lock: tokio::sync::Mutex::default(),
            definitions: Mutex::new(stored),
            definition_watch: OnceLock::new(),
            backup_watch: OnceLock::new(),
        };
        if resumed > 0 && !is_connecting {
            daemon.connect_mcp_servers().await;
        }
        Ok(daemon)
    }

    /// A server for this hub.
    pub(crate) fn server(self: Arc<Self>) -> Server {
        let settings = server_settings(&self.loaded().config);
        self.server_with(settings)
    }

    /// A server that another process replaces as soon as it stops: running calls get at most `max_drain`, and are interrupted then.
    pub(crate) fn replaceable_server(self: Arc<Self>, max_drain: Duration) -> Server {
        let mut settings = server_settings(&self.loaded().config);
        settings.drain_timeout = settings.drain_timeout.min(max_drain);
        settings.close_before_cancel = true;
        self.server_with(settings)
    }

    fn server_with(self: Arc<Self>, mut settings: Settings) -> Server {
        settings.limits.connections = open_files::limit_connections(settings.limits.connections);
        self.watch_definitions();
        let stop = CancellationToken::new();
        backup_age::watch(&self.hub, &self.loaded().config, stop.clone());
        let _ = self.backup_watch.set(stop.drop_guard());
        let server = Server::with_host_control(self.hub.clone(), self.backend(), settings, self.clone());
        let server = server.agents(self.agents.clone());
        let _ = self.keys.set(server.key_ring());
        server
    }

    /// The router for a user who has opened the store on this machine; requires no API key.
    pub(crate) fn local_router(self: Arc<Self>) -> Router {
        let mut settings = server_settings(&self.loaded().config);
        settings.auth = Auth::Local;
        let agents = self.agents.clone();
        let keys: Vec<KeySetting> = self.loaded().config.auth.keys.iter().map(key_setting).collect();
        let server = Server::with_host_control(self.hub.clone(), self.backend(), settings, self).agents(agents);
        // Not for authentication, but to be listed.
        if let Err(errors) = server.key_ring().replace(&keys) {
            tracing::warn!(?errors, "keys of the config cannot be listed");
        }
        server.router()
    }

    /// The URL of a server that listens on this address.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        let public = self.loaded().config.server.public_url.clone();
        public.unwrap_or_else(|| match address {
            any if any.ip().is_unspecified() => format!("http://127.0.0.1:{}", any.port()),
            one => format!("http://{one}"),
        })
    }

    /// The URL of the dashboard of a server with this URL, if the server has one.
    pub(crate) fn dashboard_url(&self, url: &str) -> Option<String> {
        self.startup_config.config.server.ui.then(|| format!("{url}/ui/"))
    }

    /// Alerts of a server with this URL link to its dashboard from now on.
    pub(crate) fn link_alerts(&self, url: &str) {
        if let Some(dashboard) = self.dashboard_url(url) {
            self.hub.set_alert_links(dashboard);
        }
    }

    /// The current config.
    pub(crate) fn loaded(&self) -> Arc<LoadedConfig> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The config files, and those that they import.
    pub(crate) fn watched_files(&self) -> Vec<PathBuf> {
        let loaded = self.loaded();
        loaded.files.iter().chain(&loaded.imported_files).cloned().collect()
    }

    /// The config files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.loaded().files.clone()
    }

    fn backend(&self) -> Arc<dyn Backend> {
        self.store.backend()
    }

    async fn make_backup(&self, role: StoreRole) -> Result<Backup, HostControlError> {
        let backup = match role {
            StoreRole::Hub => self.back_up_hub().await?,
            StoreRole::State => self.back_up_states().await?,
        };
        Ok(Backup { path: backup.path, store: role, bytes: backup.bytes, sha256: backup.sha256 })
    }

    async fn back_up_states(&self) -> Result<sqlite::Backup, HostControlError> {
        let backups = self.state_backups.get().ok_or_else(|| {
            let reason = "no state manager has a store of its own; the backup of the hub's store holds all states";
            HostControlError::Unsupported(reason.into())
        })?;
        backups.create().await.map_err(|error| HostControlError::Failed(error.into()))
    }

    async fn back_up_hub(&self) -> Result<sqlite::Backup, HostControlError> {
        let sqlite = match &self.store {
            StoreHandle::Sqlite(sqlite) => sqlite,
            StoreHandle::Memory(_) => {
                let reason = "records are kept in memory; there is nothing to back up";
                return Err(HostControlError::Unsupported(reason.into()));
            }
            StoreHandle::Redis(_) => {
                let reason = "records are kept in Redis; copy the files of its server";
                return Err(HostControlError::Unsupported(reason.into()));
            }
        };
        let folder = self.loaded().config.store.backup_folder();
        std::fs::create_dir_all(&folder).map_err(|error| HostControlError::Failed(error.into()))?;
        let backup = sqlite.backup_in(folder, "toolhub-").await;
        backup.map_err(|error| HostControlError::Failed(error.into()))
    }
}

impl HostControl for Daemon {
    fn config(&self) -> Value {
        config::masked_values(&self.loaded())
    }

    fn config_values(&self) -> Option<Vec<ConfigValue>> {
        Some(config::values_with_origins(&self.loaded()))
    }

    fn config_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        Box::pin(self.reload_config())
    }

    fn restart_pending(&self) -> Vec<String> {
        self.loaded().config.change_from(&self.startup_config.config).needs_restart
    }

    fn backup(&self, store: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(self.make_backup(store))
    }

    fn toolsets(&self) -> Vec<NamedToolset> {
        agents::named_toolsets(&self.loaded().config.agents)
    }

    fn toolsets_changed(&self) -> BoxFuture<'_, ()> {
        // Hears of reloads from now on, not only once it is polled.
        Box::pin(self.reloaded.notified())
    }

    fn create_tool(&self, tool: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        Box::pin(async move {
            let name = tool["name"].as_str().unwrap_or_default().to_owned();
            self.put_tool(&name, &tool, false).await
        })
    }

    fn replace_tool(&self, name: &str, tool: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        let name = name.to_owned();
        Box::pin(async move { self.put_tool(&name, &tool, true).await })
    }

    fn remove_tool(&self, name: &str) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        let name = name.to_owned();
        Box::pin(async move { self.delete_tool(&name).await })
    }

    fn add_mcp_server(&self, server: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        Box::pin(async move {
            let name = server["name"].as_str().unwrap_or_default().to_owned();
            self.add_server(&name, &server).await
        })
    }

    fn remove_mcp_server(&self, name: &str) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        let name = name.to_owned();
        Box::pin(async move { self.remove_server(&name).await })
    }
}

fn build_failure(error: &BuildError) -> Failure {
    match error {
        BuildError::Store(_) | BuildError::StateStore(_) | BuildError::NewerNode(_) | BuildError::NewerRecords(_) => {
            Failure::new("store_unavailable", error.to_string())
        }
        _ => Failure::new("config_invalid", error.to_string()).help("toolhub config check"),
    }
}

/// The server settings of a config.
fn server_settings(config: &Config) -> Settings {
    let (server, mut settings) = (&config.server, Settings::default());
    settings.host = server.host.to_string();
    settings.port = server.port;
    settings.public_url.clone_from(&server.public_url);
    settings.allowed_hosts.clone_from(&server.allowed_hosts);
    settings.drain_timeout = server.drain_timeout;
    settings.ui = server.ui;
    settings.metrics = config.telemetry.metrics;
    settings.audit_retention = config.store.audit_retention;
    settings.build = crate::build_info::current();
    settings.limits = Limits {
        body: server.body_limit,
        headers: server.header_limit,
        json_depth: server.json_depth,
        json_values: server.json_values,
        header_timeout: server.header_timeout,
        body_timeout: server.body_timeout,
        connections: server.max_connections,
        ..Limits::default()
    };
    settings.mcp = config.mcp_endpoint.clone();
    settings.auth = match config.auth.mode {
        AuthMode::Local => Auth::Local,
        AuthMode::Keys => Auth::Keys(config.auth.keys.iter().map(key_setting).collect()),
    };
    settings
}

fn key_setting(key: &config::ApiKey) -> KeySetting {
    KeySetting {
        name: key.name.to_string(),
        tenant: key.tenant.to_string(),
        hash: format!("sha256:{}", key.sha256.reveal()),
        scopes: key.scopes.clone(),
        expires: key.expires.map(toolhub::clock::Timestamp::millis),
    }
}

/// The language of the log, by the locale variables.
fn log_language(options: &LoadOptions) -> Language {
    let env_var = |name| options.environment.get(name).filter(|text| !text.is_empty());
    match env_var("LC_ALL").or_else(|| env_var("LC_MESSAGES")).or_else(|| env_var("LANG")) {
        Some(locale) if locale.starts_with("zh") => Language::Chinese,
        _ => Language::English,
    }
}
