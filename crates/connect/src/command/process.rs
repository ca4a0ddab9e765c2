//! A child process: its pipes, its exit, and its termination.
//!
//! In: a command. Out: a process with pipes to write to and to read from. Dropping it kills it with its whole process group, or with
//! everything below its guard. A call uses it through [`Borrowed`], which sends SIGTERM when the call is cancelled, and SIGKILL after
//! the grace period.

use std::{io, process::Stdio, sync::Arc, time::Duration};

use rustix::{io::Errno, process::Pid};
use tokio::{
    process::{Child, ChildStdin, Command as TokioCommand},
    runtime::Handle,
};
use toolhub_core::{CallContext, HeldSlot};

use super::{
    Command, CommandError, Limits, environment,
    failure::{Failure, ProcessExit},
    output::{LimitExceeded, Output},
    program::{self, LaunchSpec},
    signals::SignalTarget,
    stderr::{LineSink, LogSource, Stderr},
};

/// How long to wait for the exit after SIGKILL. It takes longer only for a process that is blocked in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to drain stdout after the exit. The data is already in the pipe, unless a process that the program left behind holds the
/// pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Process {
    child: Child,
    signal_target: SignalTarget,
    /// Whether it has exited and was reaped.
    exited: bool,
    pub(crate) stdin: Option<ChildStdin>,
    pub(super) output: Output,
    pub(crate) stderr: Stderr,
}

impl Process {
    /// Spawns the program. The lines of its stderr are logged.
    pub(super) fn start(command: &Command, tool: &str) -> Result<Self, CommandError> {
        Self::start_with_sink(command, LineSink::log(tool))
    }

    /// Spawns the program. The lines of its stderr go to `sink`.
    pub(crate) fn start_with_sink(command: &Command, sink: LineSink) -> Result<Self, CommandError> {
        command.validate()?;
        let spec = program::resolve(command)?;
        let mut child = build_command(command, &spec).spawn().map_err(|error| spawn_error(&spec, error))?;
        let incomplete = || spawn_error(&spec, io::Error::other("the process has no PID or no pipes"));
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or_else(incomplete)?;
        let signal_target = if is_guarded(command) { SignalTarget::Guard(pid) } else { SignalTarget::Group(pid) };
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            signal_target.kill();
            return Err(incomplete());
        };
        let secrets = Arc::new(environment::secrets(command, &spec.variables));
        let stderr = Stderr::spawn(stderr, LogSource { secrets, sink });
        let output = Output::new(stdout);
        Ok(Self { child, signal_target, exited: false, stdin: Some(stdin), output, stderr })
    }

    /// Waits for the exit, and kills what remains of its process group. Cancel-safe.
    pub(super) async fn wait(&mut self) -> ProcessExit {
        let status = self.child.wait().await;
        if !self.exited {
            self.exited = true;
            self.signal_target.kill_remaining();
        }
        let guarded = matches!(self.signal_target, SignalTarget::Guard(_));
        ProcessExit { status: status.ok(), guarded, has_closed_stdout: false }
    }

    /// Reads stdout until the process exits. Kills a process that exceeds `max_output`.
    pub(super) async fn drain_until_exit(&mut self, max_output: usize) -> Result<ProcessExit, LimitExceeded> {
        let Self { child, output, .. } = self;
        let mut drained = tokio::select! {
            drained = output.read_to_end(max_output) => Some(drained),
            _ = child.wait() => None,
        };
        if let Some(Err(exceeded)) = drained {
            self.kill().await;
            return Err(exceeded);
        }
        let exit = self.wait().await;
        if drained.is_none() {
            drained = tokio::time::timeout(DRAIN_TIMEOUT, self.output.read_to_end(max_output)).await.ok();
        }
        drained.unwrap_or(Ok(())).map(|()| exit)
    }

    /// The next line of stdout, or the exit if there is none.
    pub(crate) async fn next_line(&mut self, limits: Limits) -> Result<Result<Vec<u8>, ProcessExit>, LimitExceeded> {
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
        // Stdout is closed, so the process cannot respond any more even if it goes on running.
        match tokio::time::timeout(DRAIN_TIMEOUT, self.wait()).await {
            Ok(exit) => Ok(Err(exit)),
            Err(_) => {
                let status = self.kill().await.and_then(|exit| exit.status);
                Ok(Err(ProcessExit { status, guarded: false, has_closed_stdout: true }))
            }
        }
    }

    /// Whether it has exited. Does not wait.
    pub(super) fn has_exited(&mut self) -> bool {
        if !self.exited && !matches!(self.child.try_wait(), Ok(None)) {
            self.exited = true;
            self.signal_target.kill_remaining();
        }
        self.exited
    }

    /// Shuts the process down: closes stdin, so that the program sees the end of its requests, and terminates it after the grace period.
    pub(crate) async fn close(mut self, grace: Duration) {
        self.stdin = None;
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            self.terminate(grace).await;
        }
    }

    /// Sends SIGTERM, and SIGKILL after the grace period.
    pub(super) async fn terminate(mut self, grace: Duration) {
        self.stdin = None;
        self.signal_target.terminate();
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            self.kill().await;
        }
    }

    /// Kills it and waits for the exit.
    pub(super) async fn kill(&mut self) -> Option<ProcessExit> {
        self.signal_target.kill();
        tokio::time::timeout(KILL_TIMEOUT, self.wait()).await.ok()
    }

    /// The error of the call, with the tail of stderr. To be called after the exit.
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

fn build_command(command: &Command, spec: &LaunchSpec) -> TokioCommand {
    let mut spawn = match &command.guard {
        Some(guard) if is_guarded(command) => {
            let mut spawn = TokioCommand::new(guard.path());
            spawn.args(guard.args(command.limits.grace)).arg(&spec.program);
            spawn
        }
        _ => TokioCommand::new(&spec.program),
    };
    spawn.args(&command.args).env_clear().envs(&spec.variables);
    if let Some(folder) = &command.cwd {
        spawn.current_dir(folder);
    }
    spawn.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Killing a guard would leave orphans; it exits by itself when it is signalled.
    spawn.process_group(0).kill_on_drop(!is_guarded(command));
    spawn
}

fn spawn_error(spec: &LaunchSpec, error: io::Error) -> CommandError {
    let transient = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::TXTBSY];
    if transient.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return CommandError::Full(error);
    }
    CommandError::Refused { program: spec.program.clone(), source: error }
}

/// A process in use by a call. Dropping this terminates the process: after a cancelled call it would go on with the old request, and
/// its late response would be taken for the response to the next one.
pub(super) struct Borrowed {
    process: Option<Process>,
    grace: Duration,
    /// The concurrency slot of the call, which is held until the process has exited.
    slot: Option<HeldSlot>,
    runtime: Handle,
}

impl Borrowed {
    pub(super) fn new(process: Process, grace: Duration, call: &CallContext) -> Self {
        Self { process: Some(process), grace, slot: Some(call.hold_slot()), runtime: Handle::current() }
    }

    pub(super) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("only `release`, which consumes self, takes the process out")
    }

    /// Ends the use of the process by a call that has completed; the process goes on running.
    pub(super) fn release(mut self) -> Process {
        self.process.take().expect("nothing else takes the process out")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(process) = self.process.take_if(|process| !process.has_exited()) {
            // The task is bounded by the grace period plus `KILL_TIMEOUT`. If the runtime shuts down first, it drops the process,
            // which kills it.
            let (grace, slot) = (self.grace, self.slot.take());
            self.runtime.spawn(async move {
                process.terminate(grace).await;
                drop(slot);
            });
        }
    }
}
