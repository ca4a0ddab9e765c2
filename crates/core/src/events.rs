//! Event bus: numbered events, broadcast to subscribers.
//!
//! In: events from every module. Out: events to subscribers, in order. Emitting never blocks; a subscriber that lags
//! behind receives a `StreamReset`. An event is built only if its class has subscribers. Some kinds are also stored by `event_log` and
//! numbered: by this bus if no other hub uses the store, otherwise by `shared_log`, in the order of the store. `log_queue` holds
//! what has to be stored. `relay` passes events that are not stored to listeners on other nodes.

mod event_log;
mod log_queue;
mod relay;
mod shared_log;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

pub(crate) use event_log::{EventLog, run_event_log};
pub use event_log::{EventPage, StoredEvent};
use log_queue::{LogQueue, Numbered, QueuedEvent};
use relay::{FollowedThread, Outgoing};
pub(crate) use relay::{Relay, run_relay};
pub(crate) use shared_log::StatusMark;
pub use toolhub_types::event_kind::{EventClass, EventClasses, EventKind, MessageCall};

use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// Number of events a subscriber may lag behind before it loses some.
const BACKLOG: usize = 4096;

/// An event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The number of a stored event; increases from one to the next. Other events have none.
    pub id: Option<u64>,
    /// When it happened.
    pub timestamp: Timestamp,
    /// The tenant it concerns; `None` if it concerns all.
    pub tenant: Option<Tenant>,
    /// The thread it happened in.
    pub thread: Option<ThreadId>,
    /// What happened.
    pub kind: EventKind,
}

/// `{"id", "event", "timestamp", "tenant", "threadId", …}` and the fields of its kind. Only stored events have an `id`.
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<u64>,
            event: &'a str,
            timestamp: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            tenant: Option<&'a Tenant>,
            #[serde(skip_serializing_if = "Option::is_none")]
            thread_id: Option<&'a ThreadId>,
            #[serde(flatten)]
            kind: &'a EventKind,
        }
        let Self { id, timestamp, tenant, thread, kind } = self;
        let (tenant, thread_id) = (tenant.as_ref(), thread.as_ref());
        Wire { id: *id, event: self.name(), timestamp: *timestamp, tenant, thread_id, kind }.serialize(to)
    }
}

/// As serialized: the fields of the kind are beside the common ones, and `event` names the kind.
impl JsonSchema for Event {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (timestamp, tenant) = (generator.subschema_for::<Timestamp>(), generator.subschema_for::<Tenant>());
        let thread = generator.subschema_for::<ThreadId>();
        let kinds = EventKind::json_schema(generator).to_value();
        let variants = kinds["anyOf"].as_array().cloned().unwrap_or_default();
        let schemas: Vec<Value> =
            EventKind::NAMES.iter().zip(variants).map(|(name, variant)| event_schema(name, variant)).collect();
        json_schema!({
            "type": "object",
            "description": "an event",
            "properties": {
                "id": {"type": "integer", "minimum": 0, "description": "only of stored events; increases from one to the next"},
                "event": {"type": "string", "enum": EventKind::NAMES},
                "timestamp": timestamp,
                "tenant": tenant,
                "threadId": thread,
            },
            "required": ["event", "timestamp"],
            "oneOf": schemas,
        })
    }
}

/// The schema of one kind of event: its fields and its name.
fn event_schema(name: &str, mut fields: Value) -> Value {
    if fields["type"] == "null" {
        fields = json!({"type": "object"});
    }
    if !fields["properties"].is_object() {
        fields["properties"] = json!({});
    }
    fields["properties"]["event"] = json!({"const": name});
    fields
}

impl Event {
    /// An event for one client only: what it was not sent.
    #[must_use]
    pub fn thinned(timestamp: Timestamp, counts: BTreeMap<&'static str, u64>) -> Self {
        Self { id: None, timestamp, tenant: None, thread: None, kind: EventKind::StreamThinned { counts } }
    }

    /// The event's name, such as `tool.registered`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// The thread it happened in, with its tenant.
    fn thread_key(&self) -> Option<ThreadKey> {
        Some(ThreadKey::new(self.tenant.as_ref()?, self.thread.as_ref()?))
    }
}

/// Handle to emit events and to subscribe. Clones share the same bus.
#[derive(Clone)]
pub(crate) struct Events(Arc<Inner>);

