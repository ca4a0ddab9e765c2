//! Offers: the pinned tool list of one step, and the events that say when it is out of date.
//!
//! In: a thread and its toolset. Out: an immutable list. While it is held, a change of the thread's available tools is emitted
//! as `tool.rebind.required` (`notifications`): additions within a second, removals after `rebind_delay` if the tool is still
//! unavailable then.

mod notifications;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, Weak},
};

use serde_json::Value;
use tokio::sync::watch;

pub(super) use notifications::watch_offers;

use super::{
    StatusScope, ToolHub,
    availability::{ToolSnapshot, is_listed},
    explain::summary_line,
};
use crate::{
    engine::Engine,
    execution::Tool,
    offers::{BoundOffer, OfferDiff, OfferWatch},
    registry::{ToolFilter, Tools, Toolset},
};
use toolhub_schema::export;
use toolhub_types::{
    error::CallError,
    event_kind::EventKind,
    export_format::Format,
    ids::{Tenant, ThreadId, ThreadKey},
    language::Language,
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

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
        let mut names: Vec<ToolName> = self.bound.tools.names().cloned().collect();
        names.sort_unstable();
        names
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
        let usable = self.find_usable(&all, tenant, thread, toolset).await?;
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
        all: &Tools,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
    ) -> Result<UsableTools, CallError> {
        let recorded = self.engine.statuses.recorded_tools(ThreadKey::new(tenant, thread));
        let has_record = |name: &ToolName| recorded.iter().any(|tools| tools.contains(name));
        // Most tools depend on nothing and have no record that concerns the thread. There may be thousands of threads and tools: do
        // not evaluate these tools for each.
        let is_uniform = |tool: &Arc<Tool>| tool.definition.depends_on.is_empty() && !has_record(&tool.definition.name);
        let (mut usable, mut others) = (Vec::new(), Vec::new());
        for tool in all.of_toolset(toolset) {
            if !is_uniform(tool) {
                others.push(tool.clone());
            } else if tool.is_present() && is_listed(tool) {
                usable.push(tool.definition.name.clone());
            }
        }
        if others.is_empty() {
            return Ok((usable, None));
        }
        let (names, next_change) =
            usable_names(self.snapshot_tools(others, StatusScope::Thread(tenant, thread)).await?);
        usable.extend(names);
        Ok((usable, next_change))
    }

    /// The tools of a toolset, usable or not, sorted by name.
    pub(super) fn list_toolset(&self, toolset: &Toolset) -> Vec<Arc<Tool>> {
        self.tools().list_toolset(toolset)
    }

    /// The difference between an offer and the tools usable now, and when evidence for one of those expires.
    async fn diff_offer(&self, bound: &BoundOffer) -> Result<(OfferDiff, Option<Timestamp>), CallError> {
        let (usable, next_change) =
            self.find_usable(&self.tools(), &bound.tenant, &bound.thread, &bound.toolset).await?;
        let is_offered = |name: &&ToolName| bound.tools.get(name).is_some();
        let mut diff = OfferDiff::default();
        diff.added.extend(usable.iter().filter(|name| !is_offered(name)).cloned());
        // Most offers still have only usable tools: compare the lists only if this one has others.
        if usable.len() - diff.added.len() < bound.tools.len() {
            let usable: HashSet<&ToolName> = usable.iter().collect();
            diff.removed.extend(bound.tools.names().filter(|name| !usable.contains(name)).cloned());
        }
        diff.added.sort_unstable();
        diff.removed.sort_unstable();
        Ok((diff, next_change))
    }
}

fn export_tools(tools: &Tools, format: Format) -> Vec<Value> {
    let tools = tools.list(&ToolFilter::default());
    let definitions: Vec<&Definition> = tools.iter().map(|tool| &tool.definition).collect();
    export::export(format, definitions)
}

/// The usable tools in no order, and when evidence for one of them expires, so that it waits for its dependencies again.
type UsableTools = (Vec<ToolName>, Option<Timestamp>);

fn usable_names(mut snapshots: Vec<ToolSnapshot>) -> UsableTools {
    snapshots.retain(ToolSnapshot::is_offered);
    let next_change = snapshots.iter().filter_map(|snapshot| snapshot.reading.next_change).min();
    (snapshots.iter().map(|snapshot| snapshot.tool.definition.name.clone()).collect(), next_change)
}
