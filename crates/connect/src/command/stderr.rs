//! What a program writes to its error output: passed on line by line, up to a bound, and the end of it kept.
//!
//! In: bytes, as many as the program likes. Out: lines for `tracing`, and the last few KiB for the error of a call that fails; neither
//! with a secret that the program was given. It is always read, so a program that writes much of it never waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{io::AsyncReadExt, process::ChildStderr, task::JoinHandle};

/// How much of the end is kept.
const TAIL_BYTES: usize = 4 * 1024;
/// How many lines are passed on during one call, and how much of each.
const MAX_LOGGED_LINES: u32 = 200;
const MAX_LINE_BYTES: usize = 1_000;
/// How long the end of a program's words is waited for after it has ended. Only a process it left behind could make it longer.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The error output of one process.
pub(super) struct Stderr {
    captured: Arc<Mutex<Capture>>,
    source: Arc<LogSource>,
    reader: JoinHandle<()>,
}

/// Whose words they are.
pub(super) struct LogSource {
    pub(super) tool: String,
    /// What must not be repeated, the longest first.
    pub(super) secrets: Vec<String>,
}

#[derive(Default)]
struct Capture {
    tail: VecDeque<u8>,
    /// Whether something came before the end that is kept.
    truncated: bool,
    logged_lines: u32,
}

impl Stderr {
    pub(super) fn spawn(pipe: ChildStderr, speaker: LogSource) -> Self {
        let (heard, speaker) = (Arc::<Mutex<Capture>>::default(), Arc::new(speaker));
        let reading = tokio::spawn(read_loop(pipe, heard.clone(), speaker.clone()));
        Self { captured: heard, source: speaker, reader: reading }
    }

    /// Another call begins: what was said before is not about it.
    pub(super) fn begin_call(&self) {
        *lock(&self.captured) = Capture::default();
    }

    /// The end of what was said, for people to read. Waits a moment, for the program has just ended.
    pub(super) async fn tail(&mut self) -> String {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut self.reader).await;
        let (end, cut) = {
            let heard = lock(&self.captured);
            (Vec::from_iter(heard.tail.iter().copied()), heard.truncated)
        };
        let whole = self.source.redact(&end);
        let mut text = whole.trim();
        if cut {
            // Half a secret cannot be recognised, and half a line tells little, unless there is no other.
            text = &text[text.ceil_char_boundary(self.source.max_secret_len())..];
            text = text.split_once('\n').map_or(text, |(_, whole_lines)| whole_lines);
        }
        printable(text.as_bytes())
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
    /// Without secrets. They may hold what is not readable, so this comes before that is replaced.
    fn redact(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.secrets.iter().fold(text, |text, secret| text.replace(secret, "***"))
    }

    /// How many bytes the longest secret has; they stand in this order.
    fn max_secret_len(&self) -> usize {
        self.secrets.first().map_or(0, String::len)
    }
}

async fn read_loop(mut pipe: ChildStderr, heard: Arc<Mutex<Capture>>, speaker: Arc<LogSource>) {
    // A secret is known only as a whole, so more is kept than told.
    let most = MAX_LINE_BYTES + speaker.max_secret_len();
    let (mut chunk, mut line) = (vec![0; TAIL_BYTES], Vec::new());
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let bytes = &chunk[..count];
        lock(&heard).append(bytes);
        for &byte in bytes {
            if byte == b'\n' {
                log_line(&heard, &speaker, &line);
                line.clear();
            } else if line.len() < most {
                line.push(byte);
            }
        }
    }
    if !line.is_empty() {
        log_line(&heard, &speaker, &line);
    }
}

fn log_line(heard: &Mutex<Capture>, speaker: &LogSource, line: &[u8]) {
    let tool = speaker.tool.as_str();
    let told = {
        let mut heard = lock(heard);
        heard.logged_lines = heard.logged_lines.saturating_add(1);
        heard.logged_lines
    };
    if told <= MAX_LOGGED_LINES {
        let mut text = speaker.redact(line);
        let half = if line.len() > MAX_LINE_BYTES { speaker.max_secret_len() } else { 0 };
        text.truncate(text.floor_char_boundary(MAX_LINE_BYTES.min(text.len().saturating_sub(half))));
        tracing::info!(tool, "{}", printable(text.as_bytes()));
    } else if told == MAX_LOGGED_LINES + 1 {
        tracing::info!(
            tool,
            "the program says more than {MAX_LOGGED_LINES} lines in one call; the others are left out here"
        );
    }
}

impl Capture {
    fn append(&mut self, bytes: &[u8]) {
        // A chunk is never longer than what is kept.
        let over = (self.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..over);
        self.truncated |= over > 0;
        self.tail.extend(bytes);
    }
}

/// Text without anything that steers a terminal.
pub(super) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

fn lock(heard: &Mutex<Capture>) -> MutexGuard<'_, Capture> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}
