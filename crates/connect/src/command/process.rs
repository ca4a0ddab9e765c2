//! One running program: its pipes, how it ends, and that it does.
//!
//! In: a command. Out: a process to write to and to read from. Dropped, it is killed with everything in its group or below its
//! guard; lent to a call with [`Lent`], it is first asked to end when the call is cut off, and killed a little later.

use std::{io, process::Stdio, time::Duration};

use rustix::{io::Errno, process::Pid};
use tokio::{
    process::{Child, ChildStdin, Command as Start},
    runtime::Handle,
};
use toolhub_core::{CallContext, HeldSlot};

use super::{
    Command, CommandError, Limits, environment,
    failure::{Failure, ProcessExit},
    output::{LimitExceeded, Output},
    program::{self, LaunchSpec},
    signals::SignalTarget,
    stderr::{LogSource, Stderr},
};

/// After a program was killed: how long its end is waited for. It takes longer only while the kernel does something for it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// After a program has ended: how long what it wrote may take to arrive. It is there at once, unless a process it left behind
/// holds the pipe.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Process {
    child: Child,
    signal_target: SignalTarget,
    /// Whether it has ended and was waited for.
    exited: bool,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) output: Output,
    pub(super) stderr: Stderr,
}

impl Process {
    /// Starts the program.
    pub(super) fn start(command: &Command, tool: &str) -> Result<Self, CommandError> {
        command.validate()?;
        let found = program::resolve(command)?;
        let mut start = build_command(command, &found);
        let mut child = start.spawn().map_err(|error| spawn_error(&found, error))?;
        let lost = || spawn_error(&found, io::Error::other("it has no number or no pipes"));
        let number = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or_else(lost)?;
        let reach = if is_guarded(command) { SignalTarget::Guard(number) } else { SignalTarget::Group(number) };
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            reach.kill();
            return Err(lost());
        };
        let secrets = environment::secrets(command, &found.variables);
        let stderr = Stderr::spawn(stderr, LogSource { tool: tool.to_owned(), secrets });
        let output = Output::new(stdout);
        Ok(Self { child, signal_target: reach, exited: false, stdin: Some(stdin), output, stderr })
    }

    /// Waits until it has ended. What it left behind in its group ends with it. May be cut off and asked again.
    pub(super) async fn wait(&mut self) -> ProcessExit {
        let status = self.child.wait().await;
        if !self.exited {
            self.exited = true;
            self.signal_target.kill_remaining();
        }
        ProcessExit { status: status.ok(), guarded: matches!(self.signal_target, SignalTarget::Guard(_)) }
    }

    /// Reads all it writes until it has ended. One that writes too much is killed.
    pub(super) async fn drain_until_exit(&mut self, most: usize) -> Result<ProcessExit, LimitExceeded> {
        let Self { child, output, .. } = self;
        let mut all = tokio::select! {
            all = output.read_to_end(most) => Some(all),
            _ = child.wait() => None,
        };
        if let Some(Err(too_much)) = all {
            self.kill().await;
            return Err(too_much);
        }
        let end = self.wait().await;
        if all.is_none() {
            all = tokio::time::timeout(DRAIN_TIMEOUT, self.output.read_to_end(most)).await.ok();
        }
        all.unwrap_or(Ok(())).map(|()| end)
    }

    /// The next line it writes, or how it ended instead.
    pub(super) async fn next_line(&mut self, limits: Limits) -> Result<Result<Vec<u8>, ProcessExit>, LimitExceeded> {
        let Self { child, output, .. } = self;
        let line = tokio::select! {
            biased;
            line = output.next_line(limits.max_output, limits.max_line) => line?,
            _ = child.wait() => {
                let last = output.next_line(limits.max_output, limits.max_line);
                tokio::time::timeout(DRAIN_TIMEOUT, last).await.unwrap_or(Ok(None))?
            }
        };
        if let Some(line) = line {
            return Ok(Ok(line));
        }
        // With its output closed it could not answer, even if it went on.
        match tokio::time::timeout(DRAIN_TIMEOUT, self.wait()).await {
            Ok(end) => Ok(Err(end)),
            Err(_) => Ok(Err(self.kill().await.unwrap_or(ProcessExit { status: None, guarded: false }))),
        }
    }

    /// Whether it has ended by itself.
    pub(super) fn has_exited(&mut self) -> bool {
        if !self.exited && !matches!(self.child.try_wait(), Ok(None)) {
            self.exited = true;
            self.signal_target.kill_remaining();
        }
        self.exited
    }

    /// An orderly goodbye: the end of its input tells a program that nobody will ask it any more.
    pub(super) async fn close(mut self, grace: Duration) {
        self.stdin = None;
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            self.terminate(grace).await;
        }
    }

    /// Asks it to end, and kills it after the grace.
    pub(super) async fn terminate(mut self, grace: Duration) {
        self.stdin = None;
        self.signal_target.terminate();
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            self.kill().await;
        }
    }

    /// Kills it, and waits until it is gone.
    pub(super) async fn kill(&mut self) -> Option<ProcessExit> {
        self.signal_target.kill();
        tokio::time::timeout(KILL_TIMEOUT, self.wait()).await.ok()
    }

    /// What it said last, after it has ended, beside what went wrong.
    pub(super) async fn tool_error(&mut self, failure: Failure) -> toolhub_core::ToolError {
        failure.into_tool_error(&self.stderr.tail().await)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_exited() {
            self.signal_target.kill();
        }
    }
}

fn is_guarded(command: &Command) -> bool {
    cfg!(target_os = "linux") && command.guard.is_some()
}

fn build_command(command: &Command, found: &LaunchSpec) -> Start {
    let mut start = match &command.guard {
        Some(guard) if is_guarded(command) => {
            let mut start = Start::new(guard.path());
            start.args(guard.args(command.limits.grace)).arg(&found.program);
            start
        }
        _ => Start::new(&found.program),
    };
    start.args(&command.args).env_clear().envs(&found.variables);
    if let Some(folder) = &command.cwd {
        start.current_dir(folder);
    }
    start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A guard that is killed leaves orphans; it ends by itself when it is told to.
    start.process_group(0).kill_on_drop(!is_guarded(command));
    start
}

fn spawn_error(found: &LaunchSpec, error: io::Error) -> CommandError {
    let full = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::TXTBSY];
    if full.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return CommandError::Full(error);
    }
    CommandError::Refused { program: found.program.clone(), source: error }
}

/// A process while a call uses it. If the call is cut off, so is the process: what it was doing for that call, it would go on with,
/// and its answer would come when another is waited for.
pub(super) struct Borrowed {
    process: Option<Process>,
    grace: Duration,
    /// The place of the call among those that run at once: the process has it until it is gone.
    slot: Option<HeldSlot>,
    runtime: Handle,
}

impl Borrowed {
    pub(super) fn new(process: Process, grace: Duration, call: &CallContext) -> Self {
        Self { process: Some(process), grace, slot: Some(call.hold_slot()), runtime: Handle::current() }
    }

    pub(super) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it is taken out only by `back`, which takes this along")
    }

    /// The call is over, and the process is not.
    pub(super) fn release(mut self) -> Process {
        self.process.take().expect("it is taken out only here")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(process) = self.process.take_if(|process| !process.has_exited()) {
            // Ends by itself, after the grace and the time a killed program may take. If the runtime goes first, it drops the
            // process, which kills it.
            let (grace, slot) = (self.grace, self.slot.take());
            self.runtime.spawn(async move {
                process.terminate(grace).await;
                drop(slot);
            });
        }
    }
}
