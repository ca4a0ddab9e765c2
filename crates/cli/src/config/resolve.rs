//! From what is written to what holds: paths are whole, secrets are fetched, and what makes no sense together is said.
//!
//! In: the config as it is written, with the origins of its values. Out: a `Config`, or everything that is wrong. One file below
//! for each part; each adds its problems and goes on, so that all are told at once.

mod agents;
mod auth;
mod calls;
mod imports;
mod server;
mod state;
mod store;
mod tools;

use std::path::{Path as FilePath, PathBuf};

use toolhub::{
    Policy, Rule, RunLimits,
    clock::Timestamp,
    config::{ConfigEnv, Diagnostics},
    status::{FailureWindow, StatusSettings},
};

pub(crate) use agents::{Agent, Agents, Execution, Llm, Provider};
pub(crate) use auth::{ApiKey, Auth};
pub(crate) use server::Server;
pub(crate) use state::State;
pub(crate) use store::{Backend, OpenStoreError, Store, StoreHandle};
pub(crate) use tools::{Tool, Tools};

use super::{
    Config,
    environment::Environment,
    problem::{Problem, Problems},
    raw::{self, RawConfig},
    tree::{Node, Origin, Path},
};

/// How many calls run and wait at once, and how much one run may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheduler {
    pub(crate) max_concurrency: Option<usize>,
    pub(crate) max_queued_per_tool: usize,
    pub(crate) max_queued: usize,
    pub(crate) max_blocking_threads: usize,
    pub(crate) run_limits: RunLimits,
}

/// Live instances in threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Threads {
    pub(crate) instance_idle: std::time::Duration,
    pub(crate) instances_per_thread: usize,
    pub(crate) max_instances: usize,
}

/// Logs, metrics, and what is hidden in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Telemetry {
    pub(crate) format: raw::LogFormat,
    pub(crate) level: raw::Level,
    pub(crate) metrics: bool,
    pub(crate) redact: Vec<String>,
}

/// What holds for calls, by default, by name, and as rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Policies {
    pub(crate) defaults: Policy,
    /// Globs over names of tools, and what holds for them; the later weighs more.
    pub(crate) limits: Vec<(String, Policy)>,
    pub(crate) rules: Vec<Rule>,
}

/// Works out what holds.
///
/// `folder` is where relative paths begin that nobody wrote; `here` where those begin that were typed.
///
/// # Errors
/// Everything that is wrong, at once.
pub(crate) fn resolve(
    raw: &RawConfig,
    tree: &Node,
    folder: &FilePath,
    environment: &Environment,
    here: &FilePath,
) -> Result<Config, Problems> {
    let (ground, said) = (FileEnv { tree, folder, cwd: here, environment }, |path: &Path| tree.get(path).is_some());
    let mut desk = Diagnostics::new(&ground, &said);
    let (imported, mut words) = imports::resolve(&raw.imports, &mut desk);
    let tools = tools::resolve(&raw.tools, imported, &mut desk);
    let agents = agents::resolve(raw, &tools, &mut words, &mut desk);
    let config = Config {
        server: server::resolve(&raw.server, raw.auth.mode, &mut desk),
        auth: auth::resolve(&raw.auth, &mut desk),
        store: store::resolve(&raw.store, &mut desk),
        state: state::resolve(&raw.state, &raw.tools, &mut desk),
        status: resolve_status(&raw.status, &mut desk),
        scheduler: resolve_scheduler(&raw.scheduler),
        threads: Threads {
            instance_idle: raw.threads.instance_idle.0,
            instances_per_thread: to_usize(raw.threads.instances_per_thread),
            max_instances: to_usize(raw.threads.instances_in_all),
        },
        policies: calls::resolve(raw, &mut desk),
        tools,
        agents,
        warnings: words,
        telemetry: Telemetry {
            format: raw.telemetry.log.format,
            level: raw.telemetry.log.level,
            metrics: raw.telemetry.metrics,
            redact: raw.telemetry.redact.clone(),
        },
        restart_only: super::change::restart_only_keys(raw),
    };
    let problems: Vec<Problem> = desk.into_problems().into_iter().map(|problem| ground.locate(problem)).collect();
    if problems.is_empty() { Ok(config) } else { Err(Problems::new(problems)) }
}

/// What a config stands on: the files its keys were written in, and the variables.
struct FileEnv<'a> {
    tree: &'a Node,
    folder: &'a FilePath,
    cwd: &'a FilePath,
    environment: &'a Environment,
}

impl FileEnv<'_> {
    /// A problem, at the value it is about or where that would stand.
    fn locate(&self, problem: toolhub::config::Problem) -> Problem {
        let toolhub::config::Problem { key, message, help } = problem;
        let origin = match self.tree.get(&key) {
            Some(node) => &node.origin,
            None => &self.tree.nearest(&key).key_origin,
        };
        Problem::at(origin, &key, message).help(help)
    }
}

impl ConfigEnv for FileEnv<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).map(str::to_owned)
    }

    /// A path, relative to the file it stands in.
    fn resolve_path(&self, key: &Path, path: &str) -> PathBuf {
        let from = match self.tree.get(key).map(|node| &node.origin) {
            Some(Origin::File { source, .. }) => source.path.parent().unwrap_or(self.cwd),
            Some(Origin::Env { .. } | Origin::Flag(_)) => self.cwd,
            None => self.folder,
        };
        from.join(path.strip_prefix("./").unwrap_or(path))
    }

    fn unset_hint(&self, variable: &str) -> String {
        format!("set it before toolhub starts, or name it in the file of --env-file: {variable}=…")
    }
}

fn resolve_status(said: &raw::Status, desk: &mut Diagnostics<'_>) -> StatusSettings {
    let minute = std::time::Duration::from_secs(60);
    let failure_window = said.failure_rate.map(|failure_rate| FailureWindow {
        failure_rate,
        window: said.window.map_or(minute, |time| time.0),
        minimum_calls: said.minimum_calls.unwrap_or(10),
    });
    for key in ["window", "minimum_calls"] {
        let path = Path::of(["status", key]);
        if failure_window.is_none() && desk.is_set(&path) {
            desk.report(
                &path,
                format!("`{path}` does nothing without `failure_rate`"),
                "add `failure_rate = 0.5`, or remove it",
            );
        }
    }
    StatusSettings {
        enabled: said.enabled,
        failure_threshold: said.failure_threshold,
        failure_duration: said.failure_duration.0,
        auto_rebind: said.auto_rebind,
        rebind_delay: said.rebind_delay.0,
        longest: said.longest.0,
        failure_window,
        count_tool_errors: said.count_tool_errors,
    }
}

fn resolve_scheduler(said: &raw::Scheduler) -> Scheduler {
    Scheduler {
        max_concurrency: said.max_concurrency.map(to_usize),
        max_queued_per_tool: to_usize(said.queue_per_tool),
        max_queued: to_usize(said.queue_in_all),
        max_blocking_threads: to_usize(said.blocking_places),
        run_limits: RunLimits { same_call: said.run_same_call, calls: said.run_calls },
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A date, or a date and a time, as people write it.
pub(crate) fn parse_datetime(text: &str) -> Option<Timestamp> {
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.replacen(' ', "T", 1) };
    whole.parse().ok()
}