struct Inner {
    sender: broadcast::Sender<Arc<Event>>,
    /// How many subscribers each class of events has.
    subscribers: [AtomicUsize; EventClass::ALL.len()],
    /// The number of the last stored event, if this bus numbers them. Locked while an event is sent, so that subscribers receive
    /// events in order.
    last_id: Mutex<u64>,
    /// The queue of the event log, for persisted kinds.
    log_queue: OnceLock<Arc<LogQueue>>,
    /// The events that other nodes want, if the store is shared.
    outgoing: OnceLock<Arc<Outgoing>>,
    /// Number of events that a subscriber or the store was too slow for.
    dropped: AtomicU64,
}

impl Events {
    pub(crate) fn new() -> Self {
        let sender = broadcast::Sender::new(BACKLOG);
        let (subscribers, last_id, log_queue, outgoing, dropped) = Default::default();
        Self(Arc::new(Inner { sender, subscribers, last_id, log_queue, outgoing, dropped }))
    }

    /// Whether a class of events has subscribers, here or on other nodes. Cheap, so that the call path can check before it builds an
    /// event.
    pub(crate) fn has_subscribers(&self, class: EventClass) -> bool {
        self.0.subscribers[class as usize].load(Ordering::Relaxed) > 0
            || self.0.outgoing.get().is_some_and(|outgoing| outgoing.has_followers())
    }

    /// Whether an event of a persisted kind would be received or stored.
    pub(crate) fn has_consumers(&self) -> bool {
        self.has_subscribers(EventClass::Other) || self.0.log_queue.get().is_some()
    }

    /// Attaches the event log, which stores events from now on. Their numbers come after `last_id`.
    pub(crate) fn attach_log(&self, log: &EventLog, last_id: u64) {
        let mut current = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (*current).max(last_id);
        let _ = self.0.log_queue.set(log.queue());
    }

    /// Attaches the queue of the events that other nodes want.
    fn attach_relay(&self, outgoing: Arc<Outgoing>) {
        let _ = self.0.outgoing.set(outgoing);
    }

    /// Emits an event that concerns all tenants.
    pub(crate) fn emit(&self, timestamp: Timestamp, kind: EventKind) {
        self.send(Event { id: None, timestamp, tenant: None, thread: None, kind }, None);
    }

    /// Emits an event that concerns one tenant, and optionally one of its threads.
    pub(crate) fn emit_for_tenant(
        &self,
        timestamp: Timestamp,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        kind: EventKind,
    ) {
        let (tenant, thread) = (Some(tenant.clone()), thread.cloned());
        self.send(Event { id: None, timestamp, tenant, thread, kind }, None);
    }

    /// Emits the change of a tool's status. All nodes of a shared store see the change of a record; the mark tells which of their
    /// events are about the same change, so that it is stored once.
    pub(crate) fn emit_status(
        &self,
        timestamp: Timestamp,
        owner: Option<&ThreadKey>,
        kind: EventKind,
        mark: Option<StatusMark>,
    ) {
        let (tenant, thread) = owner.map(|owner| (owner.tenant.clone(), owner.thread.clone())).unzip();
        self.send(Event { id: None, timestamp, tenant, thread, kind }, mark);
    }

