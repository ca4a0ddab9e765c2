//! The sign that something goes on, for a person who waits.
//!
//! In: what is waited for. Out: one line on stderr that turns, from the third part of a second on, and is gone when it is
//! over. Only on a terminal.

use std::{
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use tokio::task::JoinHandle;

use super::{Show, plain};

const SIGNS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const LETTERS: [&str; 4] = ["-", "\\", "|", "/"];
/// Whoever waits less sees nothing.
const PATIENCE: Duration = Duration::from_millis(300);
const TURN: Duration = Duration::from_millis(90);

/// Turns until it is dropped.
#[must_use = "it is gone when dropped"]
pub(crate) struct Spinner(Option<JoinHandle<()>>);

impl Spinner {
    /// Begins to turn, if there is somebody to see it.
    pub(crate) fn start(show: &Show, what: &str) -> Self {
        if show.json || show.quiet || !io::stderr().is_terminal() {
            return Self(None);
        }
        let (what, signs) = (plain(what), if show.ascii { &LETTERS[..] } else { &SIGNS[..] });
        Self(Some(tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            let began = tokio::time::Instant::now();
            for sign in signs.iter().cycle() {
                let seconds = (began.elapsed() + PATIENCE).as_secs();
                let _ = write!(io::stderr(), "\r\x1b[K{sign} {what} {seconds}s");
                let _ = io::stderr().flush();
                tokio::time::sleep(TURN).await;
            }
        })))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(turning) = self.0.take() {
            turning.abort();
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
