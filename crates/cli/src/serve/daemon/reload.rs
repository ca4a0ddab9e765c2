//! Reload of the config: loads the files again and applies what changed, completely or not at all.
//!
//! In: the files of the config. Out: what changed, or the problems of the new config; the hub then keeps the old one.

use std::sync::{Arc, PoisonError};

use tokio::runtime::Handle;
use toolhub::{
    HubChange,
    alerts::Condition,
    server::{ConfigProblem, HostControlError, KeyError, KeySetting, ReloadReport},
};

use super::{Daemon, key_setting, mcp_servers::ServerChange};
use crate::{
    config::{self, LoadedConfig, Problems},
    serve::{agents, api_definitions::Stored, api_servers, api_tools},
};

impl Daemon {
    /// Reloads the config and applies the changes. A refusal is reported as an alert until a reload succeeds.
    pub(crate) async fn reload_config(&self) -> Result<ReloadReport, HostControlError> {
        let reloaded = self.try_reload().await;
        let problems = match &reloaded {
            Ok(_) => None,
            // The problems may quote values of the config.
            Err(HostControlError::Config(problems)) => Some(match problems.len() {
                1 => "the new config has a problem".into(),
                count => format!("the new config has {count} problems"),
            }),
            Err(_) => Some("the new config could not be applied".into()),
        };
        self.hub.report_condition(Condition::ReloadRefused, &self.hub.node_name(), problems.as_deref());
        reloaded
    }

    async fn try_reload(&self) -> Result<ReloadReport, HostControlError> {
        let _guard = self.reload_lock.lock().await;
        let next = self.load_next().await?;
        let mut plan = next.config.change_from(&self.loaded().config);
        plan.needs_restart = next.config.change_from(&self.startup_config.config).needs_restart;
        let sections = next.config.changed_sections(&self.loaded().config);
        let plans = agents::build_plans(&next.config.agents).map_err(|error| HostControlError::Failed(error.into()))?;
        let old = self.loaded();
        let update = next.config.hub_update(&old.config, &plan);
        let change = HubChange::replacing_policies().default_policy(update.defaults).status(update.status);
        let change = update.put.into_iter().fold(change, HubChange::put);
        // A stored tool that a configured one of the same name had replaced is registered again, as after a restart.
        self.apply_stored().await.map_err(|error| HostControlError::Failed(error.into()))?;
        let Stored { tools: stored, servers: stored_servers } = self.definitions();
        let hosts = &next.config.server.tool_hosts;
        let others = |base: &str| next.config.may_have_tool(base) || self.hub.get(base).is_some();
        let rebuild = |name: &String| api_tools::build(name, &stored.get(name)?.request, hosts, others).ok();
        let mut change = update.remove.iter().fold(change, |change, name| match rebuild(name) {
            Some(tool) => change.put(tool),
            None => change.remove(name),
        });
        // Existing tools are rebuilt if the allowed hosts changed.
        if *hosts != self.loaded().config.server.tool_hosts {
            let unaffected =
                stored.keys().filter(|name| !next.config.tools.contains_key(*name) && !update.remove.contains(name));
            change = unaffected.filter_map(rebuild).fold(change, HubChange::put);
        }
        let change = update.policies.into_iter().fold(change, |change, (tools, policy)| change.policy(tools, policy));
        let change = update.rules.into_iter().fold(change, HubChange::rule);
        let servers = ServerChange {
            old: api_servers::merge(&old.config, &stored_servers),
            new: api_servers::merge(&next.config, &stored_servers),
        };
        servers.apply(&self.hub).await.map_err(|error| HostControlError::Failed(error.into()))?;
        let changed = match self.hub.apply(change).await {
            Ok(changed) => changed,
            Err(error) => {
                servers.undo(&self.hub).await;
                return Err(HostControlError::Failed(error.into()));
            }
        };
        // Only now all names are free that tools of a server may take.
        for source in next.config.mcp_servers.keys().filter_map(|server| self.hub.source(server)) {
            let is_changed = next.config.mcp_servers.get(source.name()) != old.config.mcp_servers.get(source.name());
            if is_changed {
                source.refresh();
            }
        }
        if let (true, Some(ring)) = (plan.keys, self.keys.get()) {
            let keys: Vec<KeySetting> = next.config.auth.keys.iter().map(key_setting).collect();
            let messages =
                |errors: Vec<KeyError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            ring.replace(&keys).map_err(|errors| HostControlError::Failed(messages(errors).into()))?;
        }
        if plan.alerts {
            self.hub.set_alert_targets(next.config.alert_targets());
        }
        if plan.agents {
            agents::define(&self.agents, plans);
        }
        self.hub.emit_config_reloaded(&changed, plan.needs_restart.clone());
        if let Err(error) = self.hub.announce_config(config::config_digest(&next)).await {
            tracing::debug!(%error, "digest of the new config not announced yet");
        }
        for warning in next.config.warnings.iter().filter(|warning| !old.config.warnings.contains(warning)) {
            tracing::warn!(%warning, "config warning");
        }
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        self.reloaded.notify_waiters();
        Ok(ReloadReport {
            added: plan.added,
            replaced: plan.replaced,
            removed: plan.removed,
            sections,
            needs_restart: plan.needs_restart,
        })
    }

    /// Loads and validates the current files on a blocking thread, because imported documents can be large.
    async fn load_next(&self) -> Result<LoadedConfig, HostControlError> {
        let (options, old, runtime) = (self.load_options.clone(), self.loaded(), Handle::current());
        let load = move || {
            let next = config::load(&options).map_err(|problems| config_error(&problems))?;
            check_files_present(&old, &next)?;
            let problems = runtime.block_on(config::dry_run(&next, &[]));
            if problems.is_empty() { Ok(next) } else { Err(config_error(&Problems::new(problems))) }
        };
        #[expect(clippy::disallowed_methods, reason = "at most one at a time: the reload lock is held")]
        let read = tokio::task::spawn_blocking(load).await;
        read.unwrap_or_else(|error| Err(HostControlError::Failed(error.into())))
    }
}

/// Refuses a config if one of its files has disappeared or become empty: it is being written, or was lost. A server without tools and
/// keys must be configured explicitly, or started that way.
fn check_files_present(old: &LoadedConfig, new: &LoadedConfig) -> Result<(), HostControlError> {
    let missing = old.files.iter().filter(|file| !new.files.contains(file)).map(|file| (file, "is missing"));
    let emptied = new.blank_files.iter().filter(|file| !old.blank_files.contains(file)).map(|file| (file, "is empty"));
    let problems = missing.chain(emptied).map(|(file, state)| ConfigProblem {
        location: file.display().to_string(),
        key: String::new(),
        detail: format!("the file {state}"),
        hint: Some("restore it and reload again; or restart the server to run without it".into()),
    });
    let problems: Vec<_> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(HostControlError::Config(problems)) }
}

/// All problems of a config, for the API.
fn config_error(problems: &Problems) -> HostControlError {
    let converted = problems.iter().map(|problem| ConfigProblem {
        location: problem.location(),
        key: problem.key.clone(),
        detail: problem.message.clone(),
        hint: problem.help.clone(),
    });
    HostControlError::Config(converted.collect())
}
