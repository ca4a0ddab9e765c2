//! Offers: the pinned tool list of one step, and the events that say when it is out of date.
//!
//! In: a thread and its toolset. Out: an immutable list. While it is held, a change of the thread's available tools is emitted
//! as `tool.rebind.required`: additions within a second, removals after `rebind_delay` if the tool is still unavailable then.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::{StatusScope, ToolHub, availability::ToolSnapshot, explain::summary_line};
use crate::{
    engine::Engine,
    execution::Tool,
    offers::{BoundOffer, HolderState, OfferDiff, OfferWatch},
    registry::{ToolFilter, Tools, Toolset},
};
use toolhub_schema::export;
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    error::CallError,
    event_kind::EventKind,
    export_format::Format,
    ids::{Tenant, ThreadId, ThreadKey},
    language::Language,
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

/// Delay before a store that did not answer is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The least time from one check of all offers to the next: servers may register many tools one after the other. It is shorter where
/// removals are announced soon.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The tools offered to a thread for one step. Make its calls [from](super::CallRequest::from_offer) these.
#[derive(Clone)]
pub struct Offer {
    bound: Arc<BoundOffer>,
    /// For the events of exports. Weak: an offer must not keep the hub and its store open.
    engine: Weak<Engine>,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bound.fmt(f)
    }
}

impl Offer {
    /// The tools, to be passed to [`from_offer`](super::CallRequest::from_offer).
    #[must_use]
    pub fn tools(&self) -> &Arc<Tools> {
        &self.bound.tools
    }

    /// Whether the two offers have the same tools with the same definitions. Their exports are then byte for byte equal, so a
    /// provider's prompt cache stays valid.
    #[must_use]
    pub fn has_same_definitions(&self, other: &Self) -> bool {
        let list = |offer: &Self| offer.bound.tools.list(&ToolFilter::default());
        let same = |(mine, theirs): (Arc<Tool>, Arc<Tool>)| {
            Arc::ptr_eq(&mine, &theirs) || mine.definition == theirs.definition
        };
        Arc::ptr_eq(&self.bound, &other.bound)
            || (self.bound.tools.len() == other.bound.tools.len() && list(self).into_iter().zip(list(other)).all(same))
    }

    /// Says when `tool.rebind.required` is emitted for this offer.
    #[must_use]
    pub fn watch(&self) -> OfferWatch {
        OfferWatch::new(self.bound.notifications.subscribe())
    }

    /// The tools' names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<ToolName> {
        self.bound.names().into_iter().collect()
    }

    /// The tools' definitions in the format of a model provider, sorted by name. Emits `tool.executor.exported` in the thread.
    #[must_use]
    pub fn export(&self, format: Format) -> Vec<Value> {
        let BoundOffer { tenant, thread, tools, .. } = &*self.bound;
        let exported = export_tools(tools, format);
        if let Some(engine) = self.engine.upgrade() {
            let (services, event) = (&engine.services, EventKind::ExecutorExported { format, count: exported.len() });
            services.events.emit_for_tenant(services.clock.now(), tenant, Some(thread), event);
        }
        exported
    }
}

/// Which tools an offer, a summary or a list of statuses covers, and in which language its texts are. The default is all tools, in
/// English.
#[derive(Debug, Clone, Default)]
pub struct OfferOptions {
    /// The tools to choose from.
    pub toolset: Toolset,
    /// The language of reasons and summaries.
    pub language: Language,
}

impl From<Toolset> for OfferOptions {
    fn from(toolset: Toolset) -> Self {
        Self { toolset, ..Self::default() }
    }
}

impl From<Language> for OfferOptions {
    fn from(language: Language) -> Self {
        Self { language, ..Self::default() }
    }
}

