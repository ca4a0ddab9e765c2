//! A spinner for a waiting user.
//!
//! In: a label. Out: one animated line on stderr, shown after 300 ms and erased at the end. Only on a terminal.

use std::{
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use tokio::task::JoinHandle;

use super::{Printer, strip_hidden};

const UNICODE_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const ASCII_FRAMES: [&str; 4] = ["-", "\\", "|", "/"];
/// Shorter waits show no spinner.
const START_DELAY: Duration = Duration::from_millis(300);
const FRAME_INTERVAL: Duration = Duration::from_millis(90);

/// Spins until it is dropped.
#[must_use = "the spinner stops when dropped"]
pub(crate) struct Spinner(Option<JoinHandle<()>>);

impl Spinner {
    /// Starts the spinner, if stderr is a terminal.
    pub(crate) fn start(printer: &Printer, label: &str) -> Self {
        if printer.json || printer.quiet || !io::stderr().is_terminal() {
            return Self(None);
        }
        let (label, frames) =
            (strip_hidden(label), if printer.ascii { &ASCII_FRAMES[..] } else { &UNICODE_FRAMES[..] });
        // Not supervised: it lives as long as one command and only draws.
        Self(Some(tokio::spawn(async move {
            tokio::time::sleep(START_DELAY).await;
            let started = tokio::time::Instant::now();
            for frame in frames.iter().cycle() {
                let seconds = (started.elapsed() + START_DELAY).as_secs();
                let _ = write!(io::stderr(), "\r\x1b[K{frame} {label} {seconds}s");
                let _ = io::stderr().flush();
                tokio::time::sleep(FRAME_INTERVAL).await;
            }
        })))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
