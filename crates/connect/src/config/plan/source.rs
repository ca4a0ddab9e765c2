//! Determines what executes a tool: a builtin function, an HTTP request, a program, or an MCP server; or that nothing does yet.
//!
//! In: a `ToolConfig`. Out: one source, or problems: no source, several, or keys that do not apply to it.

use toolhub_core::{ToolBuilder, suggest};

#[cfg(feature = "mcp")]
use super::mcp_tool::{self, McpToolPlan};
use super::{
    command::{self, CommandPlan},
    rest::{self, RestPlan},
};
use crate::config::{
    Diagnostics, KeyPath, ToolFactory,
    factory::FunctionInfo,
    raw::{Kind, ToolConfig},
};

/// What executes a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    Function(FunctionInfo),
    Rest(Box<RestPlan>),
    Command(Box<CommandPlan>),
    #[cfg(feature = "mcp")]
    Mcp(Box<McpToolPlan>),
    /// A function of an older program that has no implementation here.
    Missing(MissingFunction),
}

/// A function of an older program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissingFunction {
    pub(super) path: String,
    pub(super) stateful: bool,
}

/// Keys that apply only to REST tools and to command tools.
const REST_KEYS: [&str; 17] = [
    "url",
    "base_url",
    "path",
    "method",
    "query",
    "headers",
    "body",
    "form",
    "auth",
    "result",
    "allow_hosts",
    "follow_redirects",
    "redirect_hosts",
    "session",
    "health_url",
    "ca_file",
    "connection",
];
const COMMAND_KEYS: [&str; 8] = ["command", "args", "env", "pass_env", "cwd", "max_output", "max_line", "grace"];

const MCP_KEYS: [&str; 3] = ["server", "server_url", "tool"];
/// The keys of an HTTP request that apply to the address of an MCP server too.
const SERVER_ADDRESS_KEYS: [&str; 5] = ["headers", "auth", "allow_hosts", "connection", "ca_file"];

