//! `McpServer`: the settings of one server.
//!
//! In: settings in any order. Out: a source of tools, or what is wrong with the settings.

mod error;
mod single_tools;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use toolhub_core::{ConnectionStateConfig, Glob, Policy, ToolBuilder, ToolName};

pub use error::McpServerError;
pub(crate) use single_tools::NamedToolSettings;
pub(super) use single_tools::SingleTools;

use super::{
    connection::{Endpoint, Root},
    source::McpSource,
};
use crate::{
    command::{Command, Guard},
    rest::{Auth, Rest, Secret},
};

/// How long a server may take to start, unless its settings say otherwise.
pub(super) const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_MAX_TOOLS: usize = 1_000;
/// Longest prefix. Names of tools that are too long are shortened behind it.
pub(crate) const MAX_PREFIX: usize = 55;
const DEFAULT_MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Changes one tool of a server before it is registered.
pub(crate) type Refine = Arc<dyn Fn(ToolBuilder) -> ToolBuilder + Send + Sync>;

/// Which protocol a server is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The one that was found out before; otherwise the modern one, then the legacy one.
    #[default]
    Auto,
    /// Revisions up to 2025-11-25, which begin with `initialize`.
    Legacy,
    /// Revision 2026-07-28, which has no sessions.
    Modern,
}

/// An MCP server whose tools are offered by the hub.
///
/// ```
/// use std::time::Duration;
/// use toolhub_connect::mcp::McpServer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let files = McpServer::stdio("fs", "npx")
///     .args(["-y", "@modelcontextprotocol/server-filesystem", "/srv/files"])
///     .read_only(["read_*", "list_*"])
///     .tool("write_file", |tool| tool.confirm().timeout(Duration::from_secs(20)))
///     .source()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a server is not a source of tools yet: finish it with `source`"]
pub struct McpServer {
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) enabled: bool,
    pub(super) prefix: Option<String>,
    pub(super) include: Vec<String>,
    pub(super) exclude: Vec<String>,
    pub(super) trust: bool,
    pub(super) read_only: Vec<String>,
    pub(super) idempotent: Vec<String>,
    pub(super) pin: Option<bool>,
    pub(super) per_thread: bool,
    pub(super) protocol: Protocol,
    pub(super) startup_timeout: Duration,
    pub(super) max_tools: usize,
    pub(super) max_message: usize,
    pub(super) resources: bool,
    pub(super) prompts: bool,
    pub(super) sampling: bool,
    pub(super) roots: Vec<Root>,
    pub(super) policy: Policy,
    pub(super) refinements: BTreeMap<String, Refine>,
    /// Tools with names of their own, by these names.
    pub(super) named_tools: BTreeMap<String, NamedToolSettings>,
    /// Whether only these are offered.
    pub(super) only_named: bool,
}

impl McpServer {
    /// A server that is a program, which speaks on its stdin and stdout.
    pub fn stdio(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self::from_command(name, Command::new(program))
    }

    /// A server that is this program.
    pub fn from_command(name: impl Into<String>, command: Command) -> Self {
        Self::new(name.into(), Endpoint::Stdio(command))
    }

