//! Events, for whoever listens now and for whoever was away.
//!
//! In: a listener, or the number of the last event somebody has heard. Out: events from here on, or those since then that
//! are kept: about statuses, and about questions to people.

use serde_json::Value;

use super::ToolHub;
use crate::events::{EventPage, Subscription};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    event_kind::EventKind,
    ids::{Tenant, ThreadId},
};

impl ToolHub {
    /// Listens to events from here on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.engine.services.events.subscribe()
    }

    /// Whether anybody listens. Whoever has much to tell need not put it into words where nobody does.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.engine.services.events.has_subscribers()
    }

    /// Tells whoever listens what happened in a thread; for rooms beside the hub. What sounds secret in arguments is taken out.
    pub fn publish(&self, tenant: &Tenant, thread: &ThreadId, mut news: EventKind) {
        if !self.has_subscribers() {
            return;
        }
        if let EventKind::MessageCompleted { calls, .. } = &mut news {
            calls.iter_mut().for_each(|call| self.redact(&mut call.arguments));
        }
        self.engine.services.events.emit_for_tenant(self.now(), tenant, Some(thread), news);
    }

    /// Takes what sounds secret out of a value before it is shown, as it is taken out of the hub's own records; for rooms beside
    /// the hub.
    pub fn redact(&self, value: &mut Value) {
        self.engine.services.redactor.redact(value);
    }

    /// The events after this number that are kept and concern a tenant or everybody, a page at a time, the oldest first.
    /// None are kept where no store was handed to the hub. Numbers go on after a restart. Whoever wants to miss nothing
    /// subscribes first, asks then, and passes over what was heard twice.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn events_since(&self, tenant: &Tenant, id: u64) -> Result<EventPage, StoreError> {
        self.flush_events().await;
        match &self.engine.event_log {
            Some(kept) => kept.since(tenant, id).await,
            None => Ok(EventPage::default()),
        }
    }

    /// Writes down the events that are to be kept.
    pub(super) async fn flush_events(&self) {
        if let Some(kept) = &self.engine.event_log {
            kept.flush(&self.engine.runtime).await;
        }
    }
}
