//! Events, for whoever listens now and for whoever was away.
//!
//! In: a listener, or the number of the last event somebody has heard. Out: events from here on, or those since then that
//! are kept: about statuses, and about questions to people.

use super::ToolHub;
use crate::{
    backend::StoreError,
    events::{EventPage, Subscription},
    ids::Tenant,
};

impl ToolHub {
    /// Listens to events from here on.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.engine.services.events.subscribe()
    }

    /// The events after this number that are kept and concern a tenant or everybody, a page at a time, the oldest first.
    /// None are kept where no store was handed to the hub. Numbers go on after a restart. Whoever wants to miss nothing
    /// subscribes first, asks then, and passes over what was heard twice.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn events_since(&self, tenant: &Tenant, id: u64) -> Result<EventPage, StoreError> {
        self.flush_events().await;
        match &self.engine.kept_events {
            Some(kept) => kept.since(tenant, id).await,
            None => Ok(EventPage::default()),
        }
    }

    /// Writes down the events that are to be kept.
    pub(super) async fn flush_events(&self) {
        if let Some(kept) = &self.engine.kept_events {
            kept.flush(&self.engine.runtime).await;
        }
    }
}
