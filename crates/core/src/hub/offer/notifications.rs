//! Tells the holders of offers when these are out of date.
//!
//! In: the signal that availability changed somewhere. Out: `tool.rebind.required` and the signal of each offer whose difference from the
//! usable tools grew. Removals are debounced: a tool that is unavailable only briefly causes no event.

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Notify;

use super::ToolHub;
use crate::{
    engine::Engine,
    offers::{BoundOffer, HolderState, OfferDiff},
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{error::CallError, event_kind::EventKind, tool::ToolName};

/// Delay before a store that did not answer is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The least time from one check of all offers to the next: servers may register many tools one after the other. It is shorter where
/// removals are announced soon.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Notifies holders of offers about changes until the hub is dropped.
pub(in crate::hub) async fn watch_offers(hub: Weak<Engine>, availability_changed: Arc<Notify>) {
    let mut next_check: Option<Instant> = None;
    let mut earliest_check = Instant::now();
    loop {
        match next_check {
            None => availability_changed.notified().await,
            // A notification and a timeout are handled alike.
            Some(at) => drop(tokio::time::timeout_at(at, availability_changed.notified()).await),
        }
        let changed_at = wait_for_last_change(&availability_changed, earliest_check).await;
        let Some(engine) = hub.upgrade() else { return };
        if !engine.offers.is_empty() {
            // A removal is noticed by one check and announced by another one.
            let interval = engine.statuses.settings().rebind_delay / 4;
            let interval = interval.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
            earliest_check = clock::deadline_after(engine.services.clock.instant(), interval);
        }
        next_check = ToolHub { engine }.notify_holders(changed_at).await;
    }
}

/// Waits for the earliest time of the next check. Returns when availability changed last: the delay of a removal begins then, and not
/// when the check notices it.
async fn wait_for_last_change(availability_changed: &Notify, earliest_check: Instant) -> Instant {
    loop {
        let changed_at = Instant::now();
        let another = tokio::time::timeout_at(earliest_check, availability_changed.notified());
        if changed_at >= earliest_check || another.await.is_err() {
            return changed_at;
        }
    }
}

impl ToolHub {
    /// Emits `tool.rebind.required` for one offer if its difference grew; removals only after `rebind_delay`. Returns when to
    /// check again: when a pending removal is due, or when evidence expires. `changed_at`: when availability changed last.
    async fn notify_holder(
        &self,
        bound: &BoundOffer,
        now: Instant,
        changed_at: Instant,
    ) -> Result<Option<Instant>, CallError> {
        let (OfferDiff { added, removed }, next_change) = self.diff_offer(bound).await?;
        let delay = self.engine.statuses.settings().rebind_delay;
        let mut holder_state = bound.holder_state.lock().unwrap_or_else(PoisonError::into_inner);
        let HolderState { notified, removal_delay } = &mut *holder_state;
        let expiry = next_change.map(|at| clock::deadline_after(now, at.since(self.now())));
        let (removed, next_due) = removal_delay.due(removed, (changed_at, now), delay);
        let next_check = expiry.into_iter().chain(next_due).min();
        let has_new =
            |now: &[ToolName], before: &[ToolName]| now.iter().any(|tool| before.binary_search(tool).is_err());
        let is_news = has_new(&added, &notified.added) || has_new(&removed, &notified.removed);
        let event = is_news.then(|| EventKind::RebindRequired {
            reason: format!("{} to add, {} to remove", added.len(), removed.len()),
            added: added.clone(),
            removed: removed.clone(),
        });
        *notified = OfferDiff { added, removed };
        drop(holder_state);
        if let Some(event) = event {
            let events = &self.engine.services.events;
            events.emit_for_tenant(self.now(), &bound.tenant, Some(&bound.thread), event);
            bound.notifications.send_modify(|count| *count += 1);
        }
        Ok(next_check)
    }

    /// Notifies the holders of all offers; returns when to check again even if nothing changes until then.
    async fn notify_holders(&self, changed_at: Instant) -> Option<Instant> {
        let mut next = self.announce_shared_offers(changed_at);
        for bound in self.engine.offers.all() {
            let Some(bound) = bound.upgrade() else { continue };
            let now = self.engine.services.clock.instant();
            let due = self
                .notify_holder(&bound, now, changed_at)
                .await
                .unwrap_or_else(|_| Some(clock::deadline_after(now, STORE_RETRY_DELAY)));
            next = next.into_iter().chain(due).min();
            // There may be thousands of offers: let calls run in between. Drop the strong reference first, so that the offer
            // does not count as held.
            drop(bound);
            tokio::task::yield_now().await;
        }
        next
    }
}
