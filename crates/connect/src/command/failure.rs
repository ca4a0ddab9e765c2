//! Maps every failure of a program to the `ToolError` of its call.
//!
//! In: the exit status, or the invalid output. Out: an error kind, the effect, and a text for operators with the tail of stderr.
//! The model sees only an error that the program itself reported: the rest may contain paths and secrets.

use std::{fmt, os::unix::process::ExitStatusExt, process::ExitStatus};

use toolhub_core::{Effect, ErrorKind, ToolError};

use super::{
    CommandError, guard,
    output::LimitExceeded,
    response::{ProgramError, ProtocolError, excerpt},
};

/// How a program ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessExit {
    pub(super) status: Option<ExitStatus>,
    pub(super) guarded: bool,
    /// It closed stdout without exiting, and was killed for that.
    pub(super) has_closed_stdout: bool,
}

impl ProcessExit {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether the guard could not start the program.
    pub(crate) fn is_start_failure(&self) -> bool {
        self.guarded && self.status.is_some_and(|status| status.signal() == Some(guard::START_FAILED_SIGNAL.as_raw()))
    }
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_closed_stdout {
            return f.write_str("closed stdout without exiting, and was killed");
        }
        let Some(status) = self.status else { return f.write_str("exited with an unknown status") };
        match (status.code(), status.signal()) {
            // The guard reports the signal that killed the program as 128 + signal, like a shell.
            (Some(code @ 129..=192), _) if self.guarded => {
                write!(f, "was killed by signal {} (code {code})", signal_name(code - 128))
            }
            (Some(code), _) => write!(f, "exited with code {code}"),
            (None, Some(signal)) => write!(f, "was killed by signal {}", signal_name(signal)),
            (None, None) => f.write_str("exited"),
        }
    }
}

/// The number of a signal, with its name and likely cause if it is a common one.
fn signal_name(signal: i32) -> String {
    let names = [
        (2, "INT"),
        (4, "ILL"),
        (6, "ABRT"),
        (7, "BUS"),
        (8, "FPE"),
        // The kernel's out-of-memory killer sends it.
        (9, "KILL, possibly out of memory"),
        (11, "SEGV"),
        (13, "PIPE"),
        (15, "TERM"),
    ];
    match names.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => format!("{signal} (SIG{name})"),
        None => signal.to_string(),
    }
}

/// Why a program that was started gave no usable response.
#[derive(Debug)]
pub(super) enum Failure {
    /// It exited without a complete response: the partial output, and whether it may have read the request.
    Exited { exit: ProcessExit, output: Vec<u8>, request_read: bool },
    /// It exited with a nonzero code and reported an error.
    Reported(ProgramError),
    /// It exceeded an output limit and was killed.
    LimitExceeded(LimitExceeded),
    /// Its output violates the protocol.
    Protocol(ProtocolError),
}

impl Failure {
    /// The error of the call, with the tail of stderr.
    pub(super) fn into_tool_error(self, stderr: &str) -> ToolError {
        let (kind, text) = match self {
            Self::Reported(error) => return error.into(),
            Self::Exited { exit, .. } if exit.is_start_failure() => {
                let text = format!("the program could not be started: {}", stderr_note(stderr));
                return ToolError::new(text).hide_from_model().effect(Effect::None);
            }
            Self::Exited { exit, request_read: false, .. } => {
                let text = format!("the program {exit} before it read the request; {}", stderr_note(stderr));
                return ToolError::with_kind(ErrorKind::Crashed, text).hide_from_model().effect(Effect::None);
            }
            Self::Exited { exit, output, .. } => (ErrorKind::Crashed, exit_message(exit, &output)),
            Self::LimitExceeded(LimitExceeded::Output(limit)) => {
                let text = format!(
                    "the program wrote more than {limit} bytes to stdout and was killed; make it write less, or raise `max_output`"
                );
                (ErrorKind::ToolError, text)
            }
            Self::LimitExceeded(LimitExceeded::Line(limit)) => {
                let text = format!(
                    "the program wrote a line of more than {limit} bytes and was killed; make it write less, or raise `max_line`"
                );
                (ErrorKind::ToolError, text)
            }
            Self::Protocol(error) => (ErrorKind::ToolError, format!("the program violated the protocol: {error}")),
        };
        ToolError::with_kind(kind, format!("{text}; {}", stderr_note(stderr))).hide_from_model()
    }
}

fn exit_message(exit: ProcessExit, output: &[u8]) -> String {
    match output.trim_ascii() {
        [] => format!("the program {exit} without a response"),
        output => format!("the program {exit} in the middle of its response, which begins with `{}`", excerpt(output)),
    }
}

fn stderr_note(stderr: &str) -> String {
    match stderr {
        "" => "its stderr is empty".into(),
        text => format!("its stderr ends with:\n{text}"),
    }
}

/// The error of a call whose program could not be started, so it had no effect.
pub(super) fn start_error(error: &CommandError) -> ToolError {
    // Resource exhaustion is transient; an invalid setting is not.
    let kind = if matches!(error, CommandError::Full(_)) { ErrorKind::Overloaded } else { ErrorKind::ToolError };
    ToolError::with_kind(kind, error.to_string()).hide_from_model().effect(Effect::None)
}
