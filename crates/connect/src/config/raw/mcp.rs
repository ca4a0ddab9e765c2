//! Config keys of MCP servers.

use std::{collections::BTreeMap, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Annotations, CallSettings, Command, Connection, DependsOn, Rest, RestAuth};
use crate::{
    config::{PositiveDuration, SecretSource, Size, secret},
    mcp::Protocol,
};

/// The config of an MCP server. `command` makes it a program, `url` an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpServerConfig {
    /// Whether the server is started and its tools are offered.
    pub enabled: bool,
    /// How the server is reached. Default: determined by `command` and `url`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<McpTransport>,
    /// The program to run: a name to look up in PATH, or a path. No shell is involved. It speaks MCP on its stdin and stdout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program, passed verbatim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the program. It gets these, those of `pass_env`, and the few that programs need to start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "secret::deserialize_table")]
    pub env: BTreeMap<String, SecretSource>,
    /// Variables of toolhub's own environment to pass on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Working directory of the program. Default: the directory of the config file, or of the process if there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The address of the server, instead of `command`. It speaks streamable HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of the requests; their values are never printed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "secret::deserialize_table")]
    pub headers: BTreeMap<String, SecretSource>,
    /// Authentication of the requests.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "secret::deserialize_optional_table")]
    pub auth: Option<RestAuth>,
    /// Hosts that may be reached although their addresses are private or local, such as "127.0.0.1" or "mcp.internal:8080".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_hosts: Vec<String>,
    /// Connections to the address: how many are kept, and timeouts of connecting. The number, the timeout and the retries of calls
    /// are settings of the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "connection_schema")]
    pub connection: Option<Connection>,
    /// Prefix of the tools' names: `fs` makes `fs__read_file`. An empty one keeps the names. Default: the name of the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Globs over the server's tool names: only these are offered. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs over the server's tool names: these are not offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Whether to believe what the server says about the effects of its tools, and to run calls without approval.
    pub trust: bool,
    /// Globs over the names of tools that change nothing. A tool whose server denies it is not read-only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
    /// Globs over the names of tools that may be called again with the same arguments without a further effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idempotent: Vec<String>,
    /// Whether new and changed definitions of tools wait for approval. Default: true, unless the server is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,
    /// Which threads share a connection: all of a tenant, or none, so that each has a process or session of its own.
    pub instance: McpInstance,
    /// Which protocol the server is asked for.
    pub protocol: McpProtocol,
    /// How long the server may take to start and complete the handshake.
    pub startup_timeout: PositiveDuration,
    /// Maximum number of tools, and of the entries of each other list.
    #[schemars(range(min = 1))]
    pub max_tools: u32,
    /// Maximum size of one message of the server.
    pub max_message: Size,
    /// Whether its resources and resource templates are listed too, for MCP clients of the hub.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resources: bool,
    /// Whether its prompts are listed too, for MCP clients of the hub: `fs__summarize`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompts: bool,
    /// Passes requests of the server for a message of a model (sampling) on to callers that answer them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sampling: bool,
    /// Folders that the server may ask for: paths, or `file:` URIs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
    /// Settings of single tools, by their names at the server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, McpToolConfig>,
    /// Settings of the calls of all its tools. `cache` applies to those that are read-only.
    #[serde(flatten)]
    pub calls: CallSettings,
}

/// The keys of `connection` that do not apply to MCP servers, and the settings of calls that do. No request waits for another, which
/// may be a call that it answers; a response may take as long as its call; and whether a call is repeated is decided by its effect.
pub(in crate::config) const INAPPLICABLE_CONNECTION_KEYS: [(&str, &str); 8] = [
    ("max_overflow", "max_concurrency"),
    ("pool_timeout", "queue_timeout"),
    ("timeout", "timeout"),
    ("read_timeout", "idle_timeout"),
    ("retry_attempts", "retry"),
    ("retry_delay", "retry"),
    ("retry_backoff", "retry"),
    ("retry_jitter", "retry"),
];

fn connection_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Connection::json_schema(generator);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|key, _| INAPPLICABLE_CONNECTION_KEYS.iter().all(|(inapplicable, _)| key != inapplicable));
        if let Some(pool_size) = properties.get_mut("pool_size") {
            pool_size["description"] = "Number of idle connections that stay open.".into();
        }
    }
    schema
}

/// How an MCP server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// A `command`.
    Stdio,
    /// A `url` that speaks streamable HTTP.
    Http,
    /// HTTP+SSE, which is not supported: refused with the address to try instead.
    Sse,
}

/// Which threads share a connection to an MCP server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpInstance {
    /// All threads of a tenant.
    #[default]
    Shared,
    /// None: each has a process or session of its own, closed when it is idle or with its thread.
    PerThread,
}

/// Which protocol an MCP server is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpProtocol {
    /// The one that was found out before; otherwise the modern one, then the legacy one.
    #[default]
    Auto,
    /// Revisions up to 2025-11-25, which have sessions.
    Legacy,
    /// Revision 2026-07-28, which has none.
    Modern,
}

/// Settings of one tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpToolConfig {
    /// Whether the tool is offered.
    pub enabled: bool,
    /// What the tool does, for the model. Default: the server's description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tools that must have succeeded in a thread before this one may be called there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    /// Effects of a call. `read_only` and `idempotent` have no effect if the server denies them.
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
    /// The category it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Tags to filter by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Arbitrary metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// Settings of its calls.
    #[serde(flatten)]
    pub calls: CallSettings,
}

impl McpServerConfig {
    /// The keys of the program.
    pub(in crate::config) fn program(&self) -> Command {
        Command {
            command: self.command.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            pass_env: self.pass_env.clone(),
            cwd: self.cwd.clone(),
            ..Command::default()
        }
    }

    /// The keys of the address.
    pub(in crate::config) fn request(&self) -> Rest {
        Rest {
            url: self.url.clone(),
            headers: self.headers.clone(),
            auth: self.auth.clone(),
            allow_hosts: self.allow_hosts.clone(),
            connection: self.connection.clone(),
            ..Rest::default()
        }
    }
}

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            transport: None,
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            auth: None,
            allow_hosts: Vec::new(),
            connection: None,
            prefix: None,
            include: Vec::new(),
            exclude: Vec::new(),
            trust: false,
            read_only: Vec::new(),
            idempotent: Vec::new(),
            pin: None,
            instance: McpInstance::default(),
            protocol: McpProtocol::default(),
            startup_timeout: PositiveDuration(Duration::from_secs(60)),
            max_tools: 1_000,
            max_message: Size(16 << 20),
            resources: false,
            prompts: false,
            sampling: false,
            roots: Vec::new(),
            tools: BTreeMap::new(),
            calls: CallSettings::default(),
        }
    }
}

impl Default for McpToolConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            description: None,
            depends_on: None,
            annotations: Annotations::default(),
            category: None,
            tags: Vec::new(),
            metadata: BTreeMap::new(),
            calls: CallSettings::default(),
        }
    }
}

impl From<McpProtocol> for Protocol {
    fn from(protocol: McpProtocol) -> Self {
        match protocol {
            McpProtocol::Auto => Self::Auto,
            McpProtocol::Legacy => Self::Legacy,
            McpProtocol::Modern => Self::Modern,
        }
    }
}
