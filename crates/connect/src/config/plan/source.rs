//! What does the work of a tool: a function that the program brings, a request, or a program.
//!
//! In: what is written. Out: one of them, or what is wrong: nothing said, several, or keys that mean nothing to it.

use toolhub_core::suggest;

use super::{
    command::{self, Command},
    rest::{self, Rest},
};
use crate::config::{
    Desk, KeyPath, ToolFactory,
    factory::Function,
    written::{Kind, ToolConfig},
};

/// What does the work of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    Function(Function),
    Rest(Box<Rest>),
    Command(Box<Command>),
}

/// Keys of requests and of programs.
const OF_REST: [&str; 17] = [
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
const OF_COMMAND: [&str; 8] = ["command", "args", "env", "pass_env", "cwd", "max_output", "max_line", "grace"];

/// What does the work; `None` when that cannot be told.
pub(super) fn find(
    name: &str,
    said: &ToolConfig,
    at: &KeyPath,
    factory: &ToolFactory,
    desk: &mut Desk<'_>,
) -> Option<Source> {
    let (builtin, command) = (desk.said(&at.key("builtin")), desk.said(&at.key("command")));
    let address = ["url", "base_url"].iter().any(|key| desk.said(&at.key(key)));
    let rest = address || said.kind == Some(Kind::Rest) && !builtin && !command;
    let sort = match (builtin, rest, command) {
        (true, false, false) => "builtin",
        (false, true, false) => "REST tool",
        (false, false, true) => "command",
        (false, false, false) => {
            let name = if factory.look(name).is_some() { name } else { "…" };
            let help = format!("add url = \"https://…\", or command = \"…\", or builtin = \"{name}\"");
            desk.wrong(at, "nothing says what the tool does", help);
            return None;
        }
        _ => {
            let help = "keep one of `url`, `command` and `builtin`";
            desk.wrong(at, "a tool does one thing, and this one is told to do several", help);
            return None;
        }
    };
    let foreign = OF_REST.iter().filter(|_| sort != "REST tool").chain(OF_COMMAND.iter().filter(|_| sort != "command"));
    for key in foreign {
        let path = at.key(key);
        if desk.said(&path) {
            desk.wrong(&path, format!("`{key}` means nothing to a {sort}"), format!("remove `{key}`"));
        }
    }
    match sort {
        "REST tool" => {
            kind_is(said.kind, &[Kind::Rest], "a request", at, desk);
            Some(Source::Rest(Box::new(rest::resolve(&said.rest, at, desk))))
        }
        "command" => {
            kind_is(said.kind, &[Kind::Stateless, Kind::Stateful], "a program", at, desk);
            let stateful = said.kind == Some(Kind::Stateful);
            command::state(&said.state, at, desk);
            Some(Source::Command(Box::new(command::resolve(&said.command, stateful, at, desk))))
        }
        _ => {
            let name = said.builtin.as_deref().unwrap_or_default();
            let Some(function) = factory.look(name) else {
                unknown(name, at, factory, desk);
                return None;
            };
            let kind = if function.stateful { Kind::Stateful } else { Kind::Stateless };
            kind_is(said.kind, &[kind], &format!("the builtin `{name}`"), at, desk);
            Some(Source::Function(function))
        }
    }
}

fn unknown(name: &str, at: &KeyPath, factory: &ToolFactory, desk: &mut Desk<'_>) {
    let close = suggest::closest(name, factory.names(), 1);
    let known: Vec<&str> = factory.names().collect();
    let help = match (close.first(), known.as_slice()) {
        (Some(close), _) => format!("did you mean {close:?}?"),
        (None, []) => "give the factory such a function, or write `url` or `command`".into(),
        (None, known) => format!("use one of: {}", known.join(", ")),
    };
    desk.wrong(&at.key("builtin"), format!("there is no function named `{name}`"), help);
}

fn kind_is(said: Option<Kind>, right: &[Kind], who: &str, at: &KeyPath, desk: &mut Desk<'_>) {
    if let Some(kind) = said.filter(|kind| !right.contains(kind)) {
        let may_be = right.iter().map(|kind| word(*kind)).collect::<Vec<_>>();
        let message = format!("{who} is {}, not {}", may_be.join(" or "), word(kind));
        desk.wrong(&at.key("kind"), message, format!("write kind = \"{}\", or leave it out", may_be[0]));
    }
}

fn word(kind: Kind) -> &'static str {
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
