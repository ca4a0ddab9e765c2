//! Tools that are programs: one process for each call, or one that lives as long as its thread.
//!
//! In: what to run, with which arguments and environment, and within which limits. Out: a `ToolBuilder`. No shell is ever
//! asked; a program sees the variables it was given and no others, and ends with its call or its thread. What it may say, and how
//! that is read, is in `answer`; the process itself is `process`; `guard` sees to it that nothing outlives the hub.

mod environment;
mod error;
mod failure;
pub mod guard;
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

pub use environment::DEFAULT_PASS_ENV;
pub use error::CommandError;
pub use guard::Guard;
pub use request::RESERVED_MEMBERS;

/// A program that is to be a tool.
///
/// ```
/// use std::time::Duration;
/// use toolhub_connect::command::Command;
///
/// let words = Command::new("python3").arg("tools/words.py").env("LANGUAGE", "en").pass_env("WORDS_TOKEN").tool("words");
/// let notes = Command::new("node").arg("tools/notes.mjs").grace(Duration::from_secs(5)).stateful_tool("notes");
/// ```
#[derive(Clone)]
#[must_use = "a command is no tool yet: finish it with `tool` or `stateful_tool`"]
pub struct Command {
    program: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    pass_env: Vec<String>,
    cwd: Option<PathBuf>,
    guard: Option<Guard>,
    state: Option<String>,
    limits: Limits,
}

/// How much a program may say, and how long it may take to end.
#[derive(Debug, Clone, Copy)]
struct Limits {
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
    /// A program: a name that is looked for in `PATH`, or a path. A path that is not absolute begins where the hub runs, also if
    /// the program is to run elsewhere.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            cwd: None,
            guard: None,
            state: None,
            limits: Limits::default(),
        }
    }

    /// One more argument. It reaches the program as it is: no shell reads it.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A variable of its environment. The value is never printed.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// A variable it gets from the hub's own environment, as it is when the program starts. Of those only [`PASSED`] are given
    /// without being asked for.
    pub fn pass_env(mut self, name: impl Into<String>) -> Self {
        self.pass_env.push(name.into());
        self
    }

    /// The folder it runs in; the hub's own where nothing is said.
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// It runs below a guard, so that nothing it starts outlives the hub. Without one it has a process group of its own, which is
    /// killed when the hub lets go of it.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// How long it may take to end after it was asked to (SIGTERM), before it is killed; two seconds where nothing is said.
    pub fn grace(mut self, time: Duration) -> Self {
        self.limits.grace = time;
        self
    }

    /// How many bytes it may write to its output during one call; 8 MiB where nothing is said. What it writes to its error
    /// output is not limited: the end of it is kept and the rest is dropped.
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.limits.max_output = bytes;
        self
    }

    /// How long one line of a stateful tool may be, in bytes; 4 MiB where nothing is said.
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.limits.max_line = bytes;
        self
    }

    /// The name of what a stateful tool remembers; the tool's own name where nothing is said. Tools that name the same state
    /// share it.
    pub fn state(mut self, name: impl Into<String>) -> Self {
        self.state = Some(name.into());
        self
    }

    /// Looks whether it could be started now.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what to do.
    pub fn check(&self) -> Result<(), CommandError> {
        self.validate()?;
        program::resolve(self).map(|_| ())
    }

    /// A tool that starts the program anew for each call: `{"arguments": …}` on its input, JSON on its output.
    pub fn tool(self, name: &str) -> ToolBuilder {
        let config = self.config();
        ToolBuilder::new(name, Kind::Stateless).config(config).executor(Arc::new(one_shot::OneShot(self)))
    }

    /// A tool whose program lives as long as its thread needs it and is asked once for each call, with one line of JSON. What it
    /// remembers is handed to it with each request and taken from its answers, so it may be killed and started again at any time.
    pub fn stateful_tool(self, name: &str) -> ToolBuilder {
        if self.validate().is_err() {
            // What could never be started is refused when it is registered, in the same words.
            return self.tool(name);
        }
        let (config, state) = (self.config(), self.state.clone());
        long_running::tool(name, self).config(config).json_state(state.as_deref().unwrap_or(name))
    }

    fn config(&self) -> serde_json::Value {
        json!({"command": self.program.to_string_lossy()})
    }

    /// Looks at what can be wrong whatever the machine is like.
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

/// Whether a variable can have this name.
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
