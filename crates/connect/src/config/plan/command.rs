//! What holds for a tool that is a program.
//!
//! In: what is said. Out: plain values that can be compared, and the program made of them. Whether it is installed is found when it
//! is to run: one that is not costs its own tool, and no other.

use std::{collections::BTreeMap, path::PathBuf};

use toolhub_core::ToolBuilder;

use crate::{
    command::{self, Guard},
    config::{Diagnostics, KeyPath, SecretString, raw},
};

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandPlan {
    raw: raw::Command,
    program: PathBuf,
    env: BTreeMap<String, SecretString>,
    cwd: PathBuf,
    pub(super) stateful: bool,
}

/// Works out a program. What is wrong is told the desk, and nothing is made of it then.
pub(super) fn resolve(said: &raw::Command, stateful: bool, at: &KeyPath, desk: &mut Diagnostics<'_>) -> CommandPlan {
    let text = said.command.as_deref().unwrap_or_default();
    if text.trim().is_empty() {
        desk.report(&at.key("command"), "`command` is empty", "name a program: command = \"python3\"");
    }
    // A name is looked for in PATH; what has a slash is a path, and begins where the file is.
    let program = if text.contains('/') { desk.resolve_path(&at.key("command"), text) } else { text.into() };
    let mut env = BTreeMap::new();
    for (name, value) in &said.env {
        if let Some(text) = value.fetch(&at.key("env").key(name), desk) {
            env.insert(name.clone(), text);
        }
    }
    let named = said.env.keys().map(|name| (at.key("env").key(name), name));
    let passed = said.pass_env.iter().enumerate().map(|(place, name)| (at.key("pass_env").index(place), name));
    for (path, name) in named.chain(passed).filter(|(_, name)| !command::is_valid_env_name(name)) {
        let message = format!("`{}` cannot be the name of a variable", name.escape_debug());
        desk.report(&path, message, "use letters, digits and `_`");
    }
    let args = said.args.iter().enumerate().map(|(place, text)| (at.key("args").index(place), text.as_str()));
    let values = env.iter().map(|(name, value)| (at.key("env").key(name), value.reveal()));
    for (path, _) in args.chain(values).filter(|(_, text)| text.contains('\0')) {
        desk.report(&path, format!("`{path}` holds a NUL byte, which no program can be given"), "remove it");
    }
    let cwd = desk.resolve_path(&at.key("cwd"), said.cwd.as_deref().unwrap_or("."));
    CommandPlan { raw: said.clone(), program, env, cwd, stateful }
}

/// Looks at what a stateful program's state is to be called.
pub(super) fn check_state(said: &raw::ToolState, at: &KeyPath, desk: &mut Diagnostics<'_>) {
    let path = at.key("state").key("parameter_name");
    let Some(name) = said.parameter_name.as_deref() else { return };
    if said.inject == Some(false) {
        let help = "remove `parameter_name`, or `inject = false`; the program answers with `state`";
        desk.report(&path, "the state is not handed to the program, so it has no name there", help);
    } else if command::RESERVED_MEMBERS.contains(&name) {
        let message = format!("`{name}` means something else in requests and answers, so no state can be called that");
        desk.report(&path, message, "choose another name, or leave it out for \"state\"");
    }
}

impl CommandPlan {
    /// The tool; below a guard, where there is one.
    pub(super) fn tool(&self, name: &str, guard: Option<&Guard>) -> ToolBuilder {
        let said = &self.raw;
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
