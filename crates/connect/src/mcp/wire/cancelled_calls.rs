//! Calls that were cancelled, which their server may not have stopped yet.
//!
//! A message of the server that names no call may still belong to one of these.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How many cancelled calls are remembered, and for how long.
const MAX_CALLS: usize = 256;
const MAX_AGE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct CancelledCalls {
    /// Those that were cancelled last and not answered, the oldest first.
    calls: VecDeque<(i64, Instant)>,
    /// When the last of those was cancelled that were too many to be remembered.
    forgotten: Option<Instant>,
}

impl CancelledCalls {
    pub(super) fn add(&mut self, id: i64) {
        self.calls.retain(|(_, at)| at.elapsed() < MAX_AGE);
        if self.calls.len() == MAX_CALLS {
            self.forgotten = self.calls.pop_front().map(|(_, at)| at);
        }
        self.calls.push_back((id, Instant::now()));
    }

    /// The server has answered the call, and so has stopped it.
    pub(super) fn answered(&mut self, id: i64) {
        self.calls.retain(|(cancelled, _)| *cancelled != id);
    }

    /// Whether a call that may still run was cancelled within this time.
    pub(super) fn any_within(&self, time: Duration) -> bool {
        self.calls.iter().map(|(_, at)| at).chain(&self.forgotten).any(|at| at.elapsed() < time)
    }
}
