//! Resolves the written config into the effective one: absolute paths, fetched secrets, and checks across keys.
//!
//! In: the config as written, with the origins of its values. Out: a `Config`, or every problem. Each section has its own file
//! below; each adds its problems and continues, so that all are reported together.

mod agents;
mod alerts;
mod auth;
mod calls;
mod imports;
mod mcp_endpoint;
mod mcp_servers;
mod redis_server;
mod server;
mod state;
mod store;
mod tools;

use std::path::{Path as FilePath, PathBuf};

use toolhub::{
    Glob, ManagerType, Policy, Rule, RunLimits,
    clock::Timestamp,
    config::{ConfigEnv, Diagnostics, SecretText},
    redact::{Redactor, is_secret_setting},
    status::{FailureWindow, StatusSettings},
};

pub(crate) use agents::{Agent, Agents, Execution, Llm, Provider};
pub(crate) use alerts::Alert;
pub(crate) use auth::{ApiKey, Auth};
pub(crate) use mcp_servers::{GUARD, McpServers};
pub(crate) use redis_server::RedisServer;
pub(crate) use server::Server;
pub(crate) use state::State;
pub(crate) use store::{Backend, OpenStoreError, Store, StoreHandle};
pub(crate) use tools::{Tool, Tools};

use super::{
    Config,
    environment::Environment,
    problem::Problem,
    raw::{self, RawConfig},
    tree::{Node, Origin, Path},
};

/// Limits on running and queued calls, and on the calls of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheduler {
    pub(crate) max_concurrency: Option<usize>,
    pub(crate) max_queued_per_tool: usize,
    pub(crate) max_queued: usize,
    pub(crate) max_argument_memory: usize,
    pub(crate) max_blocking_threads: usize,
    pub(crate) run_limits: RunLimits,
}

/// Live instances of stateful tools in threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Threads {
    pub(crate) instance_idle: std::time::Duration,
    pub(crate) instances_per_thread: usize,
    pub(crate) max_instances: usize,
}

/// Logs, metrics, and redaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Telemetry {
    pub(crate) format: raw::LogFormat,
    pub(crate) level: raw::LogLevel,
    pub(crate) metrics: bool,
    pub(crate) redact: Vec<String>,
}

impl Telemetry {
    /// Knows the built-in secret names and the configured ones.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor(self.redact.iter().filter_map(|text| Glob::new(text.to_lowercase()).ok()).collect())
    }
}

/// Policies for calls: defaults, per glob, and rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Policies {
    pub(crate) defaults: Policy,
    /// Policies by glob over tool names; the later one wins.
    pub(crate) limits: Vec<(String, Policy)>,
    pub(crate) rules: Vec<Rule>,
}

/// Resolves the config.
///
/// `folder` is the base of relative paths in defaults; `cwd` the base of those in flags and variables.
///
/// Returns every problem too; a config with problems, and its tools with problems, must not be used.
pub(crate) fn resolve(
    raw: &RawConfig,
    tree: &Node,
    folder: &FilePath,
    environment: &Environment,
    cwd: &FilePath,
) -> (Config, Vec<Problem>) {
    let env = FileEnv { tree, folder, cwd, environment };
    let is_set = |path: &Path| tree.get(path).is_some();
    let mut diagnostics = Diagnostics::new(&env, &is_set);
    let (imported, mut warnings) = imports::resolve(&raw.imports, &mut diagnostics);
    let tools = tools::resolve(raw, imported, &mut warnings, &mut diagnostics);
    let mcp_servers = mcp_servers::resolve(&raw.mcp_servers, &tools, &mut diagnostics);
    let state_is_distributed = state::uses(&raw.state, &raw.tools, ManagerType::Distributed);
    let store = store::resolve(&raw.store, state_is_distributed, &mut diagnostics);
    let agents = agents::resolve(raw, &tools, &mut warnings, &mut diagnostics);
    let config = Config {
        server: server::resolve(&raw.server, raw.auth.mode, &mut diagnostics),
        auth: auth::resolve(&raw.auth, &mut diagnostics),
        state: state::resolve(&raw.state, &raw.tools, (&raw.store, &store), &mut diagnostics),
        store,
        status: resolve_status(&raw.status, &mut diagnostics),
        scheduler: resolve_scheduler(&raw.scheduler),
        threads: Threads {
            instance_idle: raw.threads.instance_idle.0,
            instances_per_thread: to_usize(raw.threads.instances_per_thread),
            max_instances: to_usize(raw.threads.max_instances),
        },
        policies: calls::resolve(raw, &mut diagnostics),
        tools,
        mcp_servers,
        mcp_endpoint: mcp_endpoint::resolve(raw, &mut diagnostics),
        agents,
        alerts: alerts::resolve(raw, &mut diagnostics),
        warnings,
        telemetry: Telemetry {
            format: raw.telemetry.log.format,
            level: raw.telemetry.log.level,
            metrics: raw.telemetry.metrics,
            redact: raw.telemetry.redact.clone(),
        },
        restart_only: super::change::restart_only_keys(raw),
    };
    let problems = diagnostics.into_problems().into_iter().map(|problem| locate(tree, problem)).collect();
    (config, problems)
}