    /// A server at an address, which speaks streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::from_request(name, Rest::post(url))
    }

    /// A server at the address of this request, with its headers, credentials and connections. Its method and body are not used.
    pub fn from_request(name: impl Into<String>, request: Rest) -> Self {
        Self::new(name.into(), Endpoint::Http(Box::new(request)))
    }

    fn new(name: String, endpoint: Endpoint) -> Self {
        Self {
            name,
            endpoint,
            enabled: true,
            prefix: None,
            include: Vec::new(),
            exclude: Vec::new(),
            trust: false,
            read_only: Vec::new(),
            idempotent: Vec::new(),
            pin: None,
            per_thread: false,
            protocol: Protocol::Auto,
            startup_timeout: DEFAULT_STARTUP_TIMEOUT,
            max_tools: DEFAULT_MAX_TOOLS,
            max_message: DEFAULT_MAX_MESSAGE,
            resources: false,
            prompts: false,
            sampling: false,
            roots: Vec::new(),
            policy: Policy::default(),
            refinements: BTreeMap::new(),
            named_tools: BTreeMap::new(),
            only_named: false,
        }
    }

    /// Adds an argument of the program.
    pub fn arg(self, arg: impl Into<String>) -> Self {
        self.command(|command| command.arg(arg))
    }

    /// Adds arguments of the program.
    pub fn args<A: Into<String>>(self, args: impl IntoIterator<Item = A>) -> Self {
        self.command(|command| command.args(args))
    }

    /// Sets an environment variable of the program. The value is never printed.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.command(|command| command.env(name, value))
    }

    /// Passes on a variable of the hub's own environment.
    pub fn pass_env(self, name: impl Into<String>) -> Self {
        self.command(|command| command.pass_env(name))
    }

    /// Sets the working directory of the program.
    pub fn cwd(self, folder: impl Into<PathBuf>) -> Self {
        self.command(|command| command.cwd(folder))
    }

    /// Runs the program under a guard process, so that none of its descendants outlives the hub.
    pub fn guard(self, guard: Guard) -> Self {
        self.command(|command| command.guard(guard))
    }

    /// Changes the program; a server at an address stays as it is.
    fn command(mut self, change: impl FnOnce(Command) -> Command) -> Self {
        self.endpoint = match self.endpoint {
            Endpoint::Stdio(command) => Endpoint::Stdio(change(command)),
            other @ Endpoint::Http(_) => other,
        };
        self
    }

    /// Adds a header of the requests to the address. The value is never printed.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let value: String = value.into();
        self.request(|request| request.secret_header(name, Secret::literal(value)))
    }

    /// Sets the credentials for the address.
    pub fn auth(self, auth: Auth) -> Self {
        self.request(|request| request.auth(auth))
    }

    /// Allows an address that is private or local.
    pub fn allow_host(self, host: impl Into<String>) -> Self {
        self.request(|request| request.allow_host(host))
    }

    /// Sets the connections to the address.
    pub fn connection(self, config: ConnectionStateConfig) -> Self {
        self.request(|request| request.connection(config))
    }

    /// Changes the address; a server that is a program stays as it is.
    fn request(mut self, change: impl FnOnce(Rest) -> Rest) -> Self {
        self.endpoint = match self.endpoint {
            Endpoint::Http(request) => Endpoint::Http(Box::new(change(*request))),
            other @ Endpoint::Stdio(_) => other,
        };
        self
    }

    /// Does not start the server, and offers none of its tools.
    pub fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// The prefix of the names of its tools: `fs` makes `fs__read`. Default: the name of the server; an empty text keeps the names.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Offers only the tools whose names match one of these globs.
    pub fn include<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> Self {
        self.include.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Does not offer the tools whose names match one of these globs.
    pub fn exclude<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> Self {
        self.exclude.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Believes what the server says about the effects of its tools, and does not pin their definitions.
    pub fn trust(mut self) -> Self {
        self.trust = true;
        self
    }

    /// The tools that change nothing, as globs. A tool whose server denies it is not read-only.
    pub fn read_only<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> Self {
        self.read_only.extend(tools.into_iter().map(Into::into));
        self
    }

    /// The tools for which calling them twice does no more than calling them once, as globs.
    pub fn idempotent<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> Self {
        self.idempotent.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Whether changed and new definitions wait for the approval of a person. Default: unless the server is trusted.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = Some(pin);
        self
    }

    /// Gives each thread a connection of its own: a process, or a session of an address. It is made by the first call in the
    /// thread, shared by the tools of the server there, and closed when it is idle or with the thread. Default: all threads of a
    /// tenant share one.
    pub fn per_thread(mut self) -> Self {
        self.per_thread = true;
        self
    }

    /// Which protocol the server is asked for.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// How long the server may take to start and complete the handshake. Default: one minute.
    pub fn startup_timeout(mut self, time: Duration) -> Self {
        self.startup_timeout = time;
        self
    }

    /// Maximum number of its tools, and of the entries of each other list. Default: 1,000.
    pub fn max_tools(mut self, tools: usize) -> Self {
        self.max_tools = tools;
        self
    }

    /// Maximum size of one message of the server, in bytes. Default: 16 MiB.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// Lists its resources and resource templates too; see [`ToolHub::lists`](toolhub_core::ToolHub::lists).
    pub fn resources(mut self) -> Self {
        self.resources = true;
        self
    }

    /// Lists its prompts too, as `server__prompt`; see [`ToolHub::lists`](toolhub_core::ToolHub::lists).
    pub fn prompts(mut self) -> Self {
        self.prompts = true;
        self
    }

    /// Passes sampling requests of the server on to callers that answer them.
    pub fn sampling(mut self) -> Self {
        self.sampling = true;
        self
    }

    /// Adds a folder that the server may ask for, as a `file:` URI.
    pub fn root(mut self, uri: impl Into<String>) -> Self {
        self.roots.push(Root { uri: uri.into(), name: None });
        self
    }

    /// The policy of the calls of all its tools.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Changes one tool, by its name at the server, before it is registered. A tool whose server denies that it is read-only, or
    /// idempotent, does not become so.
    pub fn tool(
        mut self,
        name: impl Into<String>,
        change: impl Fn(ToolBuilder) -> ToolBuilder + Send + Sync + 'static,
    ) -> Self {
        self.refinements.insert(name.into(), Arc::new(change));
        self
    }

    /// The source of its tools, for [`HubBuilder::source`](toolhub_core::HubBuilder::source).
    ///
    /// # Errors
    /// When a setting is not valid.
    pub fn source(self) -> Result<McpSource, McpServerError> {
        McpSource::new(self)
    }

    /// Whether changed and new definitions wait for approval.
    pub(super) fn is_pinned(&self) -> bool {
        self.pin.unwrap_or(!self.trust)
    }

    pub(super) fn tool_prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or(&self.name)
    }

    /// The names that its tools can have, apart from those with names of their own.
    pub(super) fn listed_names(&self) -> Option<Glob> {
        let pattern = match self.tool_prefix() {
            "" => "*".into(),
            prefix => format!("{prefix}__*"),
        };
        Glob::new(pattern).ok().filter(|_| !self.only_named)
    }

    /// Checks the name.
    pub(super) fn check_name(&self) -> Result<(), McpServerError> {
        let is_valid = ToolName::new(self.name.as_str()).is_ok();
        let prefix = self.tool_prefix();
        if !is_valid {
            return Err(McpServerError::Name(self.name.clone()));
        }
        if prefix.len() > MAX_PREFIX {
            return Err(McpServerError::Prefix(prefix.into()));
        }
        match prefix.is_empty() || ToolName::new(prefix).is_ok() {
            true => Ok(()),
            false => Err(McpServerError::Name(prefix.into())),
        }
    }

    /// Checks the settings of the program or the address that do not depend on the machine.
    pub(super) fn check_endpoint(&self) -> Result<(), McpServerError> {
        match &self.endpoint {
            Endpoint::Stdio(command) => Ok(command.check_settings()?),
            Endpoint::Http(request) => {
                request.problems().into_iter().next().map_or(Ok(()), |problem| Err(problem.into()))
            }
        }
    }

    /// The globs of a setting.
    pub(super) fn globs(&self, setting: &'static str, texts: &[String]) -> Result<Vec<Glob>, McpServerError> {
        let globs = texts.iter().map(|text| Glob::new(text.as_str())).collect::<Result<_, _>>();
        globs.map_err(|reason| McpServerError::Pattern { server: self.name.clone(), setting, reason })
    }
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("name", &self.name).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
