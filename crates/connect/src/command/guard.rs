//! The guard: a small process above a program, so that nothing the program starts outlives the hub.
//!
//! In: a program to run, and the number of the hub's process. Out: the program's own end. On Linux the guard adopts everything below
//! it whose parent has gone, so nothing gets away by forking twice or by leaving its group; and it ends all of it when the program
//! ends, when it is told to, and when the hub is gone, however that died. Elsewhere there is no guard, and programs run in groups.
//!
//! The guard is a program that calls [`run`], such as `toolhub guard`; a program of your own does it first thing in `main`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use toolhub_connect::command::guard;
//!
//! fn main() -> ExitCode {
//!     if let Some(end) = guard::if_asked(std::env::args_os()) {
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

/// The first word a guard is started with.
pub const SUBCOMMAND: &str = "guard";

/// Told to a guard: end everything at once.
pub(crate) const KILL_ALL_SIGNAL: Signal = Signal::INT;

/// The signal a guard ends itself with if the program could not be started. A program's own signals come as codes above 128, so
/// this one says for certain that nothing has happened.
pub(crate) const START_FAILED_SIGNAL: Signal = Signal::USR1;

#[cfg(target_os = "linux")]
/// After the hub is gone nobody waits for an orderly end any longer than this.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// Which program is the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard(PathBuf);

impl Guard {
    /// A program that is a guard when its first argument is `guard`: the binary `toolhub`, or one that calls [`if_asked`].
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// This very program. It must call [`if_asked`] first thing. Also found if its file was replaced since it was started.
    ///
    /// # Errors
    /// When the system does not tell where it is; never on Linux.
    pub fn this_program() -> std::io::Result<Self> {
        if cfg!(target_os = "linux") { Ok(Self("/proc/self/exe".into())) } else { std::env::current_exe().map(Self) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What it is started with, before the program and its arguments.
    pub(crate) fn args(&self, grace: Duration) -> [OsString; 4] {
        let (hub, grace) = (getpid().as_raw_pid(), grace.as_millis());
        [SUBCOMMAND.into(), hub.to_string().into(), grace.to_string().into(), "--".into()]
    }
}

/// What a guard is to do.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no guard"))]
struct GuardArgs {
    hub_pid: Pid,
    grace: Duration,
    program: OsString,
    args: Vec<OsString>,
}

/// Is the guard, if these arguments of a program say so: `guard`, the number of the hub's process, the milliseconds a program has to
/// end in, `--`, the program, its arguments. Comes back when the program and everything below it has ended.
#[must_use = "a guard ends with what this says"]
pub fn run_if_requested(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut words = arguments.into_iter().skip(1);
    (words.next()? == SUBCOMMAND).then(|| run(words))
}

/// The same, with the arguments after the word `guard`.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    match parse_args(words.into_iter()) {
        #[cfg(target_os = "linux")]
        Some(orders) => supervisor::run(orders),
        #[cfg(not(target_os = "linux"))]
        Some(_) => fail("there is no guard on this system"),
        None => fail(
            "this is started by toolhub itself, beside every program that is a tool; there is nothing to type here",
        ),
    }
}

fn parse_args(mut words: impl Iterator<Item = OsString>) -> Option<GuardArgs> {
    let mut number = || words.next()?.to_str()?.parse::<u64>().ok();
    let (hub, grace) = (number()?, number()?);
    let hub = Pid::from_raw(hub.try_into().ok()?)?;
    if words.next()? != "--" {
        return None;
    }
    Some(GuardArgs { hub_pid: hub, grace: Duration::from_millis(grace), program: words.next()?, args: words.collect() })
}

fn fail(why: &str) -> ExitCode {
    eprintln!("toolhub guard: {why}");
    ExitCode::from(2)
}
