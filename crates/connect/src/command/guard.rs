//! The guard: a small supervisor process between hub and program, so that no descendant of the program outlives the hub.
//!
//! In: a program to run, and the PID of the hub. Out: the program's exit code. On Linux the guard is a child subreaper: it adopts
//! every orphaned descendant, so double forks and new process groups do not escape it. It kills all descendants when the program
//! exits, when the hub signals it, and when the hub dies for whatever reason. Other systems have no guard; there a program only has
//! its own process group.
//!
//! The guard is a program that calls [`run`], such as `toolhub guard`; your own program calls this first in `main`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use toolhub_connect::command::guard;
//!
//! fn main() -> ExitCode {
//!     if let Some(end) = guard::run_if_requested(std::env::args_os()) {
//!         return end;
//!     }
//!     // … the program itself, with `Command::guard(Guard::this_program())`.
//!     ExitCode::SUCCESS
//! }
//! ```

#[cfg(target_os = "linux")]
mod descendants;
#[cfg(target_os = "linux")]
mod supervisor;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use rustix::process::{Pid, Signal, getpid};

/// The first argument of a guard process.
pub const SUBCOMMAND: &str = "guard";

/// Makes the guard kill everything below it immediately.
pub(crate) const KILL_ALL_SIGNAL: Signal = Signal::INT;

/// The signal with which the guard kills itself if the program could not be started. Signals of the program are reported as exit
/// codes above 128, so this signal proves that the program never ran.
pub(crate) const START_FAILED_SIGNAL: Signal = Signal::USR1;

#[cfg(target_os = "linux")]
/// Upper bound of the grace period once the hub has died.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// The program to run as the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard(PathBuf);

impl Guard {
    /// A program that acts as a guard when its first argument is `guard`: the binary `toolhub`, or one that calls [`run_if_requested`].
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The running program itself, even if its file was replaced since it started. It must call [`run_if_requested`] first in `main`.
    ///
    /// # Errors
    /// When the system does not report the path of the executable; never on Linux.
    pub fn this_program() -> std::io::Result<Self> {
        if cfg!(target_os = "linux") { Ok(Self("/proc/self/exe".into())) } else { std::env::current_exe().map(Self) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The guard's own arguments, which precede the program and its arguments.
    pub(crate) fn args(&self, grace: Duration) -> [OsString; 4] {
        let (hub, grace) = (getpid().as_raw_pid(), grace.as_millis());
        [SUBCOMMAND.into(), hub.to_string().into(), grace.to_string().into(), "--".into()]
    }
}

/// The parsed command line of a guard.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the guard exists only on Linux"))]
struct GuardArgs {
    hub_pid: Pid,
    grace: Duration,
    program: OsString,
    args: Vec<OsString>,
}

/// Runs as the guard if these process arguments ask for it: `guard`, the PID of the hub, the grace period in milliseconds, `--`, the
/// program, its arguments. Returns when the program and all its descendants have ended.
#[must_use = "a guard process must exit with this code"]
pub fn run_if_requested(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = arguments.into_iter().skip(1);
    (args.next()? == SUBCOMMAND).then(|| run(args))
}

/// Runs as the guard, with the arguments after `guard`.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match parse_args(args.into_iter()) {
        #[cfg(target_os = "linux")]
        Some(args) => supervisor::run(args),
        #[cfg(not(target_os = "linux"))]
        Some(_) => fail("the guard is supported only on Linux"),
        None => fail("internal command; toolhub runs it above every command tool, do not run it by hand"),
    }
}

fn parse_args(mut args: impl Iterator<Item = OsString>) -> Option<GuardArgs> {
    let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
    let (hub_pid, grace) = (number()?, number()?);
    let hub_pid = Pid::from_raw(hub_pid.try_into().ok()?)?;
    if args.next()? != "--" {
        return None;
    }
    Some(GuardArgs { hub_pid, grace: Duration::from_millis(grace), program: args.next()?, args: args.collect() })
}

fn fail(reason: &str) -> ExitCode {
    eprintln!("toolhub guard: {reason}");
    ExitCode::from(2)
}
