//! Says when a list that a client sees, or a resource that it subscribed to, has changed.
//!
//! In: the request of a client that listens. Out: a signal per change. With a thread the list of tools also depends on what happened in
//! it; a burst of changes is one signal.

use std::{sync::Arc, time::Duration};

use rmcp::ErrorData;
use toolhub_core::{
    HubListsWatch, ListRevisions, Offer, OfferOptions, OfferWatch, ToolHub, Toolset,
    ids::{Caller, ThreadId},
};

use super::{
    configured_toolset::ConfiguredToolset, lists::is_visible, request::McpRequest, resource_updates::ResourceUpdates,
    result,
};

/// How long further changes are waited for after one: those of a thread and of all threads are announced one after the other.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// When a list is made again that could not be.
const REBIND_RETRY: Duration = Duration::from_secs(1);

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListChange {
    Tools,
    Prompts,
    Resources,
    /// The resource with this address.
    Updated(String),
}

/// Watches the lists of one client.
pub(super) struct ListWatch {
    tools: ToolsWatch,
    lists: HubListsWatch,
    revisions: ListRevisions,
    /// Changes that were found together with another one.
    pending: Vec<ListChange>,
    updates: Arc<ResourceUpdates>,
    /// What its client may see.
    hub: ToolHub,
    toolset: Toolset,
    /// Where the toolset comes from.
    configured: Option<ConfiguredToolset>,
    /// Whether the config has the toolset no more.
    is_removed: bool,
    caller: Caller,
}

/// Watches the list of tools.
struct ToolsWatch {
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
    /// Whether the offer must be made again.
    is_outdated: bool,
}

impl ListWatch {
    pub(super) async fn new(
        hub: &ToolHub,
        request: &McpRequest,
        thread: Option<ThreadId>,
        updates: Arc<ResourceUpdates>,
    ) -> Result<Self, ErrorData> {
        let shared = hub.watch_shared_offer(&request.toolset);
        let thread = match thread {
            Some(thread) => Some(ThreadWatch::new(hub, request, thread).await?),
            None => None,
        };
        let (lists, revisions) = (hub.watch_lists(), hub.lists().revisions());
        let watch = Self {
            tools: ToolsWatch { shared, thread },
            lists,
            revisions,
            pending: Vec::new(),
            updates,
            hub: hub.clone(),
            toolset: request.toolset.clone(),
            configured: request.configured.clone(),
            is_removed: false,
            caller: request.principal.caller.clone(),
        };
        watch.resubscribe();
        Ok(watch)
    }

    /// Subscribes to the resources of a restored session that its sources have by now.
    fn resubscribe(&self) {
        let Self { hub, toolset, caller, .. } = self;
        let lists = hub.lists();
        let is_visible =
            |uri: &str| lists.read_resource(uri).is_some_and(|call| is_visible(hub, toolset, caller, &call));
        self.updates.resubscribe(hub, is_visible);
    }

    /// Waits for a change. Returns `None` when the hub is gone, or after the toolset was removed.
    pub(super) async fn changed(&mut self) -> Option<ListChange> {
        if let Some(change) = self.pending.pop() {
            return Some(change);
        }
        if self.is_removed {
            return None;
        }
        loop {
            tokio::select! {
                toolset = changed_toolset(self.configured.as_ref(), &self.toolset) => {
                    return Some(self.replace_toolset(toolset).await);
                }
                is_open = self.tools.next_change() => {
                    return (is_open && self.tools.settle().await).then_some(ListChange::Tools);
                }
                revisions = self.lists.changed() => {
                    let (before, now) = (std::mem::replace(&mut self.revisions, revisions?), self.revisions);
                    self.resubscribe();
                    let has_prompts = before.prompts != now.prompts;
                    if before.resources != now.resources {
                        self.pending.extend(has_prompts.then_some(ListChange::Prompts));
                        return Some(ListChange::Resources);
                    }
                    if has_prompts {
                        return Some(ListChange::Prompts);
                    }
                }
                () = self.updates.replaced() => self.resubscribe(),
                uri = self.updates.next() => return Some(ListChange::Updated(uri)),
            }
        }
    }

    /// Goes on with the toolset as the config has it now.
    async fn replace_toolset(&mut self, toolset: Option<Toolset>) -> ListChange {
        self.is_removed = toolset.is_none();
        if let Some(toolset) = toolset {
            self.tools.replace_toolset(&self.hub, &toolset).await;
            self.toolset = toolset;
            self.resubscribe();
            // What can be read depends on the toolset, too.
            let lists = self.hub.lists();
            self.pending.extend((!lists.prompts().is_empty()).then_some(ListChange::Prompts));
            self.pending.extend((!lists.resources().is_empty()).then_some(ListChange::Resources));
        }
        ListChange::Tools
    }
}

/// Waits until a toolset is another one; returns `None` when it does not exist any more.
async fn changed_toolset(configured: Option<&ConfiguredToolset>, known: &Toolset) -> Option<Toolset> {
    match configured {
        Some(configured) => configured.changed_from(known).await,
        None => std::future::pending().await,
    }
}

impl ToolsWatch {
    async fn replace_toolset(&mut self, hub: &ToolHub, toolset: &Toolset) {
        self.shared = hub.watch_shared_offer(toolset);
        if let Some(thread) = &mut self.thread {
            thread.options = OfferOptions::from(toolset.clone());
            thread.is_outdated = !thread.rebind().await;
        }
    }

    /// Waits for further changes of a burst. Returns `false` when the hub is gone.
    async fn settle(&mut self) -> bool {
        while let Ok(is_open) = tokio::time::timeout(SETTLE_TIME, self.next_change()).await {
            if !is_open {
                return false;
            }
        }
        true
    }

    /// Waits for a change. Returns `false` when the hub is gone. Cancel safe.
    async fn next_change(&mut self) -> bool {
        let Some(thread) = &mut self.thread else { return self.shared.changed().await };
        if !thread.is_outdated {
            tokio::select! {
                is_open = self.shared.changed() => return is_open,
                is_open = thread.changes.changed() => match is_open {
                    true => thread.is_outdated = true,
                    false => return false,
                },
            }
        }
        match thread.rebind().await {
            true => thread.is_outdated = false,
            // It stays outdated, so that the next wait tries again.
            false => tokio::time::sleep(REBIND_RETRY).await,
        }
        true
    }
}

impl ThreadWatch {
    async fn new(hub: &ToolHub, request: &McpRequest, thread: ThreadId) -> Result<Self, ErrorData> {
        let (tenant, options) = (request.principal.tenant.clone(), OfferOptions::from(request.toolset.clone()));
        let offer = hub.offer_with(&tenant, &thread, &options).await.map_err(|error| result::fault(&error))?;
        let changes = offer.watch();
        Ok(Self { hub: hub.clone(), tenant, thread, options, offer, changes, is_outdated: false })
    }

    /// From now on changes count from the list of now. Returns `false` if the store does not answer.
    async fn rebind(&mut self) -> bool {
        let offer = self.hub.rebind_with(&self.tenant, &self.thread, &self.options).await;
        let Ok(offer) = offer else { return false };
        self.changes = offer.watch();
        self.offer = offer;
        true
    }
}
