//! The sign that something goes on, for a person who waits.
//!
//! In: what is waited for. Out: one line on stderr that turns, from the third part of a second on, and is gone when it is
//! over. Only on a terminal.

use std::{
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use tokio::task::JoinHandle;

use super::{Printer, strip_control_chars};

const UNICODE_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const ASCII_FRAMES: [&str; 4] = ["-", "\\", "|", "/"];
/// Whoever waits less sees nothing.
const START_DELAY: Duration = Duration::from_millis(300);
const FRAME_INTERVAL: Duration = Duration::from_millis(90);

/// Turns until it is dropped.
#[must_use = "it is gone when dropped"]
pub(crate) struct Spinner(Option<JoinHandle<()>>);

impl Spinner {
    /// Begins to turn, if there is somebody to see it.
    pub(crate) fn start(show: &Printer, what: &str) -> Self {
        if show.json || show.quiet || !io::stderr().is_terminal() {
            return Self(None);
        }
        let (what, signs) =
            (strip_control_chars(what), if show.ascii { &ASCII_FRAMES[..] } else { &UNICODE_FRAMES[..] });
        Self(Some(tokio::spawn(async move {
            tokio::time::sleep(START_DELAY).await;
            let began = tokio::time::Instant::now();
            for sign in signs.iter().cycle() {
                let seconds = (began.elapsed() + START_DELAY).as_secs();
                let _ = write!(io::stderr(), "\r\x1b[K{sign} {what} {seconds}s");
                let _ = io::stderr().flush();
                tokio::time::sleep(FRAME_INTERVAL).await;
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
