//! Public API of events: live subscriptions, publishing for other crates, and the stored event log.
//!
//! In: a subscriber, or the id of the last event it received. Out: live events, or the stored ones since that id (statuses,
//! approvals, config, servers).

use serde_json::Value;

use super::ToolHub;
use crate::{
    events::{EventPage, Subscription},
    sealing::Sealer,
};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    event_kind::{EventClass, EventClasses, EventKind},
    ids::{Tenant, ThreadId, ThreadKey},
    redact::Redactor,
};

impl ToolHub {
    /// Subscribes to all events from now on, but for `metrics.tick`.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_to(EventClasses::DEFAULT)
    }

    /// Subscribes to some classes of events from now on. Others are not even built without other subscribers.
    #[must_use]
    pub fn subscribe_to(&self, classes: EventClasses) -> Subscription {
        if classes.contains(EventClass::Ticks) {
            self.start_metrics_ticks();
        }
        self.engine.services.events.subscribe(classes)
    }

    /// Lets a subscription receive what the calls and runs of a thread do on other nodes of a shared store, from about now on. Without it,
    /// only stored events of other nodes arrive. A [`StreamReset`](EventKind::StreamReset) of the thread means that some were missed.
    /// [`ToolHub::thread_followed`] waits until nothing is missed any more.
    pub fn follow_thread(&self, events: &mut Subscription, tenant: &Tenant, thread: &ThreadId) {
        if let Some(relay) = &self.engine.event_relay {
            events.follow(relay, ThreadKey::new(tenant, thread));
        }
    }

    /// Waits until the other nodes know that this one [follows](Self::follow_thread) a thread, so that the subscription receives what begins
    /// there from now on. Returns after a second at the latest; a [`StreamReset`](EventKind::StreamReset) follows if they know only later.
    pub async fn thread_followed(&self, tenant: &Tenant, thread: &ThreadId) {
        if let Some(relay) = &self.engine.event_relay {
            relay.announced(&ThreadKey::new(tenant, thread)).await;
        }
    }

    /// Whether a class of events has subscribers. A producer can skip building an expensive event if there are none.
    #[must_use]
    pub fn has_subscribers(&self, class: EventClass) -> bool {
        self.engine.services.events.has_subscribers(class)
    }

    /// Emits an event of a thread on behalf of another crate. Secrets in arguments are redacted.
    pub fn publish(&self, tenant: &Tenant, thread: &ThreadId, mut kind: EventKind) {
        if !self.has_subscribers(kind.class()) {
            return;
        }
        if let EventKind::MessageCompleted { calls, .. } = &mut kind {
            calls.iter_mut().for_each(|call| self.redact(&mut call.arguments));
        }
        self.engine.services.events.emit_for_tenant(self.now(), tenant, Some(thread), kind);
    }

    /// Redacts secrets in a value by the names of its members, as in the hub's own records. For other crates.
    pub fn redact(&self, value: &mut Value) {
        self.engine.services.redactor.redact(value);
    }

    /// Seals secrets in records of other crates.
    #[doc(hidden)]
    pub fn sealer(&self) -> &Sealer {
        &self.engine.services.sealer
    }

    /// Redacts a text that mentions a secret name: arguments that are not valid JSON. For other crates.
    pub fn redact_text(&self, text: &mut String) {
        if self.engine.services.redactor.mentions_secret(text) {
            *text = Redactor::REDACTED.into();
        }
    }

    /// The stored events after this id that concern the tenant or all tenants, a page at a time, oldest first. Without a store
    /// of its own the hub stores none. Ids keep growing after a restart. To miss nothing, subscribe first, then read the log,
    /// and skip events received twice.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn events_since(&self, tenant: &Tenant, id: u64) -> Result<EventPage, StoreError> {
        self.flush_events().await;
        match &self.engine.event_log {
            Some(log) => log.since(tenant, id).await,
            None => Ok(EventPage::default()),
        }
    }

    /// Flushes the buffered events to the event log.
    pub(super) async fn flush_events(&self) {
        if let Some(log) = &self.engine.event_log {
            log.flush(&self.engine.runtime).await;
        }
    }
}
