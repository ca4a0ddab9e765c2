//! Signals a program and its descendants.
//!
//! In: the process that the hub spawned. Out: signals to its process group, or to its guard, which signals all descendants.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Where signals go.
#[derive(Debug, Clone, Copy)]
pub(super) enum SignalTarget {
    /// The program leads its own process group. A descendant that leaves the group is out of reach.
    Group(Pid),
    /// The program runs under a guard. The guard itself must never be killed: only it can find all descendants.
    Guard(Pid),
}

impl SignalTarget {
    /// Requests termination (SIGTERM).
    pub(super) fn terminate(self) {
        // Fails only if the process has exited meanwhile.
        let _ = match self {
            Self::Group(group) => kill_process_group(group, Signal::TERM),
            Self::Guard(guard) => kill_process(guard, Signal::TERM),
        };
    }

    /// Kills it immediately.
    pub(super) fn kill(self) {
        let _ = match self {
            Self::Group(group) => kill_process_group(group, Signal::KILL),
            Self::Guard(guard) => kill_process(guard, super::guard::KILL_ALL_SIGNAL),
        };
    }

    /// Kills what remains of the process group after the program was reaped. Its PID may be reused from then on, so this must be
    /// called right after the reaping, and only once. A guard has already killed its descendants.
    pub(super) fn kill_remaining(self) {
        if let Self::Group(group) = self {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
