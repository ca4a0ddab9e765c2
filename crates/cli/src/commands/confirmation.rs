//! Asks a person at the terminal whether to go on.

use std::io::{self, IsTerminal as _};

use super::call::approval_dialog::prompt_line;
use crate::{approval_prompt::StdinLines, failure::Failure, session::Session};

/// Whether the person agrees.
///
/// # Errors
/// `refusal`, if there is no terminal to ask at.
pub(super) async fn confirm(session: &Session, question: &str, refusal: Failure) -> Result<bool, Failure> {
    if session.global.no_input || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(refusal);
    }
    let answer = prompt_line(&format!("{question} [y/N] "), &mut StdinLines::spawn_reader()).await;
    Ok(answer.is_some_and(|answer| matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
}
