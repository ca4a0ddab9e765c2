//! Command tools: one process per call, or one long-running process per thread.
//!
//! In: program, arguments, environment and limits. Out: a `ToolBuilder`. No shell is involved; a program sees only the environment
//! variables it was given, and ends with its call or its thread. `response` defines and parses the stdout protocol, `process` owns
//! the child process, and `guard` makes sure that no descendant outlives the hub.

mod environment;
mod error;
mod failure;
pub mod guard;
mod inspection;
mod long_running;
mod one_shot;
mod output;
mod process;
mod program;
mod request;
mod response;
mod signals;
mod stderr;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use serde_json::json;
use toolhub_core::{Kind, ToolBuilder};
use toolhub_net::SecretText;

pub use environment::DEFAULT_PASS_ENV;
pub use error::CommandError;
pub use guard::Guard;
pub use inspection::deny_inspection;
pub use request::RESERVED_MEMBERS;
#[cfg(feature = "mcp")]
pub(crate) use {
    environment::ProgramSecrets,
    failure::ProcessExit,
    output::LimitExceeded,
    process::Process,
    stderr::{LineSink, printable},
};

/// A program to be registered as a tool.
///
/// ```
/// use std::time::Duration;
/// use toolhub_connect::command::Command;
///
/// let words = Command::new("python3").arg("tools/words.py").env("LANGUAGE", "en").pass_env("WORDS_TOKEN").tool("words");
/// let notes = Command::new("node").arg("tools/notes.mjs").grace(Duration::from_secs(5)).stateful_tool("notes");
/// ```
#[derive(Clone)]
#[must_use = "a command is not a tool yet: finish it with `tool` or `stateful_tool`"]
pub struct Command {
    program: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    pass_env: Vec<String>,
    secret_texts: Vec<SecretText>,
    cwd: Option<PathBuf>,
    guard: Option<Guard>,
    state: Option<String>,
    limits: Limits,
}

/// Output limits of a program, and its grace period after SIGTERM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    max_output: usize,
    max_line: usize,
    grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_output: 8 * 1024 * 1024, max_line: 4 * 1024 * 1024, grace: Duration::from_secs(2) }
    }
}

impl Command {
    /// Why the program could not be started now: it or the working directory does not exist.
    pub(crate) fn check_program(&self) -> Result<(), CommandError> {
        program::resolve(self).map(|_| ())
    }

    /// The index of the argument that names the script of an interpreter, if that file does not exist.
    pub(crate) fn missing_script(&self) -> Option<usize> {
        program::missing_script(self)
    }

