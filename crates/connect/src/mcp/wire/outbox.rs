//! The messages that wait to be written to a server, and the task that writes them.
//!
//! In: lines. Out: the same lines in order, to the stdin of the server. A request is refused while too many bytes wait; a
//! notification is not, because there is at most one per request. A server that accepts no byte for the write timeout has failed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    process::ChildStdin,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
};

use super::{exchange::Exchange, message::Violation};

/// Requests and replies are refused while more bytes than this wait. A single larger message may wait alone.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// How many lines are written at once if that many wait.
const MAX_LINES_PER_WRITE: usize = 64;
/// How much of the buffer is kept between writes, in bytes.
const MAX_KEPT_BUFFER: usize = 64 * 1024;

/// The sending end.
#[derive(Clone)]
pub(super) struct Outbox {
    // Bounded by `MAX_QUEUED_BYTES`, see `push`, plus one notification per request.
    lines: UnboundedSender<Line>,
    queued: Arc<AtomicUsize>,
}

/// The receiving end.
pub(super) struct Writer {
    lines: UnboundedReceiver<Line>,
    queued: Arc<AtomicUsize>,
    stdin: ChildStdin,
    timeout: Duration,
}

struct Line {
    text: String,
    exchange: Option<Exchange>,
}

/// Too many bytes wait already.
pub(super) struct Full;

impl Outbox {
    pub(super) fn new(stdin: ChildStdin, timeout: Duration) -> (Self, Writer) {
        let (sender, lines) = mpsc::unbounded_channel();
        let queued = Arc::<AtomicUsize>::default();
        (Self { lines: sender, queued: queued.clone() }, Writer { lines, queued, stdin, timeout })
    }

    /// Queues a request.
    pub(super) fn request(&self, text: String, exchange: Option<Exchange>) -> Result<(), Full> {
        if self.is_full(text.len()) {
            return Err(Full);
        }
        self.push(text, exchange);
        Ok(())
    }

    /// Queues a notification.
    pub(super) fn notification(&self, text: String) {
        self.push(text, None);
    }

    /// Queues the reply to a request of the server.
    pub(super) fn reply(&self, text: String) -> Result<(), Violation> {
        if self.is_full(text.len()) {
            return Err(Violation::RepliesUnread);
        }
        self.push(text, None);
        Ok(())
    }

    fn is_full(&self, bytes: usize) -> bool {
        let queued = self.queued.load(Ordering::Relaxed);
        queued > 0 && queued.saturating_add(bytes) > MAX_QUEUED_BYTES
    }

    fn push(&self, mut text: String, exchange: Option<Exchange>) {
        text.push('\n');
        self.queued.fetch_add(text.len(), Ordering::Relaxed);
        // Fails only after the end of the connection, which the caller waits for.
        let _ = self.lines.send(Line { text, exchange });
    }
}

impl Writer {
    /// Writes until the connection fails. Closes stdin when dropped.
    pub(super) async fn run(&mut self) -> Violation {
        let (mut lines, mut bytes) = (Vec::new(), Vec::new());
        while self.lines.recv_many(&mut lines, MAX_LINES_PER_WRITE).await > 0 {
            lines.iter().for_each(|line| bytes.extend_from_slice(line.text.as_bytes()));
            if let Err(violation) = self.write(&lines, &bytes).await {
                return violation;
            }
            self.queued.fetch_sub(bytes.len(), Ordering::Relaxed);
            lines.clear();
            bytes.clear();
            // A long line must not be held for ever.
            bytes.shrink_to(MAX_KEPT_BUFFER);
        }
        // All senders are gone, so the connection is being closed.
        std::future::pending().await
    }

    /// Writes lines that wait together. A line counts as sent from its first byte on.
    async fn write(&mut self, lines: &[Line], bytes: &[u8]) -> Result<(), Violation> {
        let (mut written, mut begun, mut begin) = (0, lines.iter(), 0);
        while written < bytes.len() {
            match tokio::time::timeout(self.timeout, self.stdin.write(&bytes[written..])).await {
                Ok(Ok(count @ 1..)) => written += count,
                Ok(_) => return Err(Violation::InputClosed),
                Err(_) => return Err(Violation::InputBlocked(self.timeout)),
            }
            while begin < written
                && let Some(line) = begun.next()
            {
                begin += line.text.len();
                if let Some(exchange) = &line.exchange {
                    exchange.mark_sent();
                }
            }
        }
        Ok(())
    }
}
