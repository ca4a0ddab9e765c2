//! Event bus: numbered events, broadcast to subscribers.
//!
//! In: events from every module. Out: numbered events to subscribers. Emitting never blocks; a subscriber that lags
//! behind receives a `StreamReset`. Without subscribers no event is built. Some kinds are also persisted by
//! `event_log`.

mod event_log;

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

use event_log::LogQueue;
pub(crate) use event_log::{EventLog, run_event_log};
pub use event_log::{EventPage, StoredEvent};
pub use toolhub_types::event_kind::{EventKind, MessageCall};

use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

/// Number of events a subscriber may lag behind before it loses some.
const BACKLOG: usize = 4096;

/// An event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Increases from event to event.
    pub id: u64,
    /// When it happened.
    pub timestamp: Timestamp,
    /// The tenant it concerns; `None` if it concerns all.
    pub tenant: Option<Tenant>,
    /// The thread it happened in.
    pub thread: Option<ThreadId>,
    /// What happened.
    pub kind: EventKind,
}

/// `{"id", "event", "timestamp", "tenant", "threadId", …}` and the fields of its kind.
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            id: u64,
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
                "id": {"type": "integer", "minimum": 0, "description": "increases from event to event"},
                "event": {"type": "string", "enum": EventKind::NAMES},
                "timestamp": timestamp,
                "tenant": tenant,
                "threadId": thread,
            },
            "required": ["id", "event", "timestamp"],
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
    /// The event's name, such as `tool.registered`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }
}

/// Handle to emit events and to subscribe. Clones share the same bus.
#[derive(Clone)]
pub(crate) struct Events(Arc<Inner>);

struct Inner {
    sender: broadcast::Sender<Arc<Event>>,
    subscribers: AtomicUsize,
    /// The last event id. Locked while an event is sent, so that subscribers receive ids in order.
    last_id: Mutex<u64>,
    /// The queue of the event log, for persisted kinds.
    log_queue: OnceLock<Arc<LogQueue>>,
    /// Number of events that a subscriber or the store was too slow for.
    dropped: AtomicU64,
}

impl Events {
    pub(crate) fn new() -> Self {
        let sender = broadcast::Sender::new(BACKLOG);
        let (subscribers, last_id, log_queue, dropped) = Default::default();
        Self(Arc::new(Inner { sender, subscribers, last_id, log_queue, dropped }))
    }

    /// Whether there are subscribers. Cheap, so that the call path can check before it builds an event.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.0.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Whether an event of a persisted kind would be received or stored.
    pub(crate) fn has_consumers(&self) -> bool {
        self.has_subscribers() || self.0.log_queue.get().is_some()
    }

    /// Attaches the event log, which persists events from now on. Their ids come after `last_id`.
    pub(crate) fn attach_log(&self, log: &EventLog, last_id: u64) {
        let mut current = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (*current).max(last_id);
        let _ = self.0.log_queue.set(log.queue());
    }

    /// Emits an event that concerns all tenants.
    pub(crate) fn emit(&self, timestamp: Timestamp, kind: EventKind) {
        self.send(timestamp, None, None, kind);
    }

    /// Emits an event that concerns one tenant, and optionally one of its threads.
    pub(crate) fn emit_for_tenant(
        &self,
        timestamp: Timestamp,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        kind: EventKind,
    ) {
        self.send(timestamp, Some(tenant.clone()), thread.cloned(), kind);
    }

    fn send(&self, timestamp: Timestamp, tenant: Option<Tenant>, thread: Option<ThreadId>, kind: EventKind) {
        let log_queue = self.0.log_queue.get().filter(|_| kind.is_persisted());
        if self.has_subscribers() || log_queue.is_some() {
            let mut last_id = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
            *last_id = (*last_id + 1).max(if self.0.log_queue.get().is_some() {
                event_log::first_id_at(timestamp)
            } else {
                0
            });
            let event = Arc::new(Event { id: *last_id, timestamp, tenant, thread, kind });
            if let Some(log_queue) = log_queue
                && log_queue.push(event.clone())
            {
                self.0.count_dropped(1);
            }
            // Sending fails only if the last subscriber left in between.
            let _ = self.0.sender.send(event);
        }
    }

    /// The number of events lost because a subscriber lagged behind or the store was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let receiver = self.0.sender.subscribe();
        self.0.subscribers.fetch_add(1, Ordering::Relaxed);
        Subscription { receiver, after_reset: None, inner: self.0.clone() }
    }
}

impl Inner {
    fn count_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// A subscription to all events from its creation on.
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// The oldest event still available, returned after the `StreamReset` that reports the lost ones.
    after_reset: Option<Arc<Event>>,
    inner: Arc<Inner>,
}

impl Subscription {
    /// Waits for the next event. An [`EventKind::StreamReset`] means that events were lost: reload any derived state.
    pub async fn next(&mut self) -> Arc<Event> {
        if let Some(event) = self.after_reset.take() {
            return event;
        }
        match self.receiver.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(missed)) => self.reset(missed),
            // The sender lives in `inner`, which this subscription holds: it cannot be closed.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next event, if one is available.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        if let Some(event) = self.after_reset.take() {
            return Some(event);
        }
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(missed)) => Some(self.reset(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    /// The `StreamReset` event. Its id is right before that of the oldest event still available.
    fn reset(&mut self, missed: u64) -> Arc<Event> {
        self.inner.count_dropped(missed);
        let oldest = loop {
            match self.receiver.try_recv() {
                Ok(event) => break Some(event),
                Err(TryRecvError::Lagged(missed)) => self.inner.count_dropped(missed),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break None,
            }
        };
        let (id, timestamp) = oldest.as_ref().map_or_else(Default::default, |event| (event.id - 1, event.timestamp));
        self.after_reset = oldest;
        Arc::new(Event { id, timestamp, tenant: None, thread: None, kind: EventKind::StreamReset })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inner.subscribers.fetch_sub(1, Ordering::Relaxed);
    }
}