/// Finds the source; `None` if it is missing or ambiguous.
pub(super) fn find(
    name: &str,
    config: &ToolConfig,
    at: &KeyPath,
    factory: &ToolFactory,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Source> {
    let (builtin, command) = (diagnostics.is_set(&at.key("builtin")), diagnostics.is_set(&at.key("command")));
    let address = ["url", "base_url"].iter().any(|key| diagnostics.is_set(&at.key(key)));
    let server = ["server", "server_url"].iter().any(|key| diagnostics.is_set(&at.key(key)));
    let by_kind = |kind| config.kind == Some(kind) && !builtin && !command && !address && !server;
    let (rest, mcp) = (address || by_kind(Kind::Rest), server || by_kind(Kind::Mcp));
    let source = match (builtin, rest, command, mcp) {
        (true, false, false, false) => "builtin",
        (false, true, false, false) => "REST tool",
        (false, false, true, false) => "command",
        (false, false, false, true) => "tool of an MCP server",
        (false, false, false, false) if config.function_path.is_some() => "function of an older program",
        (false, false, false, false) => {
            let name = if factory.describe_function(name).is_some() { name } else { "…" };
            let help = format!("add url = \"https://…\", or command = \"…\", or builtin = \"{name}\"");
            diagnostics.report(at, "the tool has no `url`, `command` or `builtin`", help);
            return None;
        }
        (_, _, _, false) => {
            let help = "keep one of `url`, `command` and `builtin`";
            diagnostics.report(at, "`url`, `command` and `builtin` exclude each other", help);
            return None;
        }
        (_, _, _, true) => {
            let help = "keep one of `server`, `server_url`, `url`, `command` and `builtin`";
            diagnostics.report(at, "an MCP server and `url`, `command` or `builtin` exclude each other", help);
            return None;
        }
    };
    let applies_to_address = |key: &&&str| mcp && SERVER_ADDRESS_KEYS.contains(*key);
    let inapplicable = REST_KEYS.iter().filter(|key| !rest && !applies_to_address(key));
    let inapplicable = inapplicable.chain(COMMAND_KEYS.iter().filter(|_| !command));
    for key in inapplicable.chain(MCP_KEYS.iter().filter(|_| !mcp)) {
        let path = at.key(key);
        if diagnostics.is_set(&path) {
            diagnostics.report(&path, format!("`{key}` does not apply to a {source}"), format!("remove `{key}`"));
        }
    }
    match source {
        "REST tool" => {
            check_kind(config.kind, &[Kind::Rest], "an HTTP request", at, diagnostics);
            Some(Source::Rest(Box::new(rest::resolve(&config.rest, at, diagnostics))))
        }
        "tool of an MCP server" => {
            check_kind(config.kind, &[Kind::Mcp], "a tool of an MCP server", at, diagnostics);
            #[cfg(feature = "mcp")]
            return mcp_tool::resolve(name, config, at, diagnostics).map(|plan| Source::Mcp(Box::new(plan)));
            #[cfg(not(feature = "mcp"))]
            {
                let help = "enable the feature `mcp` of toolhub";
                diagnostics.report(at, "this program was built without MCP servers", help);
                None
            }
        }
        "command" => {
            check_kind(config.kind, &[Kind::Stateless, Kind::Stateful], "a program", at, diagnostics);
            let stateful = config.kind == Some(Kind::Stateful);
            command::check_state(&config.state, at, diagnostics);
            Some(Source::Command(Box::new(command::resolve(&config.command, stateful, at, diagnostics))))
        }
        "function of an older program" => find_function_path(name, config, at, factory, diagnostics),
        _ => {
            let name = config.builtin.as_deref().unwrap_or_default();
            let Some(function) = factory.describe_function(name) else {
                report_unknown_function(name, at, factory, diagnostics);
                return None;
            };
            let kind = if function.stateful { Kind::Stateful } else { Kind::Stateless };
            check_kind(config.kind, &[kind], &format!("the builtin `{name}`"), at, diagnostics);
            Some(Source::Function(function))
        }
    }
}

/// The function of the application with the name of the tool, or a missing one.
fn find_function_path(
    name: &str,
    config: &ToolConfig,
    at: &KeyPath,
    factory: &ToolFactory,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Source> {
    let path = config.function_path.clone()?;
    let Some(function) = factory.describe_bound_function(name) else {
        check_kind(config.kind, &[Kind::Stateless, Kind::Stateful], "a function", at, diagnostics);
        return Some(Source::Missing(MissingFunction { path, stateful: config.kind == Some(Kind::Stateful) }));
    };
    let kind = if function.stateful { Kind::Stateful } else { Kind::Stateless };
    check_kind(config.kind, &[kind], &format!("the function `{name}`"), at, diagnostics);
    Some(Source::Function(function))
}

fn report_unknown_function(name: &str, at: &KeyPath, factory: &ToolFactory, diagnostics: &mut Diagnostics<'_>) {
    let close = suggest::closest(name, factory.function_names(), 1);
    let known: Vec<&str> = factory.function_names().collect();
    let help = match (close.first(), known.as_slice()) {
        (Some(close), _) => format!("did you mean {close:?}?"),
        (None, []) => "register it with `ToolFactory::function`, or use `url` or `command`".into(),
        (None, known) => format!("use one of: {}", known.join(", ")),
    };
    diagnostics.report(&at.key("builtin"), format!("there is no function named `{name}`"), help);
}

fn check_kind(kind: Option<Kind>, valid: &[Kind], source: &str, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) {
    if let Some(kind) = kind.filter(|kind| !valid.contains(kind)) {
        let names = valid.iter().map(|kind| kind_name(*kind)).collect::<Vec<_>>();
        let message = format!("{source} has kind {}, not {}", names.join(" or "), kind_name(kind));
        diagnostics.report(&at.key("kind"), message, format!("write kind = \"{}\", or omit it", names[0]));
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Stateless => "stateless",
        Kind::Stateful => "stateful",
        Kind::Rest => "rest",
        Kind::Mcp => "mcp",
    }
}

impl MissingFunction {
    /// A tool that is unavailable until the function has an implementation.
    pub(super) fn tool(&self, name: &str) -> ToolBuilder {
        let kind = if self.stateful { toolhub_core::Kind::Stateful } else { toolhub_core::Kind::Stateless };
        let tool = ToolBuilder::new(name, kind).unimplemented(self.path.as_str());
        if self.stateful { tool.json_state(name) } else { tool }
    }
}

impl Source {
    pub(super) fn is_stateful(&self) -> bool {
        match self {
            Self::Function(function) => function.stateful,
            Self::Command(command) => command.stateful,
            Self::Missing(function) => function.stateful,
            Self::Rest(_) => false,
            #[cfg(feature = "mcp")]
            Self::Mcp(_) => false,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        match self {
            Self::Function(function) => function.read_only,
            Self::Command(_) | Self::Missing(_) => false,
            Self::Rest(rest) => rest.is_read_only(),
            // Only the server can tell, and the owner.
            #[cfg(feature = "mcp")]
            Self::Mcp(_) => false,
        }
    }
}
