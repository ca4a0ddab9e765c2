//! Resolves the config of an MCP server.
//!
//! In: the raw keys. Out: plain values that can be compared, and the source of tools built from them. Nothing is started here: a
//! server that cannot be reached affects only its own tools.

use std::{collections::BTreeMap, path::PathBuf};

use toolhub_core::{Glob, Policy, ToolBuilder, ToolName};
use toolhub_net::Url;

use super::{
    ToolPlan,
    command::{self, CommandPlan},
    overrides::{self, Overrides},
    rest::{self, RestPlan},
    to_usize,
};
use crate::{
    command::Guard,
    config::{
        Diagnostics, KeyPath, Problem,
        raw::{Annotations, McpInstance, McpServerConfig, McpToolConfig, McpTransport},
    },
    mcp::{MAX_PREFIX, McpServer, McpServerError, McpSource},
};

/// The keys of programs and those of addresses.
const PROGRAM_KEYS: [&str; 5] = ["command", "args", "env", "pass_env", "cwd"];
const ADDRESS_KEYS: [&str; 5] = ["url", "headers", "auth", "allow_hosts", "connection"];

/// The resolved config of one MCP server, with its secrets fetched. Equal plans build equal sources.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServerPlan {
    raw: McpServerConfig,
    endpoint: Endpoint,
    policy: Policy,
    roots: Vec<String>,
    tools: BTreeMap<String, Overrides>,
    /// Tools of the config with names of their own, by name.
    named_tools: BTreeMap<String, ToolPlan>,
}

#[derive(Debug, Clone, PartialEq)]
enum Endpoint {
    Program(Box<CommandPlan>),
    Address(Box<RestPlan>),
}

impl McpServerConfig {
    /// Resolves the config of the server `name`. Problems are reported at keys below `at`; if there are any, the plan must not be
    /// used. `None` if it cannot be determined how the server is reached.
    pub fn plan(&self, name: &str, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<McpServerPlan> {
        check_names(name, self, at, diagnostics);
        let lists = [
            ("include", &self.include),
            ("exclude", &self.exclude),
            ("read_only", &self.read_only),
            ("idempotent", &self.idempotent),
        ];
        for (key, globs) in lists {
            for (index, error) in
                globs.iter().enumerate().filter_map(|(index, glob)| Some((index, Glob::new(glob.as_str()).err()?)))
            {
                diagnostics.report(&at.key(key).index(index), error, "remove it, or write a name such as \"read_*\"");
            }
        }
        let endpoint = endpoint(self, at, diagnostics);
        let roots = self.roots.iter().enumerate();
        let roots =
            roots.filter_map(|(index, root)| root_uri(root, &at.key("roots").index(index), diagnostics)).collect();
        let policy = self.calls.policy(at, diagnostics);
        if self.instance == McpInstance::PerThread {
            let of_tools = self.tools.keys().map(|tool| at.key("tools").key(tool));
            for key in std::iter::once(at.clone()).chain(of_tools).map(|section| section.key("cache")) {
                if diagnostics.is_set(&key) {
                    let help = "remove `cache`: a process or session of a thread may answer differently at any time";
                    diagnostics.report(&key, "results of a server with connections per thread cannot be cached", help);
                }
            }
        }
        let tools = self.tools.iter();
        let tools =
            tools.map(|(tool, raw)| (tool.clone(), tool_overrides(raw, &at.key("tools").key(tool), diagnostics)));
        let tools = tools.collect();
        Some(McpServerPlan {
            raw: self.clone(),
            endpoint: endpoint?,
            policy,
            roots,
            tools,
            named_tools: BTreeMap::new(),
        })
    }

    /// The prefix of the names of the tools of the server `name`.
    #[must_use]
    pub fn tool_prefix<'a>(&'a self, name: &'a str) -> &'a str {
        self.prefix.as_deref().unwrap_or(name)
    }

    /// Whether the server `name` may have a tool of this name, which is not known before it is connected.
    #[must_use]
    pub fn may_have_tool(&self, name: &str, tool: &str) -> bool {
        match self.tool_prefix(name) {
            "" => true,
            prefix => tool.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("__")),
        }
    }
}

