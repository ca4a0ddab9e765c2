//! Turns what went wrong with a program into the error of a call, in one place.
//!
//! In: how it ended, or what it wrote. Out: a kind, whether anything can have happened, a text for operators with the end of the
//! program's error output. A model reads only what the program itself wrote as its error: the rest may hold paths and secrets.

use std::{fmt, os::unix::process::ExitStatusExt, process::ExitStatus};

use toolhub_core::{Effect, ErrorKind, ToolError};

use super::{
    CommandError, guard,
    output::LimitExceeded,
    response::{ProgramError, ProtocolError, excerpt},
};

/// How a program ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessExit {
    pub(super) status: Option<ExitStatus>,
    pub(super) guarded: bool,
}

impl ProcessExit {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether the guard says that it could not start the program.
    fn is_start_failure(&self) -> bool {
        self.guarded && self.status.is_some_and(|status| status.signal() == Some(guard::START_FAILED_SIGNAL.as_raw()))
    }
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.status else { return f.write_str("ended, nobody knows how,") };
        match (status.code(), status.signal()) {
            // A guard ends by itself and tells the signal in the way a shell does.
            (Some(code @ 129..=192), _) if self.guarded => {
                write!(f, "was ended by signal {} (code {code})", signal_name(code - 128))
            }
            (Some(code), _) => write!(f, "ended with code {code}"),
            (None, Some(signal)) => write!(f, "was ended by signal {}", signal_name(signal)),
            (None, None) => f.write_str("ended"),
        }
    }
}

/// A signal with the name people know.
fn signal_name(signal: i32) -> String {
    let names = [
        (2, "INT"),
        (4, "ILL"),
        (6, "ABRT"),
        (7, "BUS"),
        (8, "FPE"),
        (9, "KILL"),
        (11, "SEGV"),
        (13, "PIPE"),
        (15, "TERM"),
    ];
    match names.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => format!("{signal} (SIG{name})"),
        None => signal.to_string(),
    }
}

/// What went wrong with a program that was started.
#[derive(Debug)]
pub(super) enum Failure {
    /// It ended without an answer: what it had written of one, if anything, and whether it may have read what it was asked.
    Exited { exit: ProcessExit, output: Vec<u8>, request_read: bool },
    /// It ended with a code that says it failed, and said why.
    Reported(ProgramError),
    /// It wrote too much, and was killed.
    LimitExceeded(LimitExceeded),
    /// It wrote something else than an answer.
    Protocol(ProtocolError),
}

impl Failure {
    /// The error of the call, with what the program said last.
    pub(super) fn into_tool_error(self, stderr: &str) -> ToolError {
        let (kind, text) = match self {
            Self::Reported(raised) => return raised.into(),
            Self::Exited { exit: end, .. } if end.is_start_failure() => {
                let text = format!("the program could not be started: {}", stderr_note(stderr));
                return ToolError::new(text).hide_from_model().effect(Effect::None);
            }
            Self::Exited { exit: end, request_read: false, .. } => {
                let text = format!("the program {end} before it read what it was asked; {}", stderr_note(stderr));
                return ToolError::with_kind(ErrorKind::Crashed, text).hide_from_model().effect(Effect::None);
            }
            Self::Exited { exit: end, output: written, .. } => (ErrorKind::Crashed, exit_message(end, &written)),
            Self::LimitExceeded(LimitExceeded::Output(most)) => {
                let text = format!(
                    "the program wrote more than {most} bytes to its output and was killed; let it write less, or raise \
                     `max_output`"
                );
                (ErrorKind::ToolError, text)
            }
            Self::LimitExceeded(LimitExceeded::Line(most)) => {
                let text = format!(
                    "the program wrote a line of more than {most} bytes and was killed; let it write less, or raise `max_line`"
                );
                (ErrorKind::ToolError, text)
            }
            Self::Protocol(bad) => (ErrorKind::ToolError, format!("the program's answer cannot be read: {bad}")),
        };
        ToolError::with_kind(kind, format!("{text}; {}", stderr_note(stderr))).hide_from_model()
    }
}

fn exit_message(end: ProcessExit, written: &[u8]) -> String {
    match written.trim_ascii() {
        [] => format!("the program {end} and had not answered; mend what its error output tells"),
        written => format!("the program {end} in the middle of its answer, which begins with `{}`", excerpt(written)),
    }
}

fn stderr_note(stderr: &str) -> String {
    match stderr {
        "" => "its error output is empty".into(),
        text => format!("its error output ends with:\n{text}"),
    }
}

/// The error of a call whose program could not be started: nothing has happened.
pub(super) fn start_error(error: &CommandError) -> ToolError {
    // A full system may have room in a moment; a wrong setting stays wrong.
    let kind = if matches!(error, CommandError::Full(_)) { ErrorKind::Overloaded } else { ErrorKind::ToolError };
    ToolError::with_kind(kind, error.to_string()).hide_from_model().effect(Effect::None)
}
