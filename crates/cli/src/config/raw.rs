//! The config as written: one struct per section, one field per key.
//!
//! The schema is generated from these structs, their defaults and their doc comments, and `shape.rs` validates files against it; so
//! every field here is a key that exists, is documented and can be set. `resolve.rs` interprets the values.

mod agents;
mod alerts;
mod auth;
mod calls;
mod imports;
mod mcp_endpoint;
mod server;
mod state;
mod store;
mod telemetry;
mod tools;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub::config::{McpServerConfig, Size};

pub(crate) use agents::{Agent, DEMO_SCRIPT, Execution, Llm, Provider, Toolset};
pub(crate) use alerts::Alert;
pub(crate) use auth::{Auth, AuthMode, Scope};
pub(crate) use calls::{AnnotationFilter, Limit, Rule, RuleDecision};
pub(crate) use imports::{Credential, Imports, OpenApi};
pub(crate) use mcp_endpoint::McpEndpoint;
pub(crate) use server::Server;
pub(crate) use state::{Format, Manager, State};
pub(crate) use store::{Backend, ReadOnlyCalls, Redis, Retention, Store};
pub(crate) use telemetry::{LogFormat, LogLevel, Telemetry};
pub(crate) use tools::Tool;

use toolhub::config::{CallSettings, DurationOrZero, PositiveDuration};

/// The config of toolhub: `toolhub.toml`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawConfig {
    /// Where the server listens, and its limits for clients.
    pub(crate) server: Server,
    /// Authentication of clients.
    pub(crate) auth: Auth,
    /// Where records are stored, and for how long.
    pub(crate) store: Store,
    /// State of tools: where it is stored, its size limits, and how conflicting writes are resolved.
    pub(crate) state: State,
    /// When a failing tool is withheld, and when it recovers.
    pub(crate) status: Status,
    /// Limits on running and queued calls, and on the calls of one run.
    pub(crate) scheduler: Scheduler,
    /// Live instances of stateful tools in threads.
    pub(crate) threads: Threads,
    /// Default policy for the calls of every tool.
    pub(crate) defaults: CallSettings,
    /// Policy for the tools whose names match a glob. It overrides [defaults]; a tool's own settings override it. If several
    /// match, the later one wins.
    pub(crate) limits: Vec<Limit>,
    /// Rules that deny calls, require approval, or allow them. All `deny` rules are applied first, then `ask`, then `allow`; in
    /// file order within each.
    pub(crate) policy: Vec<Rule>,
    /// The tools, by name. Names consist of letters, digits, `_` and `-`.
    pub(crate) tools: BTreeMap<String, Tool>,
    /// The MCP servers whose tools are offered, by name. Names consist of letters, digits, `_` and `-`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mcp_servers: BTreeMap<String, McpServerConfig>,
    /// The address at which MCP clients reach the tools: `/mcp`, `/mcp/TOOLSET` and `/mcp/t/THREAD`.
    pub(crate) mcp_endpoint: McpEndpoint,
    /// Tools imported from other descriptions.
    pub(crate) imports: Imports,
    /// The model of the agents. Without this section there are no agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) llm: Option<Llm>,
    /// The agents, by name: letters, digits, `_` and `-`. A message that names no agent goes to `default`, which also exists if
    /// no agent is configured.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agents: BTreeMap<String, Agent>,
    /// Named sets of tools, for agents.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) toolsets: BTreeMap<String, Toolset>,
    /// Logs, metrics, and redaction.
    pub(crate) telemetry: Telemetry,
    /// Who is alerted of tools, servers, nodes and runs that need attention; docs/operate/alerts.md explains the conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) alerts: Vec<Alert>,
}

/// When a failing tool is withheld, and when it recovers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Status {
    /// Whether failures are counted. If not, a tool is only withheld by an operator.
    pub(crate) enabled: bool,
    /// Consecutive failures before the tool is withheld.
    #[schemars(range(min = 1))]
    pub(crate) failure_threshold: u32,
    /// How long a failed tool is withheld before one call probes it.
    pub(crate) failure_duration: PositiveDuration,
    /// Maximum time a tool is withheld. Each failed probe doubles the time up to this.
    pub(crate) max_failure_duration: PositiveDuration,
    /// Whether agents are offered a changed list of tools automatically. If not, the old list stays until a rebind is requested.
    pub(crate) auto_rebind: bool,
    /// How long changes of the list are collected before they are announced.
    pub(crate) rebind_delay: DurationOrZero,
    /// Whether refusals and 4xx responses of a tool count as failures.
    pub(crate) count_tool_errors: bool,
    /// Failure rate above which a tool is also withheld, from 0 to 1. Unset: only consecutive failures count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) failure_rate: Option<f64>,
    /// Time window of `failure_rate`. Default: "1m".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<PositiveDuration>,
    /// Minimum number of calls in the window before `failure_rate` applies. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) minimum_calls: Option<u32>,
}

impl Default for Status {
    fn default() -> Self {
        let defaults = toolhub::status::StatusSettings::default();
        Self {
            enabled: defaults.enabled,
            failure_threshold: defaults.failure_threshold,
            failure_duration: PositiveDuration(defaults.failure_duration),
            max_failure_duration: PositiveDuration(defaults.max_failure_duration),
            auto_rebind: defaults.auto_rebind,
            rebind_delay: DurationOrZero(defaults.rebind_delay),
            count_tool_errors: defaults.count_tool_errors,
            failure_rate: None,
            window: None,
            minimum_calls: None,
        }
    }
}

/// Limits on running and queued calls, and on the calls of one run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Scheduler {
    /// Maximum number of calls running concurrently on each node, over all tools. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_concurrency: Option<u32>,
    /// Maximum number of queued calls per tool; further calls fail with `overloaded`.
    pub(crate) max_queued_per_tool: u32,
    /// Maximum number of queued calls, over all tools.
    pub(crate) max_queued: u32,
    /// Maximum memory that large arguments of one tenant's calls take; further calls fail with `overloaded`.
    pub(crate) max_argument_memory: Size,
    /// Maximum number of threads for blocking functions.
    #[schemars(range(min = 1))]
    pub(crate) max_blocking_threads: u32,
    /// How often one run may repeat a call: the same tool with the same arguments. 0 for no limit.
    pub(crate) max_repeats_per_run: u32,
    /// Maximum number of calls in one run. 0 for no limit.
    pub(crate) max_calls_per_run: u32,
}

impl Default for Scheduler {
    fn default() -> Self {
        let defaults = toolhub::RunLimits::default();
        Self {
            max_concurrency: None,
            max_queued_per_tool: 1_000,
            max_queued: 10_000,
            max_argument_memory: Size(256 << 20),
            max_blocking_threads: 64,
            max_repeats_per_run: defaults.same_call,
            max_calls_per_run: defaults.calls,
        }
    }
}

/// Live instances of stateful tools in threads.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Threads {
    /// How long an unused instance is kept.
    pub(crate) instance_idle: PositiveDuration,
    /// Maximum number of instances per thread. The least recently used one is closed first, never one in use.
    #[schemars(range(min = 1))]
    pub(crate) instances_per_thread: u32,
    /// Maximum number of instances, over all threads.
    #[schemars(range(min = 1))]
    pub(crate) max_instances: u32,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            instance_idle: PositiveDuration(std::time::Duration::from_secs(30 * 60)),
            instances_per_thread: 32,
            max_instances: 10_000,
        }
    }
}
