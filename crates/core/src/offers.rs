//! The lists of tools that somebody holds for a thread, and what their holders were told of changes.
//!
//! Plain bookkeeping. `hub/offer.rs` makes the lists and finds out what has changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::registry::{ToolFilter, Tools, Toolset};
use toolhub_storage::clock::Instant;
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    tool::ToolName,
};

/// A list that somebody holds for a thread.
#[derive(Debug)]
pub(crate) struct BoundOffer {
    pub(crate) tenant: Tenant,
    pub(crate) thread: ThreadId,
    /// Which tools the thread is meant to have; the list is those of them that may be used.
    pub(crate) toolset: Toolset,
    pub(crate) tools: Arc<Tools>,
    pub(crate) holder_state: Mutex<HolderState>,
}

/// What the holder of a list knows of its changes.
#[derive(Debug, Default)]
pub(crate) struct HolderState {
    /// The difference listeners were told of last.
    pub(crate) notified: Difference,
    /// Since when tools of the list may no longer be used, of which listeners were not told yet.
    pub(crate) unavailable_since: BTreeMap<ToolName, Instant>,
}

/// What has changed since a list was bound.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: Vec<ToolName>,
    pub(crate) removed: Vec<ToolName>,
}

/// The offers somebody holds, by thread: every question about a thread asks for its own, and there may be many threads.
#[derive(Default)]
pub(crate) struct Offers(Mutex<OfferMap>);

#[derive(Default)]
struct OfferMap {
    by_thread: HashMap<ThreadKey, Vec<Weak<BoundOffer>>>,
    /// How many threads there may be before those that hold nothing any more are looked for.
    prune_at: usize,
}

impl Offers {
    pub(crate) fn add(&self, bound: &Arc<BoundOffer>) {
        let mut held = self.lock();
        if held.by_thread.len() >= held.prune_at {
            held.by_thread.retain(|_, offers| offers.iter().any(|offer| offer.strong_count() > 0));
            held.prune_at = 2 * held.by_thread.len() + 1;
        }
        let offers = held.by_thread.entry(ThreadKey::new(&bound.tenant, &bound.thread)).or_default();
        offers.retain(|other| other.strong_count() > 0);
        offers.push(Arc::downgrade(bound));
    }

    /// Those held for one thread.
    pub(crate) fn for_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Vec<Arc<BoundOffer>> {
        let held = self.lock();
        if held.by_thread.is_empty() {
            return Vec::new();
        }
        let offers = held.by_thread.get(&ThreadKey::new(tenant, thread));
        offers.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// The one of a toolset that was bound last for a thread.
    pub(crate) fn latest(&self, tenant: &Tenant, thread: &ThreadId, toolset: &Toolset) -> Option<Arc<BoundOffer>> {
        self.for_thread(tenant, thread).into_iter().rfind(|bound| bound.toolset == *toolset)
    }

    pub(crate) fn all(&self) -> Vec<Weak<BoundOffer>> {
        self.lock().by_thread.values().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, OfferMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoundOffer {
    /// Whether the list has a tool that may not be used, or lacks one that may be and is meant for it.
    pub(crate) fn is_stale_for(&self, tool: &ToolName, usable: bool) -> bool {
        self.tools.get(tool).is_some() != (usable && self.toolset.contains(tool))
    }

    pub(crate) fn names(&self) -> BTreeSet<ToolName> {
        self.tools.list(&ToolFilter::default()).iter().map(|tool| tool.definition.name.clone()).collect()
    }
}
