//! News: what happened, told to whoever listens.
//!
//! In: facts from every room. Out: numbered events to subscribers. Nobody waits for a subscriber; one that falls
//! behind is told so. Where nobody listens, an event is not even made. Some are kept besides, for whoever comes later.

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

/// How many events a subscriber may be behind.
const BACKLOG: usize = 4096;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Grows from event to event.
    pub id: u64,
    /// When it happened.
    pub timestamp: Timestamp,
    /// Whose news it is; everybody's where absent.
    pub tenant: Option<Tenant>,
    /// The conversation it happened in.
    pub thread: Option<ThreadId>,
    /// What happened.
    pub kind: EventKind,
}

/// `{"id", "event", "timestamp", "tenant", "threadId", …}` and what the news has to tell.
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
        let Self { id, timestamp, tenant, thread, kind: news } = self;
        let (tenant, thread_id) = (tenant.as_ref(), thread.as_ref());
        Wire { id: *id, event: self.name(), timestamp: *timestamp, tenant, thread_id, kind: news }.serialize(to)
    }
}

/// As it is written: what the news has to tell stands beside the rest, and the name says which news it is.
impl JsonSchema for Event {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (timestamp, tenant) = (generator.subschema_for::<Timestamp>(), generator.subschema_for::<Tenant>());
        let thread = generator.subschema_for::<ThreadId>();
        let news = EventKind::json_schema(generator).to_value();
        let told = news["anyOf"].as_array().cloned().unwrap_or_default();
        let sorts: Vec<Value> =
            EventKind::NAMES.iter().zip(told).map(|(name, told)| event_schema(name, told)).collect();
        json_schema!({
            "type": "object",
            "description": "one thing that happened",
            "properties": {
                "id": {"type": "integer", "minimum": 0, "description": "grows from event to event"},
                "event": {"type": "string", "enum": EventKind::NAMES},
                "timestamp": timestamp,
                "tenant": tenant,
                "threadId": thread,
            },
            "required": ["id", "event", "timestamp"],
            "oneOf": sorts,
        })
    }
}

/// One sort of event: its name, and what it has to tell.
fn event_schema(name: &str, mut told: Value) -> Value {
    if told["type"] == "null" {
        told = json!({"type": "object"});
    }
    if !told["properties"].is_object() {
        told["properties"] = json!({});
    }
    told["properties"]["event"] = json!({"const": name});
    told
}

impl Event {
    /// The event's name, such as `tool.registered`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }
}

/// Where news is handed in.
#[derive(Clone)]
pub(crate) struct Events(Arc<Inner>);

struct Inner {
    sender: broadcast::Sender<Arc<Event>>,
    listeners: AtomicUsize,
    /// The last number. Held while an event is sent, so that numbers are heard in order.
    last_id: Mutex<u64>,
    /// Where those are handed in that are kept.
    log_queue: OnceLock<Arc<LogQueue>>,
    /// How many a listener or the store was too slow for.
    dropped: AtomicU64,
}

impl Events {
    pub(crate) fn new() -> Self {
        let line = broadcast::Sender::new(BACKLOG);
        let (listeners, last, kept, dropped) = Default::default();
        Self(Arc::new(Inner { sender: line, listeners, last_id: last, log_queue: kept, dropped }))
    }

    /// Whether an event would be heard. Cheap, so that the way of a call may ask before it makes one.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.0.listeners.load(Ordering::Relaxed) > 0
    }

    /// Whether an event of the sort that is kept would be heard or kept.
    pub(crate) fn has_consumers(&self) -> bool {
        self.has_subscribers() || self.0.log_queue.get().is_some()
    }

    /// Keeps some events from here on. Their numbers come after `last`.
    pub(crate) fn attach_log(&self, kept: &EventLog, last: u64) {
        let mut number = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        *number = (*number).max(last);
        let _ = self.0.log_queue.set(kept.queue());
    }

    /// Tells of something that concerns everybody.
    pub(crate) fn emit(&self, timestamp: Timestamp, news: EventKind) {
        self.send(timestamp, None, None, news);
    }

    /// Tells of something that concerns one tenant, and perhaps one thread of it.
    pub(crate) fn emit_for_tenant(
        &self,
        timestamp: Timestamp,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        news: EventKind,
    ) {
        self.send(timestamp, Some(tenant.clone()), thread.cloned(), news);
    }

    fn send(&self, timestamp: Timestamp, tenant: Option<Tenant>, thread: Option<ThreadId>, news: EventKind) {
        let kept = self.0.log_queue.get().filter(|_| news.is_persisted());
        if self.has_subscribers() || kept.is_some() {
            let mut last = self.0.last_id.lock().unwrap_or_else(PoisonError::into_inner);
            *last =
                (*last + 1).max(if self.0.log_queue.get().is_some() { event_log::first_id_at(timestamp) } else { 0 });
            let event = Arc::new(Event { id: *last, timestamp, tenant, thread, kind: news });
            if let Some(kept) = kept
                && kept.push(event.clone())
            {
                self.0.count_dropped(1);
            }
            // The last listener may have left in between; that is no failure.
            let _ = self.0.sender.send(event);
        }
    }

    /// How many events were never heard, because a listener fell behind, or never written down, because the store did.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let news = self.0.sender.subscribe();
        self.0.listeners.fetch_add(1, Ordering::Relaxed);
        Subscription { receiver: news, after_reset: None, inner: self.0.clone() }
    }
}

impl Inner {
    fn count_dropped(&self, many: u64) {
        self.dropped.fetch_add(many, Ordering::Relaxed);
    }
}

/// A listener. It hears every event from the moment it was made.
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// The oldest event that was kept, to be told after the listener knows that older ones were not.
    after_reset: Option<Arc<Event>>,
    inner: Arc<Inner>,
}

impl Subscription {
    /// Waits for the next event. After [`News::StreamReset`] some events are missing: read again what matters.
    pub async fn next(&mut self) -> Arc<Event> {
        if let Some(event) = self.after_reset.take() {
            return event;
        }
        match self.receiver.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(many)) => self.reset(many),
            // The sender lives in `inner`, which this subscription holds: it cannot be closed.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next event, if it is there already.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        if let Some(event) = self.after_reset.take() {
            return Some(event);
        }
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(many)) => Some(self.reset(many)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    /// The news that news was missed. It stands right before the oldest event that was kept.
    fn reset(&mut self, missed: u64) -> Arc<Event> {
        self.inner.count_dropped(missed);
        let oldest = loop {
            match self.receiver.try_recv() {
                Ok(event) => break Some(event),
                Err(TryRecvError::Lagged(many)) => self.inner.count_dropped(many),
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
        self.inner.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}
