//! What does the work of a tool: a function that the program brings, a request, or a program.
//!
//! In: what is written. Out: one of them, or what is wrong: nothing said, several, or keys that mean nothing to it.

use toolhub_core::suggest;

use super::{
    command::{self, CommandPlan},
    rest::{self, RestPlan},
};
use crate::config::{
    Diagnostics, KeyPath, ToolFactory,
    factory::FunctionInfo,
    raw::{Kind, ToolConfig},
};

/// What does the work of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    Function(FunctionInfo),
    Rest(Box<RestPlan>),
    Command(Box<CommandPlan>),
}

/// Keys of requests and of programs.
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

/// What does the work; `None` when that cannot be told.
pub(super) fn find(
    name: &str,
    said: &ToolConfig,
    at: &KeyPath,
    factory: &ToolFactory,
    desk: &mut Diagnostics<'_>,
) -> Option<Source> {
    let (builtin, command) = (desk.is_set(&at.key("builtin")), desk.is_set(&at.key("command")));
    let address = ["url", "base_url"].iter().any(|key| desk.is_set(&at.key(key)));
    let rest = address || said.kind == Some(Kind::Rest) && !builtin && !command;
    let sort = match (builtin, rest, command) {
        (true, false, false) => "builtin",
        (false, true, false) => "REST tool",
        (false, false, true) => "command",
        (false, false, false) => {
            let name = if factory.describe_function(name).is_some() { name } else { "…" };
            let help = format!("add url = \"https://…\", or command = \"…\", or builtin = \"{name}\"");
            desk.report(at, "nothing says what the tool does", help);
            return None;
        }
        _ => {
            let help = "keep one of `url`, `command` and `builtin`";
            desk.report(at, "a tool does one thing, and this one is told to do several", help);
            return None;
        }
    };
    let foreign =
        REST_KEYS.iter().filter(|_| sort != "REST tool").chain(COMMAND_KEYS.iter().filter(|_| sort != "command"));
    for key in foreign {
        let path = at.key(key);
        if desk.is_set(&path) {
            desk.report(&path, format!("`{key}` means nothing to a {sort}"), format!("remove `{key}`"));
        }
    }
    match sort {
        "REST tool" => {
            check_kind(said.kind, &[Kind::Rest], "a request", at, desk);
            Some(Source::Rest(Box::new(rest::resolve(&said.rest, at, desk))))
        }
        "command" => {
            check_kind(said.kind, &[Kind::Stateless, Kind::Stateful], "a program", at, desk);
            let stateful = said.kind == Some(Kind::Stateful);
            command::check_state(&said.state, at, desk);
            Some(Source::Command(Box::new(command::resolve(&said.command, stateful, at, desk))))
        }
        _ => {
            let name = said.builtin.as_deref().unwrap_or_default();
            let Some(function) = factory.describe_function(name) else {
                report_unknown_function(name, at, factory, desk);
                return None;
            };
            let kind = if function.stateful { Kind::Stateful } else { Kind::Stateless };
            check_kind(said.kind, &[kind], &format!("the builtin `{name}`"), at, desk);
            Some(Source::Function(function))
        }
    }
}

fn report_unknown_function(name: &str, at: &KeyPath, factory: &ToolFactory, desk: &mut Diagnostics<'_>) {
    let close = suggest::closest(name, factory.function_names(), 1);
    let known: Vec<&str> = factory.function_names().collect();
    let help = match (close.first(), known.as_slice()) {
        (Some(close), _) => format!("did you mean {close:?}?"),
        (None, []) => "give the factory such a function, or write `url` or `command`".into(),
        (None, known) => format!("use one of: {}", known.join(", ")),
    };
    desk.report(&at.key("builtin"), format!("there is no function named `{name}`"), help);
}

fn check_kind(said: Option<Kind>, right: &[Kind], who: &str, at: &KeyPath, desk: &mut Diagnostics<'_>) {
    if let Some(kind) = said.filter(|kind| !right.contains(kind)) {
        let may_be = right.iter().map(|kind| kind_name(*kind)).collect::<Vec<_>>();
        let message = format!("{who} is {}, not {}", may_be.join(" or "), kind_name(kind));
        desk.report(&at.key("kind"), message, format!("write kind = \"{}\", or leave it out", may_be[0]));
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Stateless => "stateless",
        Kind::Stateful => "stateful",
        Kind::Rest => "rest",
    }
}

impl Source {
    pub(super) fn is_stateful(&self) -> bool {
        match self {
            Self::Function(function) => function.stateful,
            Self::Command(command) => command.stateful,
            Self::Rest(_) => false,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        match self {
            Self::Function(function) => function.read_only,
            Self::Command(_) => false,
            Self::Rest(rest) => rest.is_read_only(),
        }
    }
}
