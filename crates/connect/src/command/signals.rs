//! How a program, and what it has started, is told to end.
//!
//! In: the process the hub started. Out: signals to its group, or to the guard above it, which knows what is below.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Who is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum SignalTarget {
    /// The program leads a group of its own. Whoever leaves the group is out of reach.
    Group(Pid),
    /// A guard stands above the program. It must never be killed itself: nobody else knows what is below it.
    Guard(Pid),
}

impl SignalTarget {
    /// Asks for an orderly end.
    pub(super) fn terminate(self) {
        // It may have ended by itself meanwhile; then there is nobody to tell.
        let _ = match self {
            Self::Group(group) => kill_process_group(group, Signal::TERM),
            Self::Guard(guard) => kill_process(guard, Signal::TERM),
        };
    }

    /// Ends it at once.
    pub(super) fn kill(self) {
        let _ = match self {
            Self::Group(group) => kill_process_group(group, Signal::KILL),
            Self::Guard(guard) => kill_process(guard, super::guard::KILL_ALL_SIGNAL),
        };
    }

    /// The program has ended and was waited for: what is left of its group goes too. Its number is free from now on, so this
    /// happens right after the waiting, and once. A guard has done it already.
    pub(super) fn kill_remaining(self) {
        if let Self::Group(group) = self {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
