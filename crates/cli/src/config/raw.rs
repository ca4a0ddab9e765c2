//! The config as it is written: one struct for each section, one field for each key.
//!
//! In: nothing; these are shapes. The schema is made from them, their defaults and their comments, and `shape.rs` holds
//! files to the schema; so a key that is here is a key that exists, is documented and can be set. What a value means is
//! worked out in `resolve.rs`.

mod agents;
mod auth;
mod calls;
mod imports;
mod server;
mod state;
mod store;
mod telemetry;
mod tools;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use agents::{Agent, DEMO_SCRIPT, Execution, Llm, Provider, Toolset};
pub(crate) use auth::{Auth, Mode, Scope};
pub(crate) use calls::{Decided, Limit, Matching, Rule};
pub(crate) use imports::{Credential, Imports, OpenApi};
pub(crate) use server::Server;
pub(crate) use state::{Format, Manager, State};
pub(crate) use store::{Backend, Retention, Store};
pub(crate) use telemetry::{Level, LogFormat, SECRET_NAME_GLOBS, Telemetry};
pub(crate) use tools::Tool;

use toolhub::config::{Calls, Delay, Time};

/// The config of toolhub: `toolhub.toml`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawConfig {
    /// How the server listens, and what it takes from clients.
    pub(crate) server: Server,
    /// Who may use the server.
    pub(crate) auth: Auth,
    /// Where records are kept, and for how long.
    pub(crate) store: Store,
    /// What tools remember: where, how much, and who wins when two write.
    pub(crate) state: State,
    /// When a failing tool is withheld, and when it comes back.
    pub(crate) status: Status,
    /// How many calls run and wait at once, and how much one run may call.
    pub(crate) scheduler: Scheduler,
    /// Live instances in threads.
    pub(crate) threads: Threads,
    /// What holds for the calls of every tool of which nothing else is said.
    pub(crate) defaults: Calls,
    /// What holds for the tools whose names fit a glob. It weighs more than [defaults] and less than what a tool says itself;
    /// of two that fit, the later one weighs more.
    pub(crate) limits: Vec<Limit>,
    /// Which calls are denied, which ask a person, which are allowed. All that deny come first, then those that ask, then
    /// those that allow; in the order of the file inside each.
    pub(crate) policy: Vec<Rule>,
    /// The tools, by name: letters, digits, `_` and `-`.
    pub(crate) tools: BTreeMap<String, Tool>,
    /// Tools that are described elsewhere.
    pub(crate) imports: Imports,
    /// The model that agents ask. Without this section there are no agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) llm: Option<Llm>,
    /// The agents, by name: letters, digits, `_` and `-`. A message that names none is for `default`, which there is too where no
    /// agent is written down.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agents: BTreeMap<String, Agent>,
    /// Tools under one name, for agents.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) toolsets: BTreeMap<String, Toolset>,
    /// Logs, metrics, and what is hidden in them.
    pub(crate) telemetry: Telemetry,
}

/// When a failing tool is withheld, and when it comes back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Status {
    /// Whether failures are counted at all. If not, only an operator's word withholds a tool.
    pub(crate) enabled: bool,
    /// How many failures in a row make a tool failed.
    #[schemars(range(min = 1))]
    pub(crate) failure_threshold: u32,
    /// How long a failed tool is withheld before one call tries it again.
    pub(crate) failure_duration: Time,
    /// The longest it is withheld after tries that failed: each doubles the time.
    pub(crate) longest: Time,
    /// Whether a changed list of tools is offered by itself. If not, the old one stays until somebody asks.
    pub(crate) auto_rebind: bool,
    /// How long changes of the list are gathered before they are told.
    pub(crate) rebind_delay: Delay,
    /// Whether a tool that answers "no" counts as failing.
    pub(crate) count_tool_errors: bool,
    /// Withholds a tool by the share of its failures too, where this is set: from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) failure_rate: Option<f64>,
    /// How far back calls are looked at for `failure_rate`; "1m" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<Time>,
    /// How many calls there must be before their `failure_rate` means anything; 10 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) minimum_calls: Option<u32>,
}

impl Default for Status {
    fn default() -> Self {
        let usual = toolhub::status::StatusSettings::default();
        Self {
            enabled: usual.enabled,
            failure_threshold: usual.failure_threshold,
            failure_duration: Time(usual.failure_duration),
            longest: Time(usual.longest),
            auto_rebind: usual.auto_rebind,
            rebind_delay: Delay(usual.rebind_delay),
            count_tool_errors: usual.count_tool_errors,
            failure_rate: None,
            window: None,
            minimum_calls: None,
        }
    }
}

/// How many calls run and wait at once, and how much one run may call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Scheduler {
    /// How many calls may run at once, of all tools together; no limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_concurrency: Option<u32>,
    /// How many calls of one tool may wait for their turn; one more is `overloaded`.
    pub(crate) queue_per_tool: u32,
    /// How many calls may wait in all.
    pub(crate) queue_in_all: u32,
    /// How many functions that block may run at once.
    #[schemars(range(min = 1))]
    pub(crate) blocking_places: u32,
    /// How often one run may make the same call: the same tool with the same arguments. 0 for no limit.
    pub(crate) run_same_call: u32,
    /// How many calls one run may make. 0 for no limit.
    pub(crate) run_calls: u32,
}

impl Default for Scheduler {
    fn default() -> Self {
        let usual = toolhub::RunLimits::default();
        Self {
            max_concurrency: None,
            queue_per_tool: 1_000,
            queue_in_all: 10_000,
            blocking_places: 64,
            run_same_call: usual.same_call,
            run_calls: usual.calls,
        }
    }
}

/// Live instances in threads.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Threads {
    /// How long a live instance is kept while nobody uses it.
    pub(crate) instance_idle: Time,
    /// How many instances one thread keeps; the least recently used goes first, never one in use.
    #[schemars(range(min = 1))]
    pub(crate) instances_per_thread: u32,
    /// How many instances are kept in all.
    #[schemars(range(min = 1))]
    pub(crate) instances_in_all: u32,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            instance_idle: Time(std::time::Duration::from_secs(30 * 60)),
            instances_per_thread: 32,
            instances_in_all: 10_000,
        }
    }
}
