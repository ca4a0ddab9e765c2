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
const KEPT: usize = 4 * 1024;
/// How many lines are passed on during one call, and how much of each.
const LINES: u32 = 200;
const LINE: usize = 1_000;
/// How long the end of a program's words is waited for after it has ended. Only a process it left behind could make it longer.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The error output of one process.
pub(super) struct Stderr {
    heard: Arc<Mutex<Heard>>,
    speaker: Arc<Speaker>,
    reading: JoinHandle<()>,
}

/// Whose words they are.
pub(super) struct Speaker {
    pub(super) tool: String,
    /// What must not be repeated, the longest first.
    pub(super) secrets: Vec<String>,
}

#[derive(Default)]
struct Heard {
    end: VecDeque<u8>,
    /// Whether something came before the end that is kept.
    cut: bool,
    told: u32,
}

impl Stderr {
    pub(super) fn listen(pipe: ChildStderr, speaker: Speaker) -> Self {
        let (heard, speaker) = (Arc::<Mutex<Heard>>::default(), Arc::new(speaker));
        let reading = tokio::spawn(read(pipe, heard.clone(), speaker.clone()));
        Self { heard, speaker, reading }
    }

    /// Another call begins: what was said before is not about it.
    pub(super) fn next_call(&self) {
        *lock(&self.heard) = Heard::default();
    }

    /// The end of what was said, for people to read. Waits a moment, for the program has just ended.
    pub(super) async fn last_words(&mut self) -> String {
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.reading).await;
        let (end, cut) = {
            let heard = lock(&self.heard);
            (Vec::from_iter(heard.end.iter().copied()), heard.cut)
        };
        let whole = self.speaker.hidden(&end);
        let mut text = whole.trim();
        if cut {
            // Half a secret cannot be recognised, and half a line tells little, unless there is no other.
            text = &text[text.ceil_char_boundary(self.speaker.longest())..];
            text = text.split_once('\n').map_or(text, |(_, whole_lines)| whole_lines);
        }
        readable(text.as_bytes())
    }

    /// The same bytes without the secrets of the program.
    pub(super) fn hide(&self, bytes: &[u8]) -> Vec<u8> {
        self.speaker.hidden(bytes).into_bytes()
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Speaker {
    /// Without secrets. They may hold what is not readable, so this comes before that is replaced.
    fn hidden(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.secrets.iter().fold(text, |text, secret| text.replace(secret, "***"))
    }

    /// How many bytes the longest secret has; they stand in this order.
    fn longest(&self) -> usize {
        self.secrets.first().map_or(0, String::len)
    }
}

async fn read(mut pipe: ChildStderr, heard: Arc<Mutex<Heard>>, speaker: Arc<Speaker>) {
    // A secret is known only as a whole, so more is kept than told.
    let most = LINE + speaker.longest();
    let (mut chunk, mut line) = (vec![0; KEPT], Vec::new());
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let bytes = &chunk[..count];
        lock(&heard).keep(bytes);
        for &byte in bytes {
            if byte == b'\n' {
                tell(&heard, &speaker, &line);
                line.clear();
            } else if line.len() < most {
                line.push(byte);
            }
        }
    }
    if !line.is_empty() {
        tell(&heard, &speaker, &line);
    }
}

fn tell(heard: &Mutex<Heard>, speaker: &Speaker, line: &[u8]) {
    let tool = speaker.tool.as_str();
    let told = {
        let mut heard = lock(heard);
        heard.told = heard.told.saturating_add(1);
        heard.told
    };
    if told <= LINES {
        let mut text = speaker.hidden(line);
        let half = if line.len() > LINE { speaker.longest() } else { 0 };
        text.truncate(text.floor_char_boundary(LINE.min(text.len().saturating_sub(half))));
        tracing::info!(tool, "{}", readable(text.as_bytes()));
    } else if told == LINES + 1 {
        tracing::info!(tool, "the program says more than {LINES} lines in one call; the others are left out here");
    }
}

impl Heard {
    fn keep(&mut self, bytes: &[u8]) {
        // A chunk is never longer than what is kept.
        let over = (self.end.len() + bytes.len()).saturating_sub(KEPT);
        self.end.drain(..over);
        self.cut |= over > 0;
        self.end.extend(bytes);
    }
}

/// Text without anything that steers a terminal.
pub(super) fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}