fn check_names(name: &str, raw: &McpServerConfig, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) {
    if let Err(error) = ToolName::new(name) {
        diagnostics.report(at, error.describe("server name"), "rename the section: [mcp_servers.my_server]");
    }
    if let Some(prefix) = raw.prefix.as_deref().filter(|prefix| !prefix.is_empty())
        && let Err(error) = ToolName::new(prefix)
    {
        diagnostics.report(&at.key("prefix"), error.describe("prefix"), "use letters, digits, `_` and `-`");
    } else if raw.tool_prefix(name).len() > MAX_PREFIX {
        let at = if raw.prefix.is_some() { at.key("prefix") } else { at.clone() };
        let message = format!("`{}` is too long to begin the names of tools", raw.tool_prefix(name));
        diagnostics.report(&at, message, format!("set a `prefix` of at most {MAX_PREFIX} characters"));
    }
}

/// Determines how the server is reached; `None` if that is missing or ambiguous.
fn endpoint(raw: &McpServerConfig, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<Endpoint> {
    let is_sse = raw.transport == Some(McpTransport::Sse);
    if is_sse {
        report_http_sse(raw, at, diagnostics);
    }
    let (has_program, has_address) = (diagnostics.is_set(&at.key("command")), diagnostics.is_set(&at.key("url")));
    let is_program = match (has_program, has_address) {
        (true, false) => true,
        (false, true) => false,
        (true, true) => {
            diagnostics.report(at, "`command` and `url` exclude each other", "keep one of `command` and `url`");
            // For their problems.
            command::resolve(&raw.program(), false, at, diagnostics);
            address(raw, at, diagnostics);
            return None;
        }
        (false, false) if is_sse => return None,
        (false, false) => {
            let help = "add command = \"…\" for a program, or url = \"https://…\" for an address";
            diagnostics.report(at, "the server has neither `command` nor `url`", help);
            return None;
        }
    };
    let (kind, inapplicable, transport) = match is_program {
        true => ("program", ADDRESS_KEYS, McpTransport::Stdio),
        false => ("address", PROGRAM_KEYS, McpTransport::Http),
    };
    for key in inapplicable.iter().filter(|key| diagnostics.is_set(&at.key(key))).collect::<Vec<_>>() {
        let message =
            format!("`{key}` does not apply to a server that is a{} {kind}", if is_program { "" } else { "n" });
        diagnostics.report(&at.key(key), message, format!("remove `{key}`"));
    }
    if raw.transport.is_some_and(|written| written != transport && !is_sse) {
        let key = if is_program { "command" } else { "url" };
        diagnostics.report(&at.key("type"), format!("`type` contradicts `{key}`"), "remove `type`");
    }
    let endpoint = match is_program {
        true => Endpoint::Program(Box::new(command::resolve(&raw.program(), false, at, diagnostics))),
        false => Endpoint::Address(Box::new(address(raw, at, diagnostics))),
    };
    (!is_sse).then_some(endpoint)
}

/// Resolves an address. It is not called with arguments, so a placeholder is a mistake.
fn address(raw: &McpServerConfig, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> RestPlan {
    let plan = rest::resolve_server(&raw.request(), "url", at, diagnostics);
    check_arguments(&plan, at, diagnostics);
    plan
}

pub(super) fn check_arguments(plan: &RestPlan, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) {
    if let Some(name) = plan.request().arguments().first() {
        let message = format!("`{{{name}}}` stands for an argument of a call, and a server has none");
        diagnostics.report(at, message, "write the value, or `${VARIABLE}`");
    }
}

/// Reports a server whose `type` is HTTP+SSE. Without it, what an address speaks turns out when it is connected.
fn report_http_sse(raw: &McpServerConfig, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) {
    let help = match raw.url.as_deref().and_then(http_sse_address) {
        Some(instead) => format!("use its streamable HTTP address; try url = {instead:?}, without `type`"),
        None => "use its streamable HTTP address as `url`, without `type`; it often ends in /mcp".into(),
    };
    diagnostics.report(&at.key("type"), "servers that speak HTTP+SSE are not supported", help);
}

/// The streamable HTTP address to try instead of one that is probably for HTTP+SSE.
fn http_sse_address(url: &str) -> Option<String> {
    let mut instead = Url::parse(url).ok()?;
    let path = format!("{}/mcp", instead.path().trim_end_matches('/').strip_suffix("/sse")?);
    instead.set_path(&path);
    // Neither a password nor a key of the query is repeated.
    instead.set_query(None);
    let _ = (instead.set_username(""), instead.set_password(None));
    Some(instead.into())
}

/// A folder as a `file:` URI.
fn root_uri(root: &str, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<String> {
    if root.starts_with("file:") && Url::parse(root).is_ok() {
        return Some(root.to_owned());
    }
    let is_path = !root.is_empty() && !root.contains("://");
    let folder: Option<PathBuf> = is_path.then(|| diagnostics.resolve_path(at, root));
    let uri =
        folder.and_then(|folder| std::path::absolute(folder).ok()).and_then(|folder| Url::from_file_path(folder).ok());
    if uri.is_none() {
        diagnostics.report(
            at,
            format!("`{at}` is not a folder"),
            "write a path, or a URI such as \"file:///srv/files\"",
        );
    }
    uri.map(Into::into)
}

fn tool_overrides(raw: &McpToolConfig, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Overrides {
    if raw.calls.cache.is_some() && raw.annotations.read_only == Some(false) {
        let help = "remove `cache`: a cached result would skip the effect of the call";
        diagnostics.report(&at.key("cache"), "only results of read-only tools can be cached", help);
    }
    let Annotations { title, read_only, destructive, idempotent, open_world } = raw.annotations.clone();
    // The server may deny these two, so they are given to it as globs.
    let (read_only, idempotent) = (read_only.filter(|value| !value), idempotent.filter(|value| !value));
    Overrides {
        description: raw.description.clone(),
        depends_on: overrides::dependency_groups(raw.depends_on.as_ref(), at, diagnostics),
        annotations: Annotations { title, read_only, destructive, idempotent, open_world },
        category: raw.category.clone(),
        tags: raw.tags.clone(),
        version: None,
        metadata: raw.metadata.clone(),
        policy: raw.calls.policy(at, diagnostics),
    }
}

impl McpServerPlan {
    /// Whether the server is started.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.raw.enabled
    }

    /// Whether the tools of the server `name` and of another one begin with the same prefix.
    #[must_use]
    pub fn has_same_prefix(&self, name: &str, other: &Self, other_name: &str) -> bool {
        self.raw.tool_prefix(name) == other.raw.tool_prefix(other_name)
    }

    /// Whether the server `name` may have a tool of this name.
    #[must_use]
    pub fn may_have_tool(&self, name: &str, tool: &str) -> bool {
        self.raw.may_have_tool(name, tool)
    }

    /// Whether the other plan differs at most in the tools that were [added](Self::add_tool).
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        let Self { raw, endpoint, policy, roots, tools, named_tools: _ } = self;
        (raw, endpoint, policy, roots, tools)
            == (&other.raw, &other.endpoint, &other.policy, &other.roots, &other.tools)
    }

    /// Offers the tool of this plan, which names this server.
    pub fn add_tool(&mut self, name: &str, plan: ToolPlan) {
        self.named_tools.insert(name.to_owned(), plan);
    }

    /// Exempts hosts from the address guard, which refuses private and local addresses.
    pub fn allow_hosts(&mut self, hosts: &[String]) {
        if let Endpoint::Address(address) = &mut self.endpoint {
            address.allow_hosts(hosts);
        }
    }

    /// What keeps the server at `at` from being reached on this machine: a program or script that does not exist, or an address that
    /// requests may not reach. It may change while the hub runs, so a hub accepts such a server.
    #[must_use]
    pub fn obstacles(&self, at: &KeyPath) -> Vec<Problem> {
        match &self.endpoint {
            _ if !self.raw.enabled => Vec::new(),
            Endpoint::Program(program) => program.obstacles(at),
            Endpoint::Address(address) => address.obstacles(at),
        }
    }

    /// The source of its tools. A program runs under the guard, if there is one.
    ///
    /// # Errors
    /// When a setting is not valid, which a plan without problems rules out.
    pub fn source(&self, name: &str, guard: Option<&Guard>) -> Result<McpSource, McpServerError> {
        self.server(name, guard).source()
    }

    /// A source that declares the names of its tools, and never starts the server.
    ///
    /// # Errors
    /// As for [`source`](Self::source).
    pub fn disabled_source(&self, name: &str) -> Result<McpSource, McpServerError> {
        self.server(name, None).disabled().source()
    }

    fn server(&self, name: &str, guard: Option<&Guard>) -> McpServer {
        let raw = &self.raw;
        let mut server = match &self.endpoint {
            Endpoint::Program(program) => McpServer::from_command(name, program.command(guard)),
            Endpoint::Address(address) => McpServer::from_request(name, address.request()),
        };
        let tools_with = |test: fn(&McpToolConfig) -> bool| {
            raw.tools.iter().filter(move |(_, tool)| test(tool)).map(|(name, _)| name)
        };
        server = server
            .include(&raw.include)
            .exclude(raw.exclude.iter().chain(tools_with(|tool| !tool.enabled)))
            .read_only(raw.read_only.iter().chain(tools_with(|tool| tool.annotations.read_only == Some(true))))
            .idempotent(raw.idempotent.iter().chain(tools_with(|tool| tool.annotations.idempotent == Some(true))))
            .protocol(raw.protocol.into())
            .startup_timeout(raw.startup_timeout.0)
            .max_tools(to_usize(raw.max_tools))
            .max_message(usize::try_from(raw.max_message.0).unwrap_or(usize::MAX))
            .policy(self.policy.clone());
        if let Some(prefix) = &raw.prefix {
            server = server.prefix(prefix);
        }
        if raw.trust {
            server = server.trust();
        }
        if let Some(pin) = raw.pin {
            server = server.pin(pin);
        }
        if raw.instance == McpInstance::PerThread {
            server = server.per_thread();
        }
        if !raw.enabled {
            server = server.disabled();
        }
        if raw.resources {
            server = server.resources();
        }
        if raw.prompts {
            server = server.prompts();
        }
        if raw.sampling {
            server = server.sampling();
        }
        server = self.roots.iter().fold(server, McpServer::root);
        let server = self.tools.iter().fold(server, |server, (tool, overrides)| {
            let overrides = overrides.clone();
            server.tool(tool, move |tool| overrides.apply(deny_read_only(tool, &overrides.annotations)))
        });
        let named = self.named_tools.iter().filter_map(|(name, plan)| Some((name, plan.named_tool_settings()?)));
        named.fold(server, |server, (name, settings)| server.named_tool(name.clone(), settings))
    }
}

/// A tool that is not read-only after all may destroy something, unless the config says otherwise, and its results are not cached.
pub(super) fn deny_read_only(tool: ToolBuilder, annotations: &Annotations) -> ToolBuilder {
    if annotations.read_only != Some(false) {
        return tool;
    }
    let tool = tool.annotations(|own| {
        if own.read_only {
            (own.read_only, own.destructive, own.idempotent) = (false, true, false);
        }
    });
    tool.policy(|own| own.cache = None)
}
