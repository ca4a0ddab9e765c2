//! Queue of events that have to be stored.
//!
//! In: events in the order in which they were emitted. Out: those that the log stores next, and, for a store that other hubs use too,
//! the events that waited for their numbers. An event that is not stored waits behind one that is, so that subscribers receive both
//! in the order in which they happened. Bounded: the oldest events give way. Subscriptions hold the queue and may outlive the hub, so
//! it does not hold the store.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{Event, StatusMark};

/// Maximum number of events queued while the store is unavailable.
const MAX_QUEUED: usize = 10_000;

pub(crate) struct LogQueue {
    events: Mutex<Events>,
    /// Notified when an event was queued.
    pub(super) flush_needed: Notify,
    is_shared: bool,
}

#[derive(Default)]
struct Events {
    queued: VecDeque<(Ticket, QueuedEvent)>,
    last_ticket: u64,
    /// Number of events that subscribers have not received.
    undelivered: usize,
}

/// Identifies an event in the queue; increases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// An event of the queue.
#[derive(Clone)]
pub(super) struct QueuedEvent {
    pub(super) event: Arc<Event>,
    /// Which change of a status it is about.
    pub(super) mark: Option<StatusMark>,
    is_delivered: bool,
}

/// What a subscriber receives next.
pub(super) enum Numbered {
    /// The queued event with this ticket, which was stored under this number; `None` if another node has stored it.
    Own(Ticket, Option<u64>),
    /// The event of another node.
    Foreign(Event),
}

impl QueuedEvent {
    /// An event that subscribers have received, with its number.
    pub(super) fn delivered(event: Arc<Event>) -> Self {
        Self { event, mark: None, is_delivered: true }
    }

    /// An event that waits for its number, or for one before it.
    pub(super) fn undelivered(event: Event, mark: Option<StatusMark>) -> Self {
        Self { event: Arc::new(event), mark, is_delivered: false }
    }

    /// The event, if subscribers have not received it.
    pub(super) fn into_undelivered(self) -> Option<Arc<Event>> {
        (!self.is_delivered).then_some(self.event)
    }

    fn is_stored(&self) -> bool {
        self.event.kind.is_persisted()
    }
}

impl LogQueue {
    /// `is_shared`: whether other hubs use the store, so that its log numbers the events.
    pub(super) fn new(is_shared: bool) -> Self {
        Self { events: Mutex::default(), flush_needed: Notify::new(), is_shared }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn has_undelivered(&self) -> bool {
        self.lock().undelivered > 0
    }

    /// Queues an event; returns an older one that gives way to it. Must be called in the order in which the events happen.
    pub(super) fn push(&self, event: QueuedEvent) -> Option<QueuedEvent> {
        let mut events = self.lock();
        let oldest = if events.queued.len() == MAX_QUEUED { events.pop() } else { None };
        if oldest.is_some() {
            tracing::warn!("event log queue is full because the store is not writable; dropped the oldest event");
        }
        events.last_ticket += 1;
        let ticket = Ticket(events.last_ticket);
        events.undelivered += usize::from(!event.is_delivered);
        events.queued.push_back((ticket, event));
        drop(events);
        self.flush_needed.notify_one();
        oldest.map(|(_, event)| event)
    }

    /// The first events that have to be stored.
    pub(super) fn unstored(&self, limit: usize) -> Vec<(Ticket, QueuedEvent)> {
        let events = self.lock();
        events.queued.iter().filter(|(_, event)| event.is_stored()).take(limit).cloned().collect()
    }

    /// Removes the events up to this one, which are stored and were delivered.
    pub(super) fn remove_until(&self, last: Ticket) {
        let mut events = self.lock();
        while events.queued.front().is_some_and(|(ticket, _)| *ticket <= last) {
            events.pop();
        }
    }

    /// Removes the events of this node among these, and delivers all in this order, with the events that waited behind them.
    pub(super) fn take_numbered(&self, numbered: Vec<Numbered>, mut deliver: impl FnMut(Arc<Event>)) {
        let mut events = self.lock();
        for next in numbered {
            match next {
                Numbered::Foreign(event) => deliver(Arc::new(event)),
                Numbered::Own(ticket, id) => {
                    while let Some((found, queued)) = events.pop_until(ticket) {
                        let Some(event) = queued.into_undelivered() else { continue };
                        match (found == ticket, id) {
                            (false, _) => deliver(event),
                            (true, Some(_)) => deliver(Arc::new(Event { id, ..(*event).clone() })),
                            (true, None) => {}
                        }
                    }
                }
            }
        }
        while events.queued.front().is_some_and(|(_, event)| !event.is_stored()) {
            if let Some(event) = events.pop().and_then(|(_, event)| event.into_undelivered()) {
                deliver(event);
            }
        }
    }

    /// Delivers all events that subscribers have not received. Those to store stay in the queue.
    pub(super) fn take_undelivered(&self, mut deliver: impl FnMut(Arc<Event>)) {
        let mut events = self.lock();
        events.undelivered = 0;
        for (_, queued) in &mut events.queued {
            if !std::mem::replace(&mut queued.is_delivered, true) {
                deliver(queued.event.clone());
            }
        }
        events.queued.retain(|(_, queued)| queued.is_stored());
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Events {
    fn pop(&mut self) -> Option<(Ticket, QueuedEvent)> {
        let popped = self.queued.pop_front()?;
        self.undelivered -= usize::from(!popped.1.is_delivered);
        Some(popped)
    }

    /// The first event, if it is not behind this one.
    fn pop_until(&mut self, last: Ticket) -> Option<(Ticket, QueuedEvent)> {
        self.queued.front().is_some_and(|(ticket, _)| *ticket <= last).then(|| self.pop()).flatten()
    }
}
