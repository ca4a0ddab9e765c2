//! The main loop of a guard process.
//!
//! In: the guard's arguments. Out: the exit code of the program. Two mechanisms report the death of the hub: a pidfd of its process,
//! and the parent-death signal; the kernel also sends the latter when only the hub's thread that spawned the guard has ended, so the
//! guard then checks its parent PID. A pipe from the hub was rejected, because every other child of the hub would inherit it.

use std::{
    fs::OpenOptions,
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open, set_child_subreaper,
        set_parent_process_death_signal, wait,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{GuardArgs, ORPHAN_GRACE, START_FAILED_SIGNAL, descendants, fail};

/// Total time limit for killing. Processes that remain are blocked in the kernel, or belong to another user.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two rounds of SIGKILL to the remaining descendants.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

pub(super) fn run(args: GuardArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(supervise(args))) {
        Ok(code) => code,
        // `supervise` returns an error only before it has started the program.
        Err(error) => exit_start_failed(&error.to_string()),
    }
}

/// Tells the hub, by [`START_FAILED_SIGNAL`], that the program was not started.
fn exit_start_failed(reason: &str) -> ExitCode {
    let code = fail(reason);
    let _ = kill_process(getpid(), START_FAILED_SIGNAL);
    code
}

/// How far the shutdown has come.
#[derive(Clone, Copy, PartialEq)]
enum ShutdownPhase {
    /// The program runs.
    Running,
    /// All descendants got SIGTERM, and get SIGKILL at this time.
    Terminating(Instant),
    /// All descendants got SIGKILL, and get it again at `next`; the guard gives up at `deadline`.
    Killing { deadline: Instant, next: Instant },
}

async fn supervise(args: GuardArgs) -> io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(Signal::HUP))?;
    // The handlers are installed before the program starts, so no signal can be missed.
    let mut child = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut kill_all = signal(SignalKind::interrupt())?;
    let mut parent_death = signal(SignalKind::hangup())?;
    let hub_died = Arc::new(Notify::new());
    if let Ok(hub) = pidfd_open(args.hub_pid, PidfdFlags::empty()) {
        watch_hub(hub, hub_died.clone())?;
    }
    if is_orphaned(args.hub_pid) {
        return Ok(fail("the hub has died; the program was not started"));
    }
    let program = match start_program(&args) {
        Ok(program) => program,
        Err(error) => {
            let program = args.program.to_string_lossy();
            return Ok(exit_start_failed(&format!("`{program}` could not be started: {error}")));
        }
    };
    let (mut phase, mut status, mut orphaned) = (ShutdownPhase::Running, None, false);
    loop {
        let due = match phase {
            ShutdownPhase::Running => None,
            ShutdownPhase::Terminating(at) | ShutdownPhase::Killing { next: at, .. } => Some(at),
        };
        tokio::select! {
            _ = child.recv() => {}
            _ = terminate.recv() => phase = phase.terminate(args.grace),
            _ = kill_all.recv() => phase = phase.kill(),
            () = hub_died.notified(), if !orphaned => {
                orphaned = true;
                phase = phase.terminate(args.grace.min(ORPHAN_GRACE));
            }
            _ = parent_death.recv() => if !orphaned && is_orphaned(args.hub_pid) {
                orphaned = true;
                phase = phase.terminate(args.grace.min(ORPHAN_GRACE));
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => match phase {
                ShutdownPhase::Killing { deadline, .. } if Instant::now() >= deadline => return Ok(exit_code(status)),
                _ => phase = phase.kill(),
            },
        }
        if !reap(program, &mut status) {
            return Ok(exit_code(status));
        }
        // The program has exited; its remaining descendants are killed.
        if status.is_some() && !matches!(phase, ShutdownPhase::Killing { .. }) {
            phase = phase.kill();
        }
    }
}

impl ShutdownPhase {
    fn terminate(self, grace: Duration) -> Self {
        match self {
            Self::Running if !grace.is_zero() => {
                descendants::signal_all(Signal::TERM);
                Self::Terminating(Instant::now() + grace)
            }
            // A second request may shorten the grace period, never extend it.
            Self::Terminating(at) => Self::Terminating(at.min(Instant::now() + grace)),
            other => other.kill(),
        }
    }

    fn kill(self) -> Self {
        descendants::stop_all();
        descendants::signal_all(Signal::KILL);
        let now = Instant::now();
        let deadline = match self {
            // A process survived the first round, perhaps because it forks faster than `/proc` can be read.
            Self::Killing { deadline, .. } => {
                descendants::signal_groups(Signal::KILL);
                deadline
            }
            _ => now + KILL_TIMEOUT,
        };
        Self::Killing { deadline, next: now + KILL_RETRY_INTERVAL }
    }
}

fn start_program(args: &GuardArgs) -> io::Result<Pid> {
    // Opened before the spawn: an error of this function means that the program never ran.
    let dev_null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut command = Command::new(&args.program);
    // Its own process group: a program that kills its whole group must not kill the guard.
    let child = command.args(&args.args).process_group(0).spawn()?;
    // Only the program may hold the pipes. If the guard held them too, the hub could not see that the program closed one.
    let _ = (dup2_stdin(&dev_null), dup2_stdout(&dev_null), dup2_stderr(&dev_null));
    Ok(Pid::from_child(&child))
}

/// Notifies `hub_died` when the hub exits. Polls the pidfd on a dedicated thread, which blocks in the kernel.
fn watch_hub(hub: OwnedFd, hub_died: Arc<Notify>) -> io::Result<()> {
    let watch = move || {
        loop {
            match poll(&mut [PollFd::new(&hub, PollFlags::IN)], None) {
                Ok(_) => return hub_died.notify_one(),
                Err(Errno::INTR) => {}
                // The parent-death signal still reports the death of the hub.
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("hub".into()).stack_size(64 * 1024).spawn(watch).map(|_| ())
}

fn is_orphaned(hub: Pid) -> bool {
    getppid() != Some(hub)
}

/// Reaps all exited children and records the exit code of the program. Returns whether any child is left.
fn reap(program: Pid, code: &mut Option<u8>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => {
                let by_signal = status.terminating_signal().map(|signal| 128 + signal);
                let number = status.exit_status().or(by_signal).unwrap_or(1);
                *code = Some(u8::try_from(number).unwrap_or(u8::MAX));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn exit_code(code: Option<u8>) -> ExitCode {
    // No code: the program could not even be killed. 137 is 128 + SIGKILL.
    ExitCode::from(code.unwrap_or(137))
}
