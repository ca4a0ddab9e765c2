//! Where the answers to questions come from: the person at the keyboard, or a script where nobody can be there.
//!
//! In: a prompt. Out: the line that was typed, or `None` when no more will come. What a line means is for others to say.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal},
};

use toolhub::ids::{Caller, IdError};

use super::print;
use crate::approval_prompt::StdinLines;

/// Gives one line for each prompt.
pub(super) enum AnswerSource {
    /// Lines as they are typed.
    Keyboard(StdinLines),
    /// Lines that were written before.
    Script(VecDeque<&'static str>),
}

impl AnswerSource {
    /// The person, if there is a terminal to ask and to answer on; the script otherwise.
    pub(super) fn detect(script: impl IntoIterator<Item = &'static str>) -> Self {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Self::Keyboard(StdinLines::spawn_reader())
        } else {
            Self::Script(script.into_iter().collect())
        }
    }

    /// Whether a person answers.
    pub(super) fn is_interactive(&self) -> bool {
        matches!(self, Self::Keyboard(_))
    }

    /// Who answers.
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
