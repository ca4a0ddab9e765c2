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
        while let Some(line) = self.lines.recv().await {
            let mut rest = line.text.as_bytes();
            while !rest.is_empty() {
                match tokio::time::timeout(self.timeout, self.stdin.write(rest)).await {
                    Ok(Ok(count @ 1..)) => rest = &rest[count..],
                    Ok(_) => return Violation::InputClosed,
                    Err(_) => return Violation::InputBlocked(self.timeout),
                }
                if let Some(exchange) = &line.exchange {
                    exchange.mark_sent();
                }
            }
            self.queued.fetch_sub(line.text.len(), Ordering::Relaxed);
        }
        // All senders are gone, so the connection is being closed.
        std::future::pending().await
    }
}