    fn send(&self, mut event: Event, mark: Option<StatusMark>) {
        let log_queue = self.0.log_queue.get();
        let is_stored = log_queue.is_some() && event.kind.is_persisted();
        if !is_stored && !self.has_subscribers(event.kind.class()) {
            return;
        }
        let mut last_id = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outgoing) = self.0.outgoing.get() {
            outgoing.push(&event);
        }
        let Some(log_queue) = log_queue else { return self.0.deliver(Arc::new(event)) };
        if log_queue.is_shared() {
            if is_stored || log_queue.has_undelivered() {
                self.0.enqueue(log_queue, QueuedEvent::undelivered(event, mark));
            } else {
                self.0.deliver(Arc::new(event));
            }
            return;
        }
        if is_stored {
            *last_id = (*last_id + 1).max(event_log::first_id_at(event.timestamp));
            event.id = Some(*last_id);
        }
        let event = Arc::new(event);
        if is_stored {
            self.0.enqueue(log_queue, QueuedEvent::delivered(event.clone()));
        }
        self.0.deliver(event);
    }

    /// Delivers the stored events of all nodes in the order of their numbers, those of this node with the queued ones around them.
    fn deliver_numbered(&self, numbered: Vec<Numbered>) {
        let Some(log_queue) = self.0.log_queue.get() else { return };
        let _order = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        log_queue.take_numbered(numbered, |event| self.0.deliver(event));
    }

    /// Delivers all queued events without numbers: the store does not answer. They are stored when it does.
    fn deliver_unnumbered(&self) {
        let Some(log_queue) = self.0.log_queue.get() else { return };
        let _order = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        log_queue.take_undelivered(|event| self.0.deliver(event));
    }

    /// Delivers an event of another node.
    fn deliver_relayed(&self, event: Event) {
        let _order = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.deliver(Arc::new(event));
    }

    /// Tells subscribers that events of a thread on other nodes were lost.
    fn deliver_reset(&self, timestamp: Timestamp, thread: &ThreadKey) {
        let (tenant, thread) = (Some(thread.tenant.clone()), Some(thread.thread.clone()));
        self.deliver_relayed(Event { id: None, timestamp, tenant, thread, kind: EventKind::StreamReset });
    }

    /// The number of events lost because a subscriber lagged behind or the store was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Subscribes to these classes of events.
    pub(crate) fn subscribe(&self, classes: EventClasses) -> Subscription {
        let receiver = self.0.sender.subscribe();
        for class in classes.iter() {
            self.0.subscribers[class as usize].fetch_add(1, Ordering::Relaxed);
        }
        Subscription { receiver, classes, after_reset: None, followed: Vec::new(), inner: self.0.clone() }
    }
}

impl Inner {
    /// Sends an event to all subscribers. Sending fails only if there is none.
    fn deliver(&self, event: Arc<Event>) {
        let _ = self.sender.send(event);
    }

    /// Queues an event. If the queue is full, the oldest one is not stored.
    fn enqueue(&self, log_queue: &LogQueue, event: QueuedEvent) {
        if let Some(oldest) = log_queue.push(event) {
            self.count_dropped(1);
            if let Some(event) = oldest.into_undelivered() {
                self.deliver(event);
            }
        }
    }

    fn count_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// A subscription to events from its creation on.
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// Events of other classes are passed over.
    classes: EventClasses,
    /// The oldest event still available, returned after the `StreamReset` that reports the lost ones.
    after_reset: Option<Arc<Event>>,
    /// Threads whose events on other nodes it receives too.
    followed: Vec<FollowedThread>,
    inner: Arc<Inner>,
}

impl Subscription {
    /// Receives the events of a thread on other nodes too.
    pub(crate) fn follow(&mut self, relay: &Relay, thread: ThreadKey) {
        self.followed.push(relay.follow(thread));
    }

    /// Waits for the next event. An [`EventKind::StreamReset`] means that events were lost: reload any derived state.
    pub async fn next(&mut self) -> Arc<Event> {
        loop {
            if let Some(event) = self.after_reset.take().filter(|event| self.is_wanted(event)) {
                return event;
            }
            match self.receiver.recv().await {
                Ok(event) if self.is_wanted(&event) => return event,
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => return self.reset(missed),
                // The sender lives in `inner`, which this subscription holds: it cannot be closed.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// The next event, if one is available.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        loop {
            if let Some(event) = self.after_reset.take().filter(|event| self.is_wanted(event)) {
                return Some(event);
            }
            match self.receiver.try_recv() {
                Ok(event) if self.is_wanted(&event) => return Some(event),
                Ok(_) => {}
                Err(TryRecvError::Lagged(missed)) => return Some(self.reset(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    fn is_wanted(&self, event: &Event) -> bool {
        event.kind == EventKind::StreamReset || self.classes.contains(event.kind.class())
    }

    /// The `StreamReset` event.
    fn reset(&mut self, missed: u64) -> Arc<Event> {
        self.inner.count_dropped(missed);
        let oldest = loop {
            match self.receiver.try_recv() {
                Ok(event) => break Some(event),
                Err(TryRecvError::Lagged(missed)) => self.inner.count_dropped(missed),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break None,
            }
        };
        let timestamp = oldest.as_ref().map_or_else(Default::default, |event| event.timestamp);
        self.after_reset = oldest;
        Arc::new(Event { id: None, timestamp, tenant: None, thread: None, kind: EventKind::StreamReset })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for class in self.classes.iter() {
            self.inner.subscribers[class as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}
