//! The events of this node that other nodes want.
//!
//! In: events as they are emitted, and which nodes follow which threads. Out: the events in followed threads, in portions. Bounded: when
//! other nodes follow more than can be written, the oldest events give way and the next portion says so.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use smol_str::SmolStr;
use tokio::{sync::Notify, time::Instant};

use super::super::Event;
use toolhub_types::{event_kind::EventKind, ids::ThreadKey};

/// Size of the events that wait at most.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Size of a portion. A single event that is larger is not passed on.
const MAX_PORTION_BYTES: usize = 256 << 10;

/// Shared by the bus, which queues events, and the relay, which writes them.
#[derive(Default)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    /// Whether any thread is followed. Beside the lock, because every event of a call asks.
    has_followers: AtomicBool,
    queued: Notify,
}

#[derive(Default)]
struct State {
    /// The nodes that follow each thread, and until when unless they renew it.
    followers: HashMap<ThreadKey, HashMap<SmolStr, Instant>>,
    events: VecDeque<(Arc<Event>, usize)>,
    /// The size of the events.
    bytes: usize,
    /// Whether events were lost that come before the queued ones.
    is_incomplete: bool,
}

impl Outgoing {
    /// Whether another node follows a thread.
    pub(crate) fn has_followers(&self) -> bool {
        self.has_followers.load(Ordering::Relaxed)
    }

    /// Queues the event if another node follows its thread.
    pub(crate) fn push(&self, event: &Event) {
        if !self.has_followers() || !event.kind.is_relayed() {
            return;
        }
        let Some(thread) = event.thread_key() else { return };
        let mut state = self.lock();
        if !state.followers.contains_key(&thread) {
            return;
        }
        let bytes = size(&event.kind);
        if bytes > MAX_PORTION_BYTES {
            state.is_incomplete = true;
        } else {
            state.events.push_back((Arc::new(event.clone()), bytes));
            state.bytes += bytes;
        }
        while state.bytes > MAX_QUEUED_BYTES {
            state.pop();
            state.is_incomplete = true;
        }
        drop(state);
        self.queued.notify_one();
    }

    /// Records that a node follows a thread until this time, or that it no longer does.
    pub(super) fn set_follower(&self, thread: ThreadKey, node: SmolStr, until: Option<Instant>) {
        let mut state = self.lock();
        match until {
            Some(until) => _ = state.followers.entry(thread).or_default().insert(node, until),
            None => {
                if let Some(nodes) = state.followers.get_mut(&thread) {
                    nodes.remove(&node);
                    if nodes.is_empty() {
                        state.followers.remove(&thread);
                    }
                }
            }
        }
        self.update_followers(&mut state);
    }

    /// Forgets followers that have not renewed their rows.
    pub(super) fn remove_expired(&self, now: Instant) {
        let mut state = self.lock();
        state.followers.retain(|_, nodes| {
            nodes.retain(|_, until| *until > now);
            !nodes.is_empty()
        });
        self.update_followers(&mut state);
    }

    fn update_followers(&self, state: &mut State) {
        let has_followers = !state.followers.is_empty();
        if !has_followers {
            (state.events, state.bytes, state.is_incomplete) = (VecDeque::new(), 0, false);
        }
        self.has_followers.store(has_followers, Ordering::Relaxed);
    }

    /// Waits until there is something to write, at least until this time. May be cancelled.
    pub(super) async fn ready(&self, at: Instant) {
        loop {
            if self.is_waiting() {
                return tokio::time::sleep_until(at).await;
            }
            self.queued.notified().await;
        }
    }

    /// The next portion, and whether events before it were lost.
    pub(super) fn take(&self) -> Option<(Vec<Arc<Event>>, bool)> {
        let mut state = self.lock();
        if !state.is_waiting() {
            return None;
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        while let Some((_, next)) = state.events.front()
            && (events.is_empty() || bytes + next <= MAX_PORTION_BYTES)
        {
            bytes += next;
            events.extend(state.pop());
        }
        Some((events, std::mem::take(&mut state.is_incomplete)))
    }

    /// Records that a portion was not written.
    pub(super) fn mark_incomplete(&self) {
        self.lock().is_incomplete = true;
    }

    fn is_waiting(&self) -> bool {
        self.lock().is_waiting()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_waiting(&self) -> bool {
        !self.events.is_empty() || self.is_incomplete
    }

    fn pop(&mut self) -> Option<Arc<Event>> {
        let (event, bytes) = self.events.pop_front()?;
        self.bytes -= bytes;
        Some(event)
    }
}

/// About the size of an event as JSON.
fn size(kind: &EventKind) -> usize {
    const NAMES: usize = 300;
    NAMES
        + match kind {
            EventKind::CallProgress { message, .. }
            | EventKind::CallLog { message, .. }
            | EventKind::ExecutionFailed { message, .. }
            | EventKind::RunFailed { message, .. } => message.len(),
            EventKind::MessageDelta { text, .. } => text.len(),
            EventKind::MessageCompleted { content, calls, .. } => {
                content.len() + calls.iter().map(|call| NAMES + call.arguments.to_string().len()).sum::<usize>()
            }
            _ => 0,
        }
}
