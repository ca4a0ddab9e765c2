//! Public API of what sources bring besides tools: lists of prompts and resources, and subscriptions to resources.

use std::sync::{Arc, Weak};

use tokio::sync::watch;
use toolhub_types::ids::Tenant;

use super::ToolHub;
use crate::{
    engine::Engine,
    source_lists::{HubLists, HubListsWatch, ResourceKey},
};

/// Says when a resource has changed, until it is dropped.
pub struct ResourceSubscription {
    changes: Option<watch::Receiver<u64>>,
    tenant: Tenant,
    key: ResourceKey,
    engine: Weak<Engine>,
}

/// Why a resource cannot be subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// No source lists it.
    #[error("no source lists this resource")]
    NotFound,
    /// Too many resources of its source have subscriptions.
    #[error("too many resources of this source are subscribed to")]
    TooMany,
}

impl ResourceSubscription {
    /// Waits until the source says that the resource has changed. Several changes that were not waited for are one. Returns `false`
    /// when the hub is gone.
    pub async fn changed(&mut self) -> bool {
        match &mut self.changes {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        }
    }
}

impl std::fmt::Debug for ResourceSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceSubscription").field("uri", &self.key.uri).finish_non_exhaustive()
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        drop(self.changes.take());
        if let Some(engine) = self.engine.upgrade() {
            engine.source_lists.watches.remove(&self.tenant, &self.key);
            ToolHub { engine }.report_watched_resources(&self.key.source);
        }
    }
}

impl ToolHub {
    /// The prompts, resources and resource templates of all sources.
    #[must_use]
    pub fn lists(&self) -> Arc<HubLists> {
        self.engine.source_lists.current()
    }

    /// Says when one of the [`lists`](Self::lists) has changed.
    #[must_use]
    pub fn watch_lists(&self) -> HubListsWatch {
        self.engine.source_lists.watch()
    }

    /// Subscribes to changes of a resource. All tenants hear of the changes that the source reports.
    ///
    /// # Errors
    /// When no source lists it or has a template that it fits, or too many are subscribed to; each tenant has a share that others cannot take.
    pub fn subscribe_resource(&self, tenant: &Tenant, uri: &str) -> Result<ResourceSubscription, SubscribeError> {
        let key = self.lists().locate_listed(uri).ok_or(SubscribeError::NotFound)?;
        let changes = self.engine.source_lists.watches.add(tenant, &key).ok_or(SubscribeError::TooMany)?;
        self.report_watched_resources(&key.source);
        let (changes, tenant) = (Some(changes), tenant.clone());
        Ok(ResourceSubscription { changes, tenant, key, engine: Arc::downgrade(&self.engine) })
    }

    /// Tells a source which of its resources are watched.
    pub(super) fn report_watched_resources(&self, source: &str) {
        if let Some(running) = self.source(source) {
            running.watch_resources(self.engine.source_lists.watches.uris(source));
        }
    }
}