impl ToolHub {
    /// Offers a thread its tools for one step: exactly the available ones, pinned. With `auto_rebind` off, returns the first
    /// offer of the thread, also after it was dropped, until [`rebind`](Self::rebind) is called or the process ends.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Offer, CallError> {
        self.offer_with(tenant, thread, &OfferOptions::default()).await
    }

    /// Like [`offer`](Self::offer), for the tools of a toolset. Offers of other toolsets held for the thread are not touched.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer_with(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        options: &OfferOptions,
    ) -> Result<Offer, CallError> {
        match self.pinned_offer(tenant, thread, &options.toolset) {
            Some(offer) => Ok(offer),
            None => self.rebind_with(tenant, thread, options).await,
        }
    }

    /// Like [`offer_with`](Self::offer_with), together with the line of [`status_summary`](Self::status_summary); both are
    /// computed from one snapshot.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer_and_summary(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        OfferOptions { toolset, language }: &OfferOptions,
    ) -> Result<(Offer, String), CallError> {
        let all = self.tools();
        let snapshots = self.snapshot_tools(self.list_toolset(toolset), StatusScope::Thread(tenant, thread)).await?;
        let line = summary_line(&snapshots, *language);
        let offer = self.pinned_offer(tenant, thread, toolset);
        Ok((offer.unwrap_or_else(|| self.bind(&all, tenant, thread, toolset, usable_names(snapshots))), line))
    }

    /// With `auto_rebind` off, the offer that is held for the thread and stays until it is rebound.
    fn pinned_offer(&self, tenant: &Tenant, thread: &ThreadId, toolset: &Toolset) -> Option<Offer> {
        let is_pinned = !self.engine.statuses.settings().auto_rebind;
        is_pinned
            .then(|| self.engine.offers.latest(tenant, thread, toolset))
            .flatten()
            .map(|bound| self.to_offer(bound))
    }

    /// Offers a thread its currently available tools, regardless of the offer that is held for it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rebind(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Offer, CallError> {
        self.rebind_with(tenant, thread, &OfferOptions::default()).await
    }

    /// Like [`rebind`](Self::rebind), for the tools of a toolset. Returns the held offer if nothing has changed.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rebind_with(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        OfferOptions { toolset, .. }: &OfferOptions,
    ) -> Result<Offer, CallError> {
        let all = self.tools();
        let usable = self.find_usable(tenant, thread, toolset).await?;
        Ok(self.bind(&all, tenant, thread, toolset, usable))
    }

    /// Binds an offer of these tools, or returns the held one if it is equivalent.
    fn bind(
        &self,
        all: &Tools,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
        (names, next_change): UsableTools,
    ) -> Offer {
        let names: Vec<ToolName> = names.into_iter().collect();
        let tools = Arc::new(all.subset(&names));
        let held = self.engine.offers.latest(tenant, thread, toolset).filter(|held| held.tools.is_equivalent(&tools));
        let bound = held.unwrap_or_else(|| {
            let (tenant, thread, toolset) = (tenant.clone(), thread.clone(), toolset.clone());
            let bound = Arc::new(BoundOffer {
                tenant,
                thread,
                toolset,
                tools,
                holder_state: Mutex::default(),
                notifications: watch::Sender::default(),
            });
            self.engine.offers.add(&bound);
            bound
        });
        if self.engine.statuses.settings().auto_rebind {
            self.engine.offers.unpin(&ThreadKey::new(tenant, thread));
        } else {
            self.engine.offers.pin(&bound);
        }
        if next_change.is_some() {
            // Evidence expires without an event. Wake `watch_offers`, so that it schedules a check for that time.
            self.engine.services.availability_changed.notify_one();
        }
        self.to_offer(bound)
    }

    fn to_offer(&self, bound: Arc<BoundOffer>) -> Offer {
        Offer { bound, engine: Arc::downgrade(&self.engine) }
    }

    /// The definitions of all tools in the format of a model provider, sorted by name. Emits `tool.executor.exported`.
    #[must_use]
    pub fn export(&self, format: Format) -> Vec<Value> {
        self.export_toolset(format, &Toolset::default())
    }

    /// Like [`export`](Self::export), for the tools of a toolset.
    #[must_use]
    pub fn export_toolset(&self, format: Format, toolset: &Toolset) -> Vec<Value> {
        let exported = export_tools(&self.tools().in_toolset(toolset), format);
        self.emit(EventKind::ExecutorExported { format, count: exported.len() });
        exported
    }

    /// Whether the thread would be offered other tools now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn should_rebind(&self, offer: &Offer) -> Result<bool, CallError> {
        Ok(self.diff_offer(&offer.bound).await?.0 != OfferDiff::default())
    }

    /// The tools of a toolset that a thread may use now, and when evidence for one of them expires.
    async fn find_usable(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
    ) -> Result<UsableTools, CallError> {
        self.snapshot_tools(self.list_toolset(toolset), StatusScope::Thread(tenant, thread)).await.map(usable_names)
    }

    /// The tools of a toolset, usable or not, sorted by name.
    pub(super) fn list_toolset(&self, toolset: &Toolset) -> Vec<Arc<Tool>> {
        self.tools().list_toolset(toolset)
    }

    /// The difference between an offer and the tools usable now, and when evidence for one of those expires.
    async fn diff_offer(&self, bound: &BoundOffer) -> Result<(OfferDiff, Option<Timestamp>), CallError> {
        let (usable, next_change) = self.find_usable(&bound.tenant, &bound.thread, &bound.toolset).await?;
        let offered = bound.names();
        let minus = |a: &BTreeSet<ToolName>, b: &BTreeSet<ToolName>| a.difference(b).cloned().collect();
        Ok((OfferDiff { added: minus(&usable, &offered), removed: minus(&offered, &usable) }, next_change))
    }

    /// Emits `tool.rebind.required` for one offer if its difference grew; removals only after `rebind_delay`. Returns when to
    /// check again: when a pending removal is due, or when evidence expires.
    async fn notify_holder(&self, bound: &BoundOffer, now: Instant) -> Result<Option<Instant>, CallError> {
        let (OfferDiff { added, removed }, next_change) = self.diff_offer(bound).await?;
        let delay = self.engine.statuses.settings().rebind_delay;
        let mut holder_state = bound.holder_state.lock().unwrap_or_else(PoisonError::into_inner);
        let HolderState { notified, removal_delay } = &mut *holder_state;
        let expiry = next_change.map(|at| clock::deadline_after(now, at.since(self.now())));
        let (removed, next_due) = removal_delay.due(removed, now, delay);
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
    async fn notify_holders(&self) -> Option<Instant> {
        let mut next = self.announce_shared_offers();
        for bound in self.engine.offers.all() {
            let Some(bound) = bound.upgrade() else { continue };
            let now = self.engine.services.clock.instant();
            let due = self
                .notify_holder(&bound, now)
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

fn export_tools(tools: &Tools, format: Format) -> Vec<Value> {
    let tools = tools.list(&ToolFilter::default());
    let definitions: Vec<&Definition> = tools.iter().map(|tool| &tool.definition).collect();
    export::export(format, definitions)
}

/// The usable tools, and when evidence for one of them expires, so that it waits for its dependencies again.
type UsableTools = (BTreeSet<ToolName>, Option<Timestamp>);

fn usable_names(mut snapshots: Vec<ToolSnapshot>) -> UsableTools {
    snapshots.retain(ToolSnapshot::is_offered);
    let next_change = snapshots.iter().filter_map(|snapshot| snapshot.reading.next_change).min();
    (snapshots.iter().map(|snapshot| snapshot.tool.definition.name.clone()).collect(), next_change)
}

/// Notifies holders of offers about changes until the hub is dropped. Removals are debounced: a tool that is unavailable only
/// briefly causes no event.
pub(super) async fn watch_offers(hub: Weak<Engine>, availability_changed: Arc<Notify>) {
    let mut next_check: Option<Instant> = None;
    let mut earliest_check = Instant::now();
    loop {
        match next_check {
            None => availability_changed.notified().await,
            // A notification and a timeout are handled alike.
            Some(at) => drop(tokio::time::timeout_at(at, availability_changed.notified()).await),
        }
        tokio::time::sleep_until(earliest_check).await;
        let Some(engine) = hub.upgrade() else { return };
        if !engine.offers.is_empty() {
            // A removal is noticed by one check and announced by another one.
            let interval = engine.statuses.settings().rebind_delay / 4;
            let interval = interval.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
            earliest_check = clock::deadline_after(engine.services.clock.instant(), interval);
        }
        next_check = ToolHub { engine }.notify_holders().await;
    }
}