/// Locates a problem at its value, or at the closest enclosing one.
pub(crate) fn locate(tree: &Node, problem: toolhub::config::Problem) -> Problem {
    let toolhub::config::Problem { key, message, help } = problem;
    let origin = match tree.get(&key) {
        Some(node) => &node.origin,
        None => &tree.nearest(&key).key_origin,
    };
    Problem::at(origin, &key, message).help(help)
}

/// The environment of a config: the files of its keys, and the variables.
struct FileEnv<'a> {
    tree: &'a Node,
    folder: &'a FilePath,
    cwd: &'a FilePath,
    environment: &'a Environment,
}

impl ConfigEnv for FileEnv<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).or_else(|| self.environment.assumed_value()).map(str::to_owned)
    }

    /// Resolves a path relative to the file it is written in.
    fn resolve_path(&self, key: &Path, path: &str) -> PathBuf {
        let base = match self.tree.get(key).map(|node| &node.origin) {
            Some(Origin::File { source, .. }) => source.path.parent().unwrap_or(self.cwd),
            Some(Origin::Env { .. } | Origin::Flag(_)) => self.cwd,
            None => self.folder,
        };
        base.join(path.strip_prefix("./").unwrap_or(path))
    }

    /// The values of variables with secret names.
    fn secret_texts(&self, key: &Path) -> Vec<SecretText> {
        let names = self.tree.get(key).map(Node::variables_below).unwrap_or_default();
        let secret = names.into_iter().filter(|name| is_secret_setting(name));
        secret.filter_map(|name| self.environment.get(name)).map(SecretText::new).collect()
    }

    fn unset_hint(&self, variable: &str) -> String {
        self.environment.unset_hint(variable)
    }
}

fn resolve_status(raw: &raw::Status, diagnostics: &mut Diagnostics<'_>) -> StatusSettings {
    let minute = std::time::Duration::from_secs(60);
    let failure_window = raw.failure_rate.map(|failure_rate| FailureWindow {
        failure_rate,
        window: raw.window.map_or(minute, |time| time.0),
        minimum_calls: raw.minimum_calls.unwrap_or(10),
    });
    for key in ["window", "minimum_calls"] {
        let path = Path::of(["status", key]);
        if failure_window.is_none() && diagnostics.is_set(&path) {
            diagnostics.report(
                &path,
                format!("`{path}` has no effect without `failure_rate`"),
                "add `failure_rate = 0.5`, or remove it",
            );
        }
    }
    StatusSettings {
        enabled: raw.enabled,
        failure_threshold: raw.failure_threshold,
        failure_duration: raw.failure_duration.0,
        auto_rebind: raw.auto_rebind,
        rebind_delay: raw.rebind_delay.0,
        max_failure_duration: raw.max_failure_duration.0,
        failure_window,
        count_tool_errors: raw.count_tool_errors,
    }
}

fn resolve_scheduler(raw: &raw::Scheduler) -> Scheduler {
    Scheduler {
        max_concurrency: raw.max_concurrency.map(to_usize),
        max_queued_per_tool: to_usize(raw.max_queued_per_tool),
        max_queued: to_usize(raw.max_queued),
        max_argument_memory: usize::try_from(raw.max_argument_memory.0).unwrap_or(usize::MAX),
        max_blocking_threads: to_usize(raw.max_blocking_threads),
        run_limits: RunLimits { same_call: raw.max_repeats_per_run, calls: raw.max_calls_per_run },
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Parses a date, or a date and a time.
pub(crate) fn parse_datetime(text: &str) -> Option<Timestamp> {
    let timestamp = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.replacen(' ', "T", 1) };
    timestamp.parse().ok()
}
