//! The messages of one event stream, for as many readers as there are, also later ones.
//!
//! In: messages in order. Out: the same messages with their numbers, from any number on. A writer never waits for a reader: beyond a
//! limit the oldest messages are dropped, except the last one.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, time::Instant};

/// Maximum number of messages that are kept for readers.
const MAX_MESSAGES: usize = 256;
/// Maximum size of the messages that are kept, in bytes. A single larger one is kept alone.
const MAX_BYTES: usize = 1024 * 1024;

/// The messages of one stream.
#[derive(Default)]
pub(super) struct MessageLog {
    messages: Mutex<Messages>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct Messages {
    kept: VecDeque<Arc<str>>,
    /// The number of the oldest one that is kept.
    first: usize,
    bytes: usize,
    ended_at: Option<Instant>,
}

impl MessageLog {
    /// Adds a message, unless the log has ended.
    pub(super) fn push(&self, message: String) {
        self.lock().push(message);
        self.changes.send_replace(());
    }

    /// No message follows, except this one.
    pub(super) fn end(&self, last: Option<String>) {
        {
            let mut messages = self.lock();
            if let Some(last) = last {
                messages.push(last);
            }
            messages.ended_at.get_or_insert_with(Instant::now);
        }
        self.changes.send_replace(());
    }

    /// When the last message was added, if no other follows.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.lock().ended_at
    }

    /// Reads from the message with this number on.
    pub(super) fn read_from(self: &Arc<Self>, number: usize) -> Reader {
        Reader { log: self.clone(), next: number, changes: self.changes.subscribe() }
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Messages {
    fn push(&mut self, message: String) {
        if self.ended_at.is_some() {
            return;
        }
        self.bytes += message.len();
        self.kept.push_back(message.into());
        while self.kept.len() > 1 && (self.kept.len() > MAX_MESSAGES || self.bytes > MAX_BYTES) {
            self.first += 1;
            self.bytes -= self.kept.pop_front().map_or(0, |dropped| dropped.len());
        }
    }
}

/// A reader of a log.
pub(super) struct Reader {
    log: Arc<MessageLog>,
    next: usize,
    changes: watch::Receiver<()>,
}

impl Reader {
    /// Whether no message follows.
    pub(super) fn is_at_end(&self) -> bool {
        let messages = self.log.lock();
        messages.ended_at.is_some() && self.next >= messages.first + messages.kept.len()
    }

    /// The next message and its number, and whether it is the last; `None` after that. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<(usize, Arc<str>, bool)> {
        loop {
            self.changes.mark_unchanged();
            {
                let messages = self.log.lock();
                self.next = self.next.max(messages.first);
                let index = self.next - messages.first;
                if let Some(message) = messages.kept.get(index) {
                    let is_last = messages.ended_at.is_some() && index + 1 == messages.kept.len();
                    self.next += 1;
                    return Some((self.next - 1, message.clone(), is_last));
                }
                if messages.ended_at.is_some() {
                    return None;
                }
            }
            // The sender is part of the log, which is held here.
            self.changes.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readers_get_all_messages_from_their_number_on() {
        let log = Arc::new(MessageLog::default());
        let mut early = log.read_from(0);
        log.push("a".into());
        assert_eq!(early.next().await, Some((0, "a".into(), false)));
        let waiting = tokio::spawn(async move { (early.next().await, early.next().await) });
        log.end(Some("b".into()));
        assert!(matches!(waiting.await.unwrap(), (Some((1, _, _)), None)));
        let mut late = log.read_from(1);
        assert_eq!((late.next().await, late.next().await), (Some((1, "b".into(), true)), None));
        assert!(log.read_from(2).is_at_end() && !log.read_from(1).is_at_end());
        assert_eq!(log.read_from(7).next().await, None);
        log.push("late".into());
        log.end(Some("later".into()));
        assert!(log.read_from(2).is_at_end());
    }

    #[tokio::test]
    async fn what_is_not_read_is_dropped_from_the_oldest_on() {
        let log = Arc::new(MessageLog::default());
        (0..MAX_MESSAGES + 10).for_each(|number| log.push(number.to_string()));
        assert_eq!(log.read_from(0).next().await, Some((10, "10".into(), false)));
        log.end(Some("x".repeat(2 * MAX_BYTES)));
        let last = log.read_from(0).next().await.unwrap();
        assert_eq!((last.0, last.1.len(), last.2), (MAX_MESSAGES + 10, 2 * MAX_BYTES, true));
    }
}
