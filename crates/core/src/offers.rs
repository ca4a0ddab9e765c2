//! Index of the offers held for each thread, and what their holders were notified of.
//!
//! Plain bookkeeping over weak references. `hub/offer.rs` creates offers and detects changes; `shared` has the lists that belong to
//! no thread.

mod removal_delay;
mod shared;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use hashlink::LruCache;
use tokio::sync::watch;

use removal_delay::RemovalDelay;
pub use shared::{OfferWatch, SharedOffer};
pub(crate) use shared::{SharedView, SharedViews};

use crate::registry::{Tools, Toolset};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    tool::ToolName,
};

/// An offer of tools to a thread.
#[derive(Debug)]
pub(crate) struct BoundOffer {
    pub(crate) tenant: Tenant,
    pub(crate) thread: ThreadId,
    /// The toolset it was made for; `tools` are those of the set that were usable.
    pub(crate) toolset: Toolset,
    pub(crate) tools: Arc<Tools>,
    pub(crate) holder_state: Mutex<HolderState>,
    /// How often its holder was notified.
    pub(crate) notifications: watch::Sender<u64>,
}

/// What the holder of an offer was notified of.
#[derive(Debug, Default)]
pub(crate) struct HolderState {
    /// The last emitted difference.
    pub(crate) notified: OfferDiff,
    pub(crate) removal_delay: RemovalDelay,
}

/// What has changed since an offer was bound; both sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OfferDiff {
    pub(crate) added: Vec<ToolName>,
    pub(crate) removed: Vec<ToolName>,
}

/// The held offers, indexed by thread, because every status request of a thread looks up its own.
#[derive(Default)]
pub(crate) struct Offers {
    of_threads: Mutex<OfferMap>,
    /// The lists that belong to no thread.
    pub(crate) shared: SharedViews,
}

/// Maximum number of threads whose offers are pinned; beyond it, the one that was bound longest ago is offered a new list.
const MAX_PINNED_THREADS: usize = 10_000;

struct OfferMap {
    by_thread: HashMap<ThreadKey, Vec<Weak<BoundOffer>>>,
    /// Offers that stay bound without a live handle, because `auto_rebind` is off. One per toolset of a thread.
    pinned: LruCache<ThreadKey, Vec<Arc<BoundOffer>>>,
    /// Number of entries at which threads without a held offer are pruned.
    prune_at: usize,
}

impl Default for OfferMap {
    fn default() -> Self {
        Self { by_thread: HashMap::new(), pinned: LruCache::new(MAX_PINNED_THREADS), prune_at: 0 }
    }
}

impl Offers {
    /// Keeps an offer bound until another one of the same toolset is pinned for the thread.
    pub(crate) fn pin(&self, bound: &Arc<BoundOffer>) {
        let mut map = self.lock();
        let owner = ThreadKey::new(&bound.tenant, &bound.thread);
        let mut offers = map.pinned.remove(&owner).unwrap_or_default();
        offers.retain(|other| other.toolset != bound.toolset);
        offers.push(bound.clone());
        map.pinned.insert(owner, offers);
    }

    /// Releases the pinned offers of a thread.
    pub(crate) fn unpin(&self, owner: &ThreadKey) {
        self.lock().pinned.remove(owner);
    }

    pub(crate) fn add(&self, bound: &Arc<BoundOffer>) {
        let mut map = self.lock();
        if map.by_thread.len() >= map.prune_at {
            map.by_thread.retain(|_, offers| offers.iter().any(|offer| offer.strong_count() > 0));
            map.prune_at = 2 * map.by_thread.len() + 1;
        }
        let offers = map.by_thread.entry(ThreadKey::new(&bound.tenant, &bound.thread)).or_default();
        offers.retain(|other| other.strong_count() > 0);
        offers.push(Arc::downgrade(bound));
    }

    /// The offers held for a thread.
    pub(crate) fn for_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Vec<Arc<BoundOffer>> {
        let map = self.lock();
        if map.by_thread.is_empty() {
            return Vec::new();
        }
        let offers = map.by_thread.get(&ThreadKey::new(tenant, thread));
        offers.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// The offer of a toolset that was bound last for a thread.
    pub(crate) fn latest(&self, tenant: &Tenant, thread: &ThreadId, toolset: &Toolset) -> Option<Arc<BoundOffer>> {
        self.for_thread(tenant, thread).into_iter().rfind(|bound| bound.toolset == *toolset)
    }

    /// Whether it has no watchers.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().by_thread.is_empty() && self.shared.held().is_empty()
    }

    /// All held offers of threads.
    pub(crate) fn all(&self) -> Vec<Weak<BoundOffer>> {
        self.lock().by_thread.values().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, OfferMap> {
        self.of_threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoundOffer {
    /// Whether the offer contains a tool that is not usable, or lacks a usable one of its toolset.
    pub(crate) fn is_stale_for(&self, tool: &ToolName, usable: bool) -> bool {
        self.tools.get(tool).is_some() != (usable && self.toolset.contains(tool))
    }
}
