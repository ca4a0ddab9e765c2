//! What holds for a tool that is a program.
//!
//! In: what is said. Out: plain values that can be compared, and the program made of them. Whether it is installed is found when it
//! is to run: one that is not costs its own tool, and no other.

use std::{collections::BTreeMap, path::PathBuf};

use toolhub_core::ToolBuilder;

use crate::{
    command::{self, Guard},
    config::{Desk, Hidden, KeyPath, written},
};

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    said: written::Command,
    program: PathBuf,
    env: BTreeMap<String, Hidden>,
    cwd: PathBuf,
    pub(super) stateful: bool,
}

/// Works out a program. What is wrong is told the desk, and nothing is made of it then.
pub(super) fn resolve(said: &written::Command, stateful: bool, at: &KeyPath, desk: &mut Desk<'_>) -> Command {
    let text = said.command.as_deref().unwrap_or_default();
    if text.trim().is_empty() {
        desk.wrong(&at.key("command"), "`command` is empty", "name a program: command = \"python3\"");
    }
    // A name is looked for in PATH; what has a slash is a path, and begins where the file is.
    let program = if text.contains('/') { desk.file(&at.key("command"), text) } else { text.into() };
    let mut env = BTreeMap::new();
    for (name, value) in &said.env {
        if let Some(text) = value.fetch(&at.key("env").key(name), desk) {
            env.insert(name.clone(), text);
        }
    }
    let named = said.env.keys().map(|name| (at.key("env").key(name), name));
    let passed = said.pass_env.iter().enumerate().map(|(place, name)| (at.key("pass_env").place(place), name));
    for (path, name) in named.chain(passed).filter(|(_, name)| !command::is_variable(name)) {
        let message = format!("`{}` cannot be the name of a variable", name.escape_debug());
        desk.wrong(&path, message, "use letters, digits and `_`");
    }
    let args = said.args.iter().enumerate().map(|(place, text)| (at.key("args").place(place), text.as_str()));
    let values = env.iter().map(|(name, value)| (at.key("env").key(name), value.reveal()));
    for (path, _) in args.chain(values).filter(|(_, text)| text.contains('\0')) {
        desk.wrong(&path, format!("`{path}` holds a NUL byte, which no program can be given"), "remove it");
    }
    let cwd = desk.file(&at.key("cwd"), said.cwd.as_deref().unwrap_or("."));
    Command { said: said.clone(), program, env, cwd, stateful }
}

/// Looks at what a stateful program's state is to be called.
pub(super) fn state(said: &written::ToolState, at: &KeyPath, desk: &mut Desk<'_>) {
    let path = at.key("state").key("parameter_name");
    let Some(name) = said.parameter_name.as_deref() else { return };
    if said.inject == Some(false) {
        let help = "remove `parameter_name`, or `inject = false`; the program answers with `state`";
        desk.wrong(&path, "the state is not handed to the program, so it has no name there", help);
    } else if command::TAKEN.contains(&name) {
        let message = format!("`{name}` means something else in requests and answers, so no state can be called that");
        desk.wrong(&path, message, "choose another name, or leave it out for \"state\"");
    }
}

impl Command {
    /// The tool; below a guard, where there is one.
    pub(super) fn tool(&self, name: &str, guard: Option<&Guard>) -> ToolBuilder {
        let said = &self.said;
        let mut command = command::Command::new(&self.program).args(said.args.iter().cloned());
        for (name, value) in &self.env {
            command = command.env(name, value.reveal());
        }
        command = said.pass_env.iter().fold(command, command::Command::pass_env);
        if !self.cwd.as_os_str().is_empty() {
            command = command.cwd(&self.cwd);
        }
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        if let Some(size) = said.max_output {
            command = command.max_output(bytes(size.0));
        }
        if let Some(size) = said.max_line {
            command = command.max_line(bytes(size.0));
        }
        if let Some(time) = said.grace {
            command = command.grace(time.0);
        }
        if let Some(guard) = guard {
            command = command.guard(guard.clone());
        }
        if self.stateful { command.stateful_tool(name) } else { command.tool(name) }
    }
}
