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
use toolhub_types::ids::ThreadKey;

/// Number of events that wait at most.
const MAX_QUEUED: usize = 4096;
/// Number of events per portion.
const MAX_PORTION: usize = 256;

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
    events: VecDeque<Arc<Event>>,
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
        if state.events.len() == MAX_QUEUED {
            state.events.pop_front();
            state.is_incomplete = true;
        }
        state.events.push_back(Arc::new(event.clone()));
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
        self.has_followers.store(!state.followers.is_empty(), Ordering::Relaxed);
    }

    /// Forgets followers that have not renewed their rows.
    pub(super) fn remove_expired(&self, now: Instant) {
        let mut state = self.lock();
        state.followers.retain(|_, nodes| {
            nodes.retain(|_, until| *until > now);
            !nodes.is_empty()
        });
        self.has_followers.store(!state.followers.is_empty(), Ordering::Relaxed);
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
        if state.events.is_empty() {
            return None;
        }
        let count = state.events.len().min(MAX_PORTION);
        let events = state.events.drain(..count).collect();
        Some((events, std::mem::take(&mut state.is_incomplete)))
    }

    /// Records that a portion was not written.
    pub(super) fn mark_incomplete(&self) {
        self.lock().is_incomplete = true;
    }

    fn is_waiting(&self) -> bool {
        !self.lock().events.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