    /// A command that runs `program`: a name to look up in `PATH`, or a path. A relative path is resolved against the working
    /// directory of the hub, even if [`cwd`](Self::cwd) is set.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            secret_texts: Vec::new(),
            cwd: None,
            guard: None,
            state: None,
            limits: Limits::default(),
        }
    }

    /// Adds an argument. The program gets it verbatim: no shell expands it.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. The value is never printed.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Says that a text in the arguments is secret. It is masked in results, errors and logs.
    pub fn secret_text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.secret_texts.push(SecretText::new(text));
        self
    }

    /// Passes on a variable of the hub's own environment, with its value when the program starts. Only [`DEFAULT_PASS_ENV`] are
    /// passed on by default.
    pub fn pass_env(mut self, name: impl Into<String>) -> Self {
        self.pass_env.push(name.into());
        self
    }

    /// Sets the working directory. Default: that of the hub.
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// Runs the program under a guard process, so that none of its descendants outlives the hub. Without a guard it runs in its own
    /// process group, which is killed when the hub drops the process.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Sets the grace period between SIGTERM and SIGKILL. Default: two seconds.
    pub fn grace(mut self, time: Duration) -> Self {
        self.limits.grace = time;
        self
    }

    /// Sets how many bytes the program may write to stdout during one call. Default: 8 MiB. Stderr is not limited: its tail is
    /// captured and the rest is dropped.
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.limits.max_output = bytes;
        self
    }

    /// Sets the maximum length of one response line of a stateful tool, in bytes. Default: 4 MiB.
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.limits.max_line = bytes;
        self
    }

    /// Sets the name of the state of a stateful tool. Default: the tool's own name. Tools with the same state name share the state.
    pub fn state(mut self, name: impl Into<String>) -> Self {
        self.state = Some(name.into());
        self
    }

    /// Checks whether the program could be started now.
    ///
    /// # Errors
    /// Names the invalid setting, and what to do.
    pub fn check(&self) -> Result<(), CommandError> {
        self.validate()?;
        program::resolve(self).map(|_| ())
    }

    /// Builds a tool that starts one process per call: `{"arguments": …}` on stdin, JSON on stdout.
    pub fn tool(self, name: &str) -> ToolBuilder {
        let (config, implementation) = (self.config(), self.implementation());
        let tool = ToolBuilder::new(name, Kind::Stateless).config(config).implementation(&implementation);
        tool.executor(Arc::new(one_shot::OneShot(self)))
    }

    /// Builds a tool with one long-running process per thread, which gets one line of JSON per call. Each request carries the state
    /// and each response may carry a new one, so the process can be killed and restarted at any time.
    pub fn stateful_tool(self, name: &str) -> ToolBuilder {
        if self.validate().is_err() {
            // `OneShot::validate_definition` then refuses the registration with the same error.
            return self.tool(name);
        }
        let (config, implementation, state) = (self.config(), self.implementation(), self.state.clone());
        let tool = long_running::tool(name, self).config(config).implementation(&implementation);
        tool.json_state(state.as_deref().unwrap_or(name))
    }

    /// The limits of its output.
    #[cfg(feature = "mcp")]
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The grace period after closed stdin, and after SIGTERM.
    #[cfg(feature = "mcp")]
    pub(crate) fn grace_period(&self) -> Duration {
        self.limits.grace
    }

    /// Checks the settings that do not depend on the machine.
    ///
    /// # Errors
    /// Names the invalid setting.
    #[cfg(feature = "mcp")]
    pub(crate) fn check_settings(&self) -> Result<(), CommandError> {
        self.validate()
    }

    /// The program, for people.
    #[cfg(feature = "mcp")]
    pub(crate) fn program_text(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    fn config(&self) -> serde_json::Value {
        json!({"command": self.program.to_string_lossy()})
    }

    /// What the program does depends on this. The values of variables are left out, so that a new secret voids no grant.
    pub(crate) fn implementation(&self) -> serde_json::Value {
        let env: Vec<&String> = self.env.keys().collect();
        let program = self.program.to_string_lossy();
        json!({"program": program, "args": self.args, "cwd": self.cwd, "env": env, "passEnv": self.pass_env})
    }

    /// Checks the settings that do not depend on the machine.
    fn validate(&self) -> Result<(), CommandError> {
        if self.program.as_os_str().is_empty() {
            return Err(CommandError::NoProgram);
        }
        let texts = self.args.iter().map(|arg| ("args", arg)).chain(self.env.values().map(|value| ("env", value)));
        for (setting, text) in texts {
            if text.contains('\0') {
                return Err(CommandError::Nul { setting });
            }
        }
        for name in self.env.keys().chain(&self.pass_env) {
            if !is_valid_env_name(name) {
                return Err(CommandError::Variable { name: name.escape_debug().to_string() });
            }
        }
        for (setting, bytes) in [("max_output", self.limits.max_output), ("max_line", self.limits.max_line)] {
            if bytes == 0 {
                return Err(CommandError::Zero { setting });
            }
        }
        Ok(())
    }
}

/// Whether an environment variable can have this name.
pub(crate) fn is_valid_env_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and values may be secrets.
        let (args, env) = (self.args.len(), Vec::from_iter(self.env.keys()));
        let mut this = f.debug_struct("Command");
        this.field("program", &self.program).field("args", &args).field("env", &env).field("pass_env", &self.pass_env);
        this.field("cwd", &self.cwd).field("guard", &self.guard).field("limits", &self.limits).finish_non_exhaustive()
    }
}
