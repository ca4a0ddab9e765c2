//! Offers without a thread: the list that callers share who name no thread.
//!
//! In: a toolset. Out: the tools that are not withheld, and a signal when the list should be read again. Tools that wait for their
//! dependencies are listed too: whether these are met is known only in a thread, and the pipeline checks it. A view is evaluated once
//! for all who wait for its changes.

use std::sync::Arc;

use super::{ToolHub, availability::is_offered};
use crate::{
    execution::Tool,
    offers::{OfferWatch, SharedOffer, SharedView},
    registry::Toolset,
};
use toolhub_storage::clock::Instant;

impl ToolHub {
    /// The tools of a toolset that a caller without a thread is offered now, sorted by name. Missing are those that are withheld from
    /// all threads: failed, in maintenance, disabled, not connected, waiting for the approval of their definition, or denied by a
    /// rule to every caller; for one caller see [`Tool::denied_to`].
    #[must_use]
    pub fn shared_offer(&self, toolset: &Toolset) -> SharedOffer {
        self.hand_out(&self.engine.offers.shared.get(toolset))
    }

    /// Whether [`shared_offer`](Self::shared_offer) has a tool of this name now. Cheap: looks at no other tool.
    #[must_use]
    pub fn is_in_shared_offer(&self, toolset: &Toolset, name: &str) -> bool {
        let tool = self.get(name).filter(|_| toolset.contains(name));
        tool.is_some_and(|tool| is_offered(&tool, &self.shared_status(&tool)))
    }

    /// Says when [`shared_offer`](Self::shared_offer) should be read again: a tool was added, returned or has another definition,
    /// or a tool has been withheld for `rebind_delay`. At most once a second, with a `rebind_delay` under four seconds more often, and
    /// once for several changes.
    #[must_use]
    pub fn watch_shared_offer(&self, toolset: &Toolset) -> OfferWatch {
        let view = self.engine.offers.shared.get(toolset);
        let watch = view.watch();
        if view.is_new() {
            // The watcher is taken to have the list of now.
            self.hand_out(&view);
        }
        self.engine.services.availability_changed.notify_one();
        watch
    }

    fn hand_out(&self, view: &SharedView) -> SharedOffer {
        view.hand_out(self.find_usable_shared(view), || self.engine.offers.shared.next_revision())
    }

    /// Announces changes of all watched views; returns when to check again even if nothing changes until then. `changed_at`: when
    /// availability changed last.
    pub(super) fn announce_shared_offers(&self, changed_at: Instant) -> Option<Instant> {
        let shared = &self.engine.offers.shared;
        let (now, delay) = (self.engine.services.clock.instant(), self.engine.statuses.settings().rebind_delay);
        let announce = |view: Arc<SharedView>| {
            view.announce(self.find_usable_shared(&view), || shared.next_revision(), (changed_at, now), delay)
        };
        shared.held().into_iter().filter_map(announce).min()
    }

    fn find_usable_shared(&self, view: &SharedView) -> Vec<Arc<Tool>> {
        let candidates = view.candidates(&self.tools());
        candidates.iter().filter(|tool| is_offered(tool, &self.shared_status(tool))).cloned().collect()
    }
}
