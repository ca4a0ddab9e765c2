//! Resolves the config of a command tool.
//!
//! In: the raw keys. Out: plain values that can be compared, and the `Command` built from them. Whether the program is installed is
//! checked when it is to run, so that a missing program affects only its own tool.

use std::{collections::BTreeMap, path::PathBuf};

use toolhub_core::ToolBuilder;
use toolhub_net::SecretText;

use crate::{
    command::{self, CommandError, Guard},
    config::{Diagnostics, KeyPath, Problem, raw},
};

/// The resolved config of a command tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandPlan {
    raw: raw::Command,
    program: PathBuf,
    env: BTreeMap<String, SecretText>,
    cwd: PathBuf,
    secret_texts: Vec<SecretText>,
    pub(super) stateful: bool,
}

/// Resolves a command. Reports problems; the plan must not be used then.
pub(super) fn resolve(
    raw: &raw::Command,
    stateful: bool,
    at: &KeyPath,
    diagnostics: &mut Diagnostics<'_>,
) -> CommandPlan {
    let text = raw.command.as_deref().unwrap_or_default();
    if text.trim().is_empty() {
        diagnostics.report(&at.key("command"), "`command` is empty", "name a program: command = \"python3\"");
    }
    // A name is looked up in PATH; a text with a slash is a path, relative to the config file.
    let program = if text.contains('/') { diagnostics.resolve_path(&at.key("command"), text) } else { text.into() };
    let mut env = BTreeMap::new();
    for (name, value) in &raw.env {
        if let Some(text) = value.fetch(&at.key("env").key(name), diagnostics) {
            env.insert(name.clone(), text);
        }
    }
    let named = raw.env.keys().map(|name| (at.key("env").key(name), name));
    let passed = raw.pass_env.iter().enumerate().map(|(index, name)| (at.key("pass_env").index(index), name));
    for (path, name) in named.chain(passed).filter(|(_, name)| !command::is_valid_env_name(name)) {
        let message = format!("`{}` is not a valid variable name", name.escape_debug());
        diagnostics.report(&path, message, "use letters, digits and `_`");
    }
    let args = raw.args.iter().enumerate().map(|(index, text)| (at.key("args").index(index), text.as_str()));
    let values = env.iter().map(|(name, value)| (at.key("env").key(name), value.reveal()));
    for (path, _) in args.chain(values).filter(|(_, text)| text.contains('\0')) {
        diagnostics.report(
            &path,
            format!("`{path}` contains a NUL byte, which cannot be passed to a program"),
            "remove it",
        );
    }
    let cwd = diagnostics.resolve_path(&at.key("cwd"), raw.cwd.as_deref().unwrap_or("."));
    let secret_texts = diagnostics.env().secret_texts(at);
    CommandPlan { raw: raw.clone(), program, env, cwd, secret_texts, stateful }
}

/// Checks the state settings of a program.
pub(super) fn check_state(state: &raw::ToolState, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) {
    if state.auto_save.is_some() {
        let message = "`auto_save` has no effect for a program, because a state that it returns is saved";
        diagnostics.report(
            &at.key("state").key("auto_save"),
            message,
            "remove it; a reply without a state leaves it unchanged",
        );
    }
    let path = at.key("state").key("parameter_name");
    let Some(name) = state.parameter_name.as_deref() else { return };
    if state.inject == Some(false) {
        let help = "remove `parameter_name` or `inject = false`; the program returns its state as `state`";
        diagnostics.report(&path, "`parameter_name` has no effect with `inject = false`", help);
    } else if command::RESERVED_MEMBERS.contains(&name) {
        let message = format!("`{name}` is reserved in the program protocol, so it cannot name the state");
        diagnostics.report(&path, message, "choose another name, or omit it to use \"state\"");
    }
}

impl CommandPlan {
    /// What makes every call fail on this machine: a program, script or directory that does not exist.
    pub(super) fn obstacles(&self, at: &KeyPath) -> Vec<Problem> {
        let command = self.command(None);
        let problem = |key: KeyPath, text: &str| {
            let (message, help) = text.split_once("; ").unwrap_or((text, "correct it"));
            Problem { key, message: message.to_owned(), help: help.to_owned() }
        };
        let mut found = Vec::new();
        if let Err(error) = command.check_program() {
            let in_cwd = matches!(error, CommandError::NoFolder(_) | CommandError::NotAFolder(_));
            // Without the search path, which would hide the rest of the message.
            let text = match &error {
                CommandError::NotInPath { program, .. } => {
                    format!("program `{program}` not found in PATH; install it, or use its absolute path as `command`")
                }
                // The path as it is configured.
                other => {
                    let configured = self.raw.command.as_deref().unwrap_or_default();
                    other.to_string().replace(&*self.program.to_string_lossy(), configured)
                }
            };
            found.push(problem(at.key(if in_cwd { "cwd" } else { "command" }), &text));
        }
        if let Some(index) = command.missing_script() {
            let text = format!("script `{}` does not exist; create it, or correct `args`", self.raw.args[index]);
            found.push(problem(at.key("args").index(index), &text));
        }
        found
    }

    /// Builds the tool, under the guard if there is one.
    pub(super) fn tool(&self, name: &str, guard: Option<&Guard>) -> ToolBuilder {
        let command = self.command(guard);
        if self.stateful { command.stateful_tool(name) } else { command.tool(name) }
    }

    pub(super) fn command(&self, guard: Option<&Guard>) -> command::Command {
        let raw = &self.raw;
        let mut command = command::Command::new(&self.program).args(raw.args.iter().cloned());
        for (name, value) in &self.env {
            command = command.env(name, value.reveal());
        }
        command = raw.pass_env.iter().fold(command, command::Command::pass_env);
        command = self.secret_texts.iter().cloned().fold(command, command::Command::secret_text);
        if !self.cwd.as_os_str().is_empty() {
            command = command.cwd(&self.cwd);
        }
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        if let Some(size) = raw.max_output {
            command = command.max_output(bytes(size.0));
        }
        if let Some(size) = raw.max_line {
            command = command.max_line(bytes(size.0));
        }
        if let Some(time) = raw.grace {
            command = command.grace(time.0);
        }
        if let Some(guard) = guard {
            command = command.guard(guard.clone());
        }
        command
    }
}
