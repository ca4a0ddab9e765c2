//! The hub of a config, with its store, and what the server asks the program around it for.
//!
//! In: a config that was found good. Out: a hub that runs; later the changes of a config that was read again, all of them or
//! none.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use axum::Router;
use serde_json::Value;
use tokio::runtime::Handle;
use toolhub::{
    BoxFuture, HubChange, ToolBuilder, ToolHub,
    agent::AgentService,
    backend::Backend,
    clock::{Clock, SystemClock},
    server::{
        Auth, Backup, ConfigProblem, HostControl, HostControlError, KeyError, KeyRing, KeySetting, Limits,
        NamedToolset, Reloaded, Server, Settings, ToolChangeError,
    },
    sqlite::OpenError,
    status::Language,
};

use super::{agents, api_tools};
use crate::{
    config::{self, Config, LoadOptions, LoadedConfig, Mode, OpenStoreError, Problems, StoreHandle},
    failure::Failure,
    local_hub::LocalHub,
};

/// A hub and all that belongs to it.
pub(crate) struct Daemon {
    pub(crate) hub: ToolHub,
    pub(crate) agents: AgentService,
    store: StoreHandle,
    /// How the config was asked for, to ask again.
    load_options: LoadOptions,
    /// The file it is in; none in a demo.
    file: Option<PathBuf>,
    /// What held at the start; some of it holds until the end.
    startup_config: Arc<LoadedConfig>,
    /// What holds now.
    loaded: Mutex<Arc<LoadedConfig>>,
    /// The keys of the server, once there is one.
    keys: OnceLock<KeyRing>,
    /// Taken by whoever reads the config again, so that two do not mix.
    reload_lock: tokio::sync::Mutex<()>,
}

impl Daemon {
    /// Opens the store and builds the hub. `file` is told to whoever asks which config this is.
    ///
    /// # Errors
    /// When the store is in use or cannot be opened, or a tool cannot be made.
    pub(crate) async fn open(local: &LocalHub, file: Option<&Path>) -> Result<Self, Failure> {
        let config = &local.loaded.config;
        let store = config.store.open().map_err(|trouble| store_failure(&trouble))?;
        let made = api_tools::load_all(&backend(&store))
            .await
            .map_err(|error| Failure::new("store_unavailable", error.to_string()))?;
        for word in &config.warnings {
            tracing::warn!("{word}");
        }
        let made = api_tools::build_all(&made, &config.server.tool_hosts, |name| config.tools.contains_key(name));
        let plans = agents::build_plans(&config.agents)
            .map_err(|error| Failure::new("config_invalid", error).help("toolhub config check"))?;
        let built = config.hub_builder(&store).tools(made).build().await;
        let hub =
            built.map_err(|error| Failure::new("config_invalid", error.to_string()).help("toolhub config check"))?;
        let service = AgentService::with_language(&hub, log_language(&local.options));
        agents::define(&service, plans);
        // What a process that died has left open goes on here.
        match service.resume().await {
            Ok(0) => {}
            Ok(many) => tracing::info!(many, "runs of agents go on that were open"),
            Err(error) => tracing::error!(%error, "open runs of agents could not be looked up"),
        }
        Ok(Self {
            hub,
            agents: service,
            store,
            load_options: local.options.clone(),
            file: file.map(Path::to_owned),
            startup_config: local.loaded.clone(),
            loaded: Mutex::new(local.loaded.clone()),
            keys: OnceLock::new(),
            reload_lock: tokio::sync::Mutex::default(),
        })
    }

    /// The server for it.
    pub(crate) fn server(self: Arc<Self>) -> Server {
        let settings = server_settings(&self.loaded().config);
        let server = Server::with_host_control(self.hub.clone(), self.backend(), settings, self.clone());
        let server = server.agents(self.agents.clone());
        let _ = self.keys.set(server.key_ring());
        server
    }

    /// The routes for whoever has opened the store on this machine: nobody is asked for a key.
    pub(crate) fn local_router(self: Arc<Self>) -> Router {
        let mut settings = server_settings(&self.loaded().config);
        settings.auth = Auth::Local;
        let agents = self.agents.clone();
        Server::with_host_control(self.hub.clone(), self.backend(), settings, self).agents(agents).router()
    }

    /// The address people use for a server that listens there.
    pub(crate) fn url(&self, listens: SocketAddr) -> String {
        let public = self.loaded().config.server.public_url.clone();
        public.unwrap_or_else(|| match listens {
            any if any.ip().is_unspecified() => format!("http://127.0.0.1:{}", any.port()),
            one => format!("http://{one}"),
        })
    }

