//! Updates of a running call: progress, log lines and questions, in order and within limits.
//!
//! In: any number of updates. Out: the last few. A server may send faster than a caller reads; the oldest progress and log lines
//! are dropped then, questions are not (the router limits how many are open).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use toolhub_core::InputKind;

use super::question::Question;
use crate::mcp::accepted_input::AcceptedInput;

/// How many updates wait for their reader.
const MAX_QUEUED: usize = 32;

/// What a server says about a running call.
#[derive(Debug)]
pub(crate) enum Update {
    Progress {
        done: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: String,
        text: String,
    },
    Question(Question),
    /// The server asked a question of a kind that the caller does not answer; it was declined.
    DeclinedQuestion(InputKind),
}

/// A queue for the updates of one call. `accepted`: the questions that its reader can answer.
pub(crate) fn updates(accepted: AcceptedInput) -> (UpdateSender, UpdateReceiver) {
    let shared = Arc::new(Shared { queue: Mutex::default(), changed: Notify::new() });
    (UpdateSender { open: Arc::new(Open(shared.clone())), accepted }, UpdateReceiver(shared))
}

#[derive(Clone)]
pub(crate) struct UpdateSender {
    open: Arc<Open>,
    accepted: AcceptedInput,
}

pub(crate) struct UpdateReceiver(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Default)]
struct Queue {
    updates: VecDeque<Update>,
    /// Whether all senders or the receiver are gone.
    closed: bool,
}

/// Closes the queue when the last sender is dropped.
struct Open(Arc<Shared>);

impl UpdateSender {
    /// The questions that the reader can answer.
    pub(crate) fn accepted(&self) -> AcceptedInput {
        self.accepted
    }

    /// Whether the reader can answer a question of this kind.
    pub(crate) fn accepts(&self, kind: InputKind) -> bool {
        self.accepted.contains(kind) && !self.open.0.lock().closed
    }

    pub(super) fn push(&self, update: Update) {
        let dropped = {
            let mut queue = self.open.0.lock();
            if queue.closed {
                Some(update)
            } else {
                let is_note = |update: &Update| !matches!(update, Update::Question(_));
                let oldest = queue.updates.iter().position(is_note).filter(|_| queue.updates.len() >= MAX_QUEUED);
                let dropped = oldest.and_then(|at| queue.updates.remove(at));
                queue.updates.push_back(update);
                dropped
            }
        };
        // A dropped question is declined, which must not happen under the lock.
        drop(dropped);
        self.open.0.changed.notify_one();
    }
}

impl UpdateReceiver {
    /// The next update; `None` after the last one of a call that has ended.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        loop {
            {
                let mut queue = self.0.lock();
                if let Some(update) = queue.updates.pop_front() {
                    return Some(update);
                }
                if queue.closed {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// The next update that has already arrived.
    pub(crate) fn try_next(&mut self) -> Option<Update> {
        self.0.lock().updates.pop_front()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Drop for UpdateReceiver {
    fn drop(&mut self) {
        let unread = {
            let mut queue = self.0.lock();
            queue.closed = true;
            std::mem::take(&mut queue.updates)
        };
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: f64) -> Update {
        Update::Progress { done, total: None, message: None }
    }

    #[tokio::test]
    async fn only_the_last_updates_are_kept_in_order_until_the_call_ends() {
        let (sender, mut receiver) = updates(AcceptedInput::default());
        (0..100_000).for_each(|step| sender.push(progress(f64::from(step))));
        drop(sender);
        let mut seen = Vec::new();
        while let Some(Update::Progress { done, .. }) = receiver.next().await {
            seen.push(done);
        }
        assert_eq!(seen, Vec::from_iter((100_000 - 32..100_000).map(f64::from)));
    }
}
