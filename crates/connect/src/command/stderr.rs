//! Reads a program's stderr: passes it on line by line, and captures its tail.
//!
//! In: any number of bytes. Out: lines for a [`LineSink`], and the last few KiB for the error of a failed call, both with the
//! program's secrets redacted. A task always drains the pipe, so a program never blocks on stderr.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{io::AsyncReadExt, process::ChildStderr, task::JoinHandle};

use super::environment::ProgramSecrets;

/// Size of the captured tail.
const TAIL_BYTES: usize = 4 * 1024;
/// How many lines are logged per call, and how many bytes of each.
const MAX_LOGGED_LINES: u32 = 200;
const MAX_LINE_BYTES: usize = 1_000;
/// How long to drain stderr after the exit. It takes longer only if a process that the program left behind holds the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The stderr of one process.
pub(crate) struct Stderr {
    captured: Arc<Mutex<Capture>>,
    source: Arc<LogSource>,
    reader: JoinHandle<()>,
}

/// The secrets of a program, and where its lines go.
pub(super) struct LogSource {
    pub(super) secrets: Arc<ProgramSecrets>,
    pub(super) sink: LineSink,
}

/// Where the lines of stderr go.
pub(crate) enum LineSink {
    /// To the log, under the name of a tool, up to [`MAX_LOGGED_LINES`] per call.
    Log { tool: String },
    /// To a function, all of them.
    #[cfg(feature = "mcp")]
    Function(Box<dyn Fn(String) + Send + Sync>),
}

impl LineSink {
    pub(super) fn log(tool: &str) -> Self {
        Self::Log { tool: tool.to_owned() }
    }
}

#[derive(Default)]
struct Capture {
    tail: VecDeque<u8>,
    /// Whether `tail` has lost its beginning.
    truncated: bool,
    logged_lines: u32,
}

impl Stderr {
    pub(super) fn spawn(pipe: ChildStderr, source: LogSource) -> Self {
        let (captured, source) = (Arc::<Mutex<Capture>>::default(), Arc::new(source));
        // Not supervised: it ends with its process, and what a panic has read cannot be read again.
        let reader = tokio::spawn(read_loop(pipe, captured.clone(), source.clone()));
        Self { captured, source, reader }
    }

    /// Clears the capture, which belongs to the previous call.
    pub(super) fn begin_call(&self) {
        *lock(&self.captured) = Capture::default();
    }

    /// The captured tail, redacted and printable. Waits up to [`DRAIN_TIMEOUT`], since the program may have exited just now.
    pub(crate) async fn tail(&mut self) -> String {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut self.reader).await;
        let (tail, truncated) = {
            let captured = lock(&self.captured);
            (Vec::from_iter(captured.tail.iter().copied()), captured.truncated)
        };
        let redacted = self.source.redact(&tail);
        let mut text = redacted.trim();
        if truncated {
            // The tail may begin in the middle of a secret, which cannot be recognised. It also drops a partial first line, unless
            // that is the only one.
            text = &text[text.ceil_char_boundary(self.source.secrets.all.max_len())..];
            text = text.split_once('\n').map_or(text, |(_, whole_lines)| whole_lines);
        }
        printable(text.as_bytes())
    }

    /// The secrets of the program.
    pub(crate) fn secrets(&self) -> &Arc<ProgramSecrets> {
        &self.source.secrets
    }

    /// The same bytes without the secrets of the program.
    pub(super) fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        self.source.redact(bytes).into_bytes()
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl LogSource {
    /// Replaces secrets. Must run before [`printable`], because secrets may contain control characters.
    fn redact(&self, bytes: &[u8]) -> String {
        self.secrets.all.text(String::from_utf8_lossy(bytes)).into_owned()
    }

    /// A line without secrets and control characters, of at most [`MAX_LINE_BYTES`].
    fn printable_line(&self, line: &[u8]) -> String {
        let mut text = self.redact(line);
        // A line that was cut may end in the middle of a secret.
        let partial_secret = if line.len() > MAX_LINE_BYTES { self.secrets.all.max_len() } else { 0 };
        text.truncate(text.floor_char_boundary(MAX_LINE_BYTES.min(text.len().saturating_sub(partial_secret))));
        printable(text.as_bytes())
    }

    fn pass_on(&self, captured: &Mutex<Capture>, line: &[u8]) {
        match &self.sink {
            LineSink::Log { tool } => {
                let lines = lock(captured).count_line();
                if lines <= MAX_LOGGED_LINES {
                    tracing::info!(tool, "{}", self.printable_line(line));
                } else if lines == MAX_LOGGED_LINES + 1 {
                    tracing::info!(
                        tool,
                        "program wrote more than {MAX_LOGGED_LINES} lines to stderr in one call; dropping the rest"
                    );
                }
            }
            #[cfg(feature = "mcp")]
            LineSink::Function(function) => function(self.printable_line(line)),
        }
    }
}

async fn read_loop(mut pipe: ChildStderr, captured: Arc<Mutex<Capture>>, source: Arc<LogSource>) {
    // Only a complete secret can be recognised, so a line is buffered beyond what is logged of it.
    let max_buffered = MAX_LINE_BYTES + source.secrets.all.max_len();
    let (mut chunk, mut line) = (vec![0; TAIL_BYTES], Vec::new());
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let bytes = &chunk[..count];
        lock(&captured).append(bytes);
        for &byte in bytes {
            if byte == b'\n' {
                source.pass_on(&captured, &line);
                line.clear();
            } else if line.len() < max_buffered {
                line.push(byte);
            }
        }
    }
    if !line.is_empty() {
        source.pass_on(&captured, &line);
    }
}

impl Capture {
    fn count_line(&mut self) -> u32 {
        self.logged_lines = self.logged_lines.saturating_add(1);
        self.logged_lines
    }

    fn append(&mut self, bytes: &[u8]) {
        // A chunk is never longer than the tail, see `read_loop`.
        let excess = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.truncated |= excess > 0;
        self.tail.extend(bytes);
    }
}

/// Replaces control characters, which could drive a terminal.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

fn lock(captured: &Mutex<Capture>) -> MutexGuard<'_, Capture> {
    captured.lock().unwrap_or_else(PoisonError::into_inner)
}