    /// The config as it holds now.
    pub(crate) fn loaded(&self) -> Arc<LoadedConfig> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The files the config was read from.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.loaded().files.clone()
    }

    fn backend(&self) -> Arc<dyn Backend> {
        backend(&self.store)
    }

    /// Makes a tool, or another in its place; and keeps it. In the order that a crash in between leaves no tool that nobody
    /// asked for. One that cannot be kept is not there.
    async fn put_tool(&self, name: &str, asked: &Value, there: bool) -> Result<(), ToolChangeError> {
        let _alone = self.reload_lock.lock().await;
        if self.loaded().config.tools.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        if self.hub.get(name).is_some() != there {
            return Err(ToolChangeError::NameTaken);
        }
        let tool = self.tool_builder(name, asked)?;
        let before = self.stored_tool(name).await?;
        self.apply_change(HubChange::tools_only().put(tool)).await?;
        self.persist_tool(name, Some(asked), before).await
    }

    /// A tool as it was asked for over the API, under what holds now.
    fn tool_builder(&self, name: &str, asked: &Value) -> Result<ToolBuilder, ToolChangeError> {
        let hosts = &self.loaded().config.server.tool_hosts;
        api_tools::build(name, asked, hosts, |base| self.hub.get(base).is_some())
    }

    /// What is kept of a tool.
    async fn stored_tool(&self, name: &str) -> Result<Option<Value>, ToolChangeError> {
        api_tools::load_one(&self.backend(), name).await.map_err(|error| ToolChangeError::Store(error.to_string()))
    }

    async fn apply_change(&self, change: HubChange) -> Result<(), ToolChangeError> {
        let changed = self.hub.apply(change).await;
        changed.map(drop).map_err(|error| ToolChangeError::Refused(error.to_string()))
    }

    /// Keeps what the hub has already. Where the store does not answer, the hub gets back what it had before.
    async fn persist_tool(
        &self,
        name: &str,
        asked: Option<&Value>,
        before: Option<Value>,
    ) -> Result<(), ToolChangeError> {
        let Err(error) = api_tools::save(&self.backend(), name, asked).await else { return Ok(()) };
        let back = before.map(|before| self.tool_builder(name, &before)).transpose();
        let undone = match back {
            Ok(Some(tool)) => self.apply_change(HubChange::tools_only().put(tool)).await,
            Ok(None) => self.apply_change(HubChange::tools_only().remove(name)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = undone {
            tracing::error!(tool = name, %error, "a tool is not what is kept of it until the next start");
        }
        Err(ToolChangeError::Store(error.to_string()))
    }

    async fn delete_tool(&self, name: &str) -> Result<(), ToolChangeError> {
        let _alone = self.reload_lock.lock().await;
        if self.loaded().config.tools.contains_key(name) {
            return Err(ToolChangeError::Configured);
        }
        let before = self.stored_tool(name).await?;
        self.apply_change(HubChange::tools_only().remove(name)).await?;
        self.persist_tool(name, None, before).await
    }

    /// Reads the config again and applies what changed.
    pub(crate) async fn reload_config(&self) -> Result<Reloaded, HostControlError> {
        let _alone = self.reload_lock.lock().await;
        let next = self.load_next().await?;
        let mut plan = next.config.change_from(&self.loaded().config);
        plan.needs_restart = next.config.change_from(&self.startup_config.config).needs_restart;
        let plans = agents::build_plans(&next.config.agents).map_err(|error| HostControlError::Failed(error.into()))?;
        let pieces = next.config.hub_update(&plan);
        let change = HubChange::replacing_policies().default_policy(pieces.defaults).status(pieces.status);
        let change = pieces.put.into_iter().fold(change, HubChange::put);
        // What the config stood in the way of comes back, as it would after a restart.
        let made =
            api_tools::load_all(&self.backend()).await.map_err(|error| HostControlError::Failed(error.into()))?;
        let hosts = &next.config.server.tool_hosts;
        let others = |base: &str| next.config.tools.contains_key(base) || self.hub.get(base).is_some();
        let again = |name: &String| api_tools::build(name, made.get(name)?, hosts, others).ok();
        let mut change = pieces.remove.iter().fold(change, |change, name| match again(name) {
            Some(tool) => change.put(tool),
            None => change.remove(name),
        });
        // Those that are there reach other hosts from now on.
        if *hosts != self.loaded().config.server.tool_hosts {
            let there =
                made.keys().filter(|name| !next.config.tools.contains_key(*name) && !pieces.remove.contains(name));
            change = there.filter_map(again).fold(change, HubChange::put);
        }
        let change = pieces.policies.into_iter().fold(change, |change, (tools, policy)| change.policy(tools, policy));
        let change = pieces.rules.into_iter().fold(change, HubChange::rule);
        let changed = self.hub.apply(change).await.map_err(|error| HostControlError::Failed(error.into()))?;
        if let (true, Some(ring)) = (plan.keys, self.keys.get()) {
            let keys: Vec<KeySetting> = next.config.auth.keys.iter().map(key_setting).collect();
            let told = |wrong: Vec<KeyError>| wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            ring.replace(&keys).map_err(|wrong| HostControlError::Failed(told(wrong).into()))?;
        }
        if plan.agents {
            agents::define(&self.agents, plans);
        }
        self.hub.emit_config_reloaded(&changed, plan.needs_restart.clone());
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(Reloaded {
            added: plan.added,
            replaced: plan.replaced,
            removed: plan.removed,
            needs_restart: plan.needs_restart,
        })
    }

    /// The config as its files say it now, read and tried where it may block: documents of services are large.
    async fn load_next(&self) -> Result<LoadedConfig, HostControlError> {
        let (asked, old, runtime) = (self.load_options.clone(), self.loaded(), Handle::current());
        let reading = move || {
            let next = config::load(&asked).map_err(|problems| config_error(&problems))?;
            check_files_present(&old, &next)?;
            runtime.block_on(config::dry_run(&next)).map_err(|problems| config_error(&problems))?;
            Ok(next)
        };
        #[expect(clippy::disallowed_methods, reason = "one at a time: whoever reloads holds the lock for it")]
        let read = tokio::task::spawn_blocking(reading).await;
        read.unwrap_or_else(|error| Err(HostControlError::Failed(error.into())))
    }

    async fn make_backup(&self) -> Result<Backup, HostControlError> {
        let StoreHandle::Sqlite(sqlite) = &self.store else {
            return Err(HostControlError::Unsupported(
                "records are kept in memory; there is nothing to make a backup of".into(),
            ));
        };
        let folder = self.loaded().config.store.backup_folder();
        std::fs::create_dir_all(&folder).map_err(|error| HostControlError::Failed(error.into()))?;
        let name = SystemClock.now().to_string().replace([':', '.'], "-");
        let made = sqlite.backup(folder.join(format!("toolhub-{name}.db"))).await;
        let made = made.map_err(|error| HostControlError::Failed(error.into()))?;
        Ok(Backup { path: made.path, bytes: made.bytes, sha256: made.sha256 })
    }
}

impl HostControl for Daemon {
    fn config(&self) -> Value {
        config::masked_values(&self.loaded())
    }

    fn config_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, HostControlError>> {
        Box::pin(self.reload_config())
    }

    fn backup(&self) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(self.make_backup())
    }

    fn toolsets(&self) -> Vec<NamedToolset> {
        agents::named_toolsets(&self.loaded().config.agents)
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
}

fn backend(store: &StoreHandle) -> Arc<dyn Backend> {
    match store {
        StoreHandle::Memory(memory) => memory.clone(),
        StoreHandle::Sqlite(sqlite) => sqlite.clone(),
    }
}

/// Refuses a config of which a file is gone or has become empty: it is being written, or was lost. Whoever wants a server without
/// tools and keys says so, or starts one.
fn check_files_present(old: &LoadedConfig, new: &LoadedConfig) -> Result<(), HostControlError> {
    let gone = old.files.iter().filter(|file| !new.files.contains(file)).map(|file| (file, "is gone"));
    let emptied = new.blank_files.iter().filter(|file| !old.blank_files.contains(file)).map(|file| (file, "is empty"));
    let told = gone.chain(emptied).map(|(file, what)| ConfigProblem {
        location: file.display().to_string(),
        key: String::new(),
        detail: format!("the file {what}"),
        hint: Some("bring it back and reload again; without it, start the server anew".into()),
    });
    let told: Vec<_> = told.collect();
    if told.is_empty() { Ok(()) } else { Err(HostControlError::Config(told)) }
}

/// All problems of a config, as the server tells them.
fn config_error(problems: &Problems) -> HostControlError {
    let told = problems.iter().map(|problem| ConfigProblem {
        location: problem.location(),
        key: problem.key.clone(),
        detail: problem.message.clone(),
        hint: problem.help.clone(),
    });
    HostControlError::Config(told.collect())
}

/// What the config says about the server.
fn server_settings(config: &Config) -> Settings {
    let (said, mut settings) = (&config.server, Settings::default());
    settings.host = said.host.to_string();
    settings.port = said.port;
    settings.public_url.clone_from(&said.public_url);
    settings.allowed_hosts.clone_from(&said.allowed_hosts);
    settings.drain_timeout = said.drain_timeout;
    settings.metrics = config.telemetry.metrics;
    settings.audit_retention = config.store.audit_retention;
    settings.build = crate::build_info::current();
    settings.limits = Limits {
        body: said.body_limit,
        headers: said.header_limit,
        json_depth: said.json_depth,
        header_timeout: said.header_timeout,
        body_timeout: said.body_timeout,
        connections: said.max_connections,
        ..Limits::default()
    };
    settings.auth = match config.auth.mode {
        Mode::Local => Auth::Local,
        Mode::Keys => Auth::Keys(config.auth.keys.iter().map(key_setting).collect()),
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

/// The language of the person whose log it is, as the environment says it.
fn log_language(asked: &LoadOptions) -> Language {
    let said = |name| asked.environment.get(name).filter(|text| !text.is_empty());
    match said("LC_ALL").or_else(|| said("LC_MESSAGES")).or_else(|| said("LANG")) {
        Some(locale) if locale.starts_with("zh") => Language::Chinese,
        _ => Language::English,
    }
}

fn store_failure(trouble: &OpenStoreError) -> Failure {
    match trouble {
        OpenStoreError::Open(OpenError::InUse { .. }) => Failure::new("store_in_use", trouble.to_string())
            // Nobody answered at the address of this config, or this command is about to listen there itself.
            .help("ask the server that has it: add `--server` and the address it printed")
            .help("or stop that process first"),
        _ => Failure::new("store_unavailable", trouble.to_string()),
    }
}
