//! Settings of a server.
//!
//! In: values from a config or from code. Out: the same values, for the modules that apply them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::json::JsonLimits;

use crate::scope::Scope;

/// Default of `Limits::held_bytes`.
const MAX_HELD_BYTES: usize = 256 << 20;

/// All settings of a server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Host name or IP address to listen on; loopback by default.
    pub host: String,
    /// Port to listen on; 0 lets the system choose.
    pub port: u16,
    /// Public base URL for links in responses; built from host and port if absent.
    pub public_url: Option<String>,
    /// Accepted values of the `Host` header, without port. Other hosts are refused, which prevents DNS rebinding.
    pub allowed_hosts: Vec<String>,
    /// Who is authenticated, and how.
    pub auth: Auth,
    /// Limits on requests and connections.
    pub limits: Limits,
    /// The MCP endpoint.
    pub mcp: McpSettings,
    /// Time between the shutdown request and the drain. Meanwhile `/readyz` already fails and requests are still
    /// served, so that load balancers can take the server out. Zero by default.
    pub shutdown_notice: Duration,
    /// How long running requests and calls may continue after that.
    pub drain_timeout: Duration,
    /// Whether connections are closed after that time before their calls are cancelled. A client that goes on with another server
    /// then knows that a call was interrupted, and does not get `cancelled` for one that it did not cancel. False by default.
    pub close_before_cancel: bool,
    /// Whether `/metrics` is served.
    pub metrics: bool,
    /// How long entries of the audit log are kept, including those of refused requests.
    pub audit_retention: Duration,
    /// Whether the dashboard is served.
    pub ui: bool,
    /// Version information, shown by the API.
    pub build: BuildInfo,
}

/// Settings of the MCP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpSettings {
    /// Whether it is served.
    pub enabled: bool,
    /// The toolset of `/mcp`; all tools if absent.
    pub toolset: Option<String>,
    /// How the tools are shown, unless the address says it.
    pub mode: McpMode,
    /// What happens to a call that needs approval.
    pub approval: McpApproval,
    /// After this time a call of a client that declared tasks becomes one.
    pub task_after: Duration,
    /// How long a session may be unused before it is unloaded, and may make room for a new one.
    pub session_idle: Duration,
    /// Largest number of sessions.
    pub max_sessions: usize,
    /// Largest number of sessions of one caller.
    pub max_sessions_per_caller: usize,
}

/// How tools are shown to MCP clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpMode {
    /// All of them are listed.
    #[default]
    List,
    /// `search_tools`, `describe_tool` and `call_tool` are listed, for hubs with more tools than a model can read.
    Search,
}

/// What happens to the call of an MCP client that needs approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpApproval {
    /// The user of the client decides in a form, if the client shows forms and its key has the scope `approvals:write`; otherwise
    /// as `link`.
    #[default]
    Elicit,
    /// The answer names the approval, and its page to the user. The same call made again uses the decision.
    Link,
    /// It is refused.
    Deny,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            toolset: None,
            mode: McpMode::default(),
            approval: McpApproval::default(),
            task_after: Duration::from_secs(5),
            session_idle: Duration::from_secs(5 * 60),
            max_sessions: 10_000,
            max_sessions_per_caller: 100,
        }
    }
}

/// Version information of the host program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// The version of the program.
    pub version: String,
    /// The revision of its sources.
    pub revision: String,
    /// The version of the compiler.
    pub rustc: String,
}

/// How requests are authenticated.
#[derive(Debug, Clone, PartialEq)]
pub enum Auth {
    /// Every client on the loopback address has full access.
    Local,
    /// A key is required: one of these, or one created through the API.
    Keys(Vec<KeySetting>),
}

/// A key in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetting {
    /// Its name; limits, rules and records identify its holder by it.
    pub name: String,
    /// The tenant whose threads it can access.
    pub tenant: String,
    /// `sha256:` and the SHA-256 digest of the key in hexadecimal. The key itself is never stored.
    pub hash: String,
    /// What it permits.
    pub scopes: Vec<Scope>,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires: Option<i64>,
}

/// Limits on requests and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body, in bytes.
    pub body: usize,
    /// Largest size of all headers together, in bytes.
    pub headers: usize,
    /// Deepest nesting of a JSON body.
    pub json_depth: usize,
    /// Largest number of values in a JSON body: objects, lists and scalars, at any depth.
    pub json_values: usize,
    /// How long the headers of a request may take to arrive.
    pub header_timeout: Duration,
    /// How long a request body may take to arrive, and how long a client may leave a response unread.
    pub body_timeout: Duration,
    /// How long a connection without requests stays open.
    pub idle_timeout: Duration,
    /// Largest number of open connections, and of event streams. Beyond it, connections are closed to make room: idle ones
    /// first, and those of a client that holds more than a quarter. Also the largest number of requests being executed,
    /// less an eighth that is reserved.
    pub connections: usize,
    /// Largest number of bytes held for all clients together: answers that are not read yet, and bodies being received.
    /// Beyond it, connections of the client with the most are closed.
    pub held_bytes: usize,
}

impl Settings {
    /// The path of `public_url`, which a proxy in front of this server removes; empty without one.
    pub(crate) fn base_path(&self) -> &str {
        let public = self.public_url.as_deref().map(|url| url.trim_end_matches('/'));
        let authority = public.and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
        authority.and_then(|rest| rest.find('/').map(|slash| &rest[slash..])).unwrap_or_default()
    }
}

impl Limits {
    /// The limits on a JSON body.
    pub(crate) fn json(&self) -> JsonLimits {
        JsonLimits { values: self.json_values, depth: self.json_depth }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8665,
            public_url: None,
            allowed_hosts: ["127.0.0.1", "localhost", "[::1]"].map(String::from).into(),
            auth: Auth::Local,
            limits: Limits::default(),
            mcp: McpSettings::default(),
            shutdown_notice: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            close_before_cancel: false,
            metrics: true,
            audit_retention: Duration::from_secs(90 * 86_400),
            ui: true,
            build: BuildInfo::default(),
        }
    }
}

impl Default for BuildInfo {
    fn default() -> Self {
        let unknown = || "unknown".to_owned();
        Self { version: env!("CARGO_PKG_VERSION").into(), revision: unknown(), rustc: unknown() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 20,
            headers: 16 << 10,
            json_depth: 64,
            json_values: JsonLimits::MAX_VALUES,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            connections: 4096,
            held_bytes: MAX_HELD_BYTES,
        }
    }
}
