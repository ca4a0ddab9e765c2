//! The source of answers to prompts: the user at a terminal, or a script elsewhere.
//!
//! In: a prompt. Out: a line, or `None` at the end. The caller parses it.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal},
};

use toolhub::ids::{Caller, IdError};

use super::print;
use crate::approval_prompt::StdinLines;

/// Returns one line per prompt.
pub(super) enum AnswerSource {
    /// Typed lines.
    Keyboard(StdinLines),
    /// Scripted lines.
    Script(VecDeque<&'static str>),
}

impl AnswerSource {
    /// The user, if stdin and stdout are terminals; the script otherwise.
    pub(super) fn detect(script: impl IntoIterator<Item = &'static str>) -> Self {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Self::Keyboard(StdinLines::spawn_reader())
        } else {
            Self::Script(script.into_iter().collect())
        }
    }

    /// Whether a user answers.
    pub(super) fn is_interactive(&self) -> bool {
        matches!(self, Self::Keyboard(_))
    }

    /// The caller who answers.
    pub(super) fn answered_by(&self) -> Result<Caller, IdError> {
        Caller::new(if self.is_interactive() { "you" } else { "script" })
    }

    /// Shows the prompt and waits for a line.
    pub(super) async fn next(&mut self, prompt: &str) -> Option<String> {
        print::prompt(prompt);
        let line = match self {
            Self::Keyboard(lines) => lines.next().await,
            Self::Script(lines) => lines.pop_front().map(String::from).inspect(|line| print::echo(line)),
        };
        if line.is_none() {
            print::echo("");
        }
        line
    }
}
