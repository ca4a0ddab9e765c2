//! A guard at work.
//!
//! In: orders. Out: the end of the program. Two things tell that the hub is gone: a handle on its process, and the signal the kernel
//! sends to the children of a dead parent; the second also comes when only the hub's thread that started us has ended, so the
//! parent is looked at again then. A pipe from the hub would tell it too, but had to be open to whatever else the hub starts.

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

/// How long killing may take in all. What is left then waits for the kernel, or belongs to somebody else.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often everybody who is still there is killed again.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

pub(super) fn run(orders: GuardArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(supervise(orders))) {
        Ok(end) => end,
        // Whatever can fail, fails before the program is there.
        Err(error) => exit_start_failed(&error.to_string()),
    }
}

/// Ends in the way that says so.
fn exit_start_failed(why: &str) -> ExitCode {
    let end = fail(why);
    let _ = kill_process(getpid(), START_FAILED_SIGNAL);
    end
}

/// How far the end is.
#[derive(Clone, Copy, PartialEq)]
enum ShutdownPhase {
    /// The program runs.
    Running,
    /// Everybody was asked to end, and is killed then.
    Terminating(Instant),
    /// Everybody is being killed; so long at most, and once more then.
    Killing { deadline: Instant, next: Instant },
}

async fn supervise(orders: GuardArgs) -> io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(Signal::HUP))?;
    // Listened for before there is anything to hear.
    let mut child = signal(SignalKind::child())?;
    let mut ask = signal(SignalKind::terminate())?;
    let mut at_once = signal(SignalKind::interrupt())?;
    let mut parent = signal(SignalKind::hangup())?;
    let gone = Arc::new(Notify::new());
    if let Ok(hub) = pidfd_open(orders.hub_pid, PidfdFlags::empty()) {
        watch_hub(hub, gone.clone())?;
    }
    if is_orphaned(orders.hub_pid) {
        return Ok(fail("the hub is gone; nothing was started"));
    }
    let program = match start_program(&orders) {
        Ok(program) => program,
        Err(error) => {
            let program = orders.program.to_string_lossy();
            return Ok(exit_start_failed(&format!("`{program}` could not be started: {error}")));
        }
    };
    let (mut stage, mut end, mut alone) = (ShutdownPhase::Running, None, false);
    loop {
        let due = match stage {
            ShutdownPhase::Running => None,
            ShutdownPhase::Terminating(at) | ShutdownPhase::Killing { next: at, .. } => Some(at),
        };
        tokio::select! {
            _ = child.recv() => {}
            _ = ask.recv() => stage = stage.terminate(orders.grace),
            _ = at_once.recv() => stage = stage.kill(),
            () = gone.notified(), if !alone => {
                alone = true;
                stage = stage.terminate(orders.grace.min(ORPHAN_GRACE));
            }
            _ = parent.recv() => if !alone && is_orphaned(orders.hub_pid) {
                alone = true;
                stage = stage.terminate(orders.grace.min(ORPHAN_GRACE));
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => match stage {
                ShutdownPhase::Killing { deadline, .. } if Instant::now() >= deadline => return Ok(exit_code(end)),
                _ => stage = stage.kill(),
            },
        }
        if !reap(program, &mut end) {
            return Ok(exit_code(end));
        }
        // The program has ended; what it left behind ends with it.
        if end.is_some() && !matches!(stage, ShutdownPhase::Killing { .. }) {
            stage = stage.kill();
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
            // Asked once more, or by somebody in a greater hurry, it has no longer than it had.
            Self::Terminating(at) => Self::Terminating(at.min(Instant::now() + grace)),
            other => other.kill(),
        }
    }

    fn kill(self) -> Self {
        descendants::signal_all(Signal::KILL);
        let now = Instant::now();
        let until = match self {
            // Killed once already, and somebody is left: perhaps one who forks faster than we look.
            Self::Killing { deadline: until, .. } => {
                descendants::signal_groups(Signal::KILL);
                until
            }
            _ => now + KILL_TIMEOUT,
        };
        Self::Killing { deadline: until, next: now + KILL_RETRY_INTERVAL }
    }
}

fn start_program(orders: &GuardArgs) -> io::Result<Pid> {
    // Before the program is there: who hears that this failed takes it that nothing has happened.
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut start = Command::new(&orders.program);
    // A group of its own: a program that ends its whole group must not end the guard.
    let child = start.args(&orders.args).process_group(0).spawn()?;
    // The pipes are the program's. If the guard held them too, the hub could not see that the program has closed one.
    let _ = (dup2_stdin(&nothing), dup2_stdout(&nothing), dup2_stderr(&nothing));
    Ok(Pid::from_child(&child))
}

/// Tells when the hub has ended. On a thread of its own, which waits in the kernel and does nothing else.
fn watch_hub(hub: OwnedFd, gone: Arc<Notify>) -> io::Result<()> {
    let waits = move || {
        loop {
            match poll(&mut [PollFd::new(&hub, PollFlags::IN)], None) {
                Ok(_) => return gone.notify_one(),
                Err(Errno::INTR) => {}
                // Nothing is known about the hub; the kernel's signal is still to come.
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("hub".into()).stack_size(64 * 1024).spawn(waits).map(|_| ())
}

fn is_orphaned(hub: Pid) -> bool {
    getppid() != Some(hub)
}

/// Buries the dead, and notes how the program ended. Says whether anybody is left.
fn reap(program: Pid, end: &mut Option<u8>) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => {
                let by_signal = status.terminating_signal().map(|signal| 128 + signal);
                let number = status.exit_status().or(by_signal).unwrap_or(1);
                *end = Some(u8::try_from(number).unwrap_or(u8::MAX));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn exit_code(end: Option<u8>) -> ExitCode {
    // Without an end of its own the program could not even be killed.
    ExitCode::from(end.unwrap_or(137))
}
