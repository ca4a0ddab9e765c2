//! What does the work of a tool: a builtin, a request, a program, or an operation of a document.
//!
//! In: what `[tools.NAME]` says. Out: one of them, or what is wrong: nothing said, several, or keys that mean nothing to it.

use super::super::{
    super::{
        raw::{self, Kind},
        tree::Path,
    },
    Desk,
    command::{self, Command},
    imports::Operation,
    rest::{self, Rest},
};
use crate::builtin;

/// What does the work of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    Builtin(String),
    Rest(Box<Rest>),
    Command(Box<Command>),
    Operation(Box<Operation>),
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
pub(super) fn source(said: &raw::Tool, at: &Path, desk: &mut Desk<'_>) -> Option<Source> {
    let (builtin, command) = (desk.said(&at.key("builtin")), desk.said(&at.key("command")));
    let address = ["url", "base_url"].iter().any(|key| desk.said(&at.key(key)));
    let rest = address || said.kind == Some(Kind::Rest) && !builtin && !command;
    let sort = match (builtin, rest, command) {
        (true, false, false) => "builtin",
        (false, true, false) => "REST tool",
        (false, false, true) => "command",
        (false, false, false) => {
            let name = Some(at.last_key()).filter(|name| builtin::find(name).is_some()).unwrap_or("…");
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
            rest::resolve(&said.rest, at, desk).map(|rest| Source::Rest(Box::new(rest)))
        }
        "command" => {
            kind_is(said.kind, &[Kind::Stateless, Kind::Stateful], "a program", at, desk);
            let stateful = said.kind == Some(Kind::Stateful);
            command::state(&said.state, at, desk);
            command::resolve(&said.command, stateful, at, desk).map(|found| Source::Command(Box::new(found)))
        }
        _ => {
            let name = said.builtin.as_ref().map(|builtin| builtin.0.clone())?;
            let builtin = builtin::find(&name)?;
            let kind = if builtin.is_stateful() { Kind::Stateful } else { Kind::Stateless };
            kind_is(said.kind, &[kind], &format!("the builtin `{name}`"), at, desk);
            Some(Source::Builtin(name))
        }
    }
}

fn kind_is(said: Option<Kind>, right: &[Kind], who: &str, at: &Path, desk: &mut Desk<'_>) {
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
            Self::Builtin(name) => builtin::find(name).is_some_and(builtin::Builtin::is_stateful),
            Self::Command(command) => command.stateful,
            Self::Rest(_) | Self::Operation(_) => false,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        match self {
            Self::Builtin(name) => builtin::find(name).is_some_and(builtin::Builtin::is_read_only),
            Self::Command(_) => false,
            Self::Rest(rest) => rest.is_read_only(),
            Self::Operation(operation) => operation.is_read_only(),
        }
    }
}
