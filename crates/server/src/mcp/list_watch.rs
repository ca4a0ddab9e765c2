//! Says when the list of tools that a client sees has changed.
//!
//! In: the request of a client that listens. Out: a signal per change. With a thread the list also depends on what happened in it; a
//! burst of changes is one signal.

use std::time::Duration;

use rmcp::ErrorData;
use toolhub_core::{Offer, OfferOptions, OfferWatch, ToolHub, ids::ThreadId};

use super::{request::McpRequest, result};

/// How long further changes are waited for after one: those of a thread and of all threads are announced one after the other.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Watches the list of one client.
pub(super) struct ListWatch {
    shared: OfferWatch,
    thread: Option<ThreadWatch>,
}

struct ThreadWatch {
    hub: ToolHub,
    tenant: toolhub_core::ids::Tenant,
    thread: ThreadId,
    options: OfferOptions,
    /// Held, because changes are announced to holders only.
    offer: Offer,
    changes: OfferWatch,
}

impl ListWatch {
    pub(super) async fn new(hub: &ToolHub, request: &McpRequest, thread: Option<ThreadId>) -> Result<Self, ErrorData> {
        let shared = hub.watch_shared_offer(&request.toolset);
        let thread = match thread {
            Some(thread) => Some(ThreadWatch::new(hub, request, thread).await?),
            None => None,
        };
        Ok(Self { shared, thread })
    }

    /// Waits for a change. Returns `false` when the hub is gone.
    pub(super) async fn changed(&mut self) -> bool {
        if !self.next_change().await {
            return false;
        }
        while let Ok(is_open) = tokio::time::timeout(SETTLE_TIME, self.next_change()).await {
            if !is_open {
                return false;
            }
        }
        true
    }

    async fn next_change(&mut self) -> bool {
        let Some(thread) = &mut self.thread else { return self.shared.changed().await };
        tokio::select! {
            is_open = self.shared.changed() => is_open,
            is_open = thread.changes.changed() => {
                thread.rebind().await;
                is_open
            }
        }
    }
}

impl ThreadWatch {
    async fn new(hub: &ToolHub, request: &McpRequest, thread: ThreadId) -> Result<Self, ErrorData> {
        let (tenant, options) = (request.principal.tenant.clone(), OfferOptions::from(request.toolset.clone()));
        let offer = hub.offer_with(&tenant, &thread, &options).await.map_err(|error| result::fault(&error))?;
        let changes = offer.watch();
        Ok(Self { hub: hub.clone(), tenant, thread, options, offer, changes })
    }

    /// From now on changes count from the list of now.
    async fn rebind(&mut self) {
        // If the store does not answer, changes go on counting from the older list.
        if let Ok(offer) = self.hub.rebind_with(&self.tenant, &self.thread, &self.options).await {
            self.changes = offer.watch();
            self.offer = offer;
        }
    }
}
