//! What a model is offered for one step, and the news that it is no longer what it would be offered now.
//!
//! In: a thread, and which tools it is meant to have. Out: a list that stays as it is for as long as it is held. While it is held, a change of what the thread
//! may use is told as `tool.rebind.required`: an addition at once, a removal only if it lasts.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::Notify;

use super::{StatusScope, ToolHub, availability::ToolSnapshot, explain::summary_line};
use crate::{
    engine::Engine,
    execution::Tool,
    offers::{BoundOffer, Difference, HolderState},
    registry::{ToolFilter, Tools, Toolset},
};
use toolhub_schema::export;
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    error::CallError,
    event_kind::EventKind,
    export_format::Format,
    ids::{Tenant, ThreadId},
    language::Language,
    timestamp::Timestamp,
    tool::{Definition, ToolName},
};

/// How soon a store that did not answer is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The tools a thread is offered for one step. Make its calls [among](super::CallRequest::among) these.
#[derive(Debug, Clone)]
pub struct Offer(Arc<BoundOffer>);

impl Offer {
    /// The tools, as a list to make calls among.
    #[must_use]
    pub fn tools(&self) -> &Arc<Tools> {
        &self.0.tools
    }

    /// Whether a model is shown the same list: the same tools with the same definitions. Whoever shows it again then shows what it
    /// has shown before, to the letter, and a provider that remembers the beginning of a conversation need not read it anew.
    #[must_use]
    pub fn has_same_definitions(&self, other: &Self) -> bool {
        let list = |offer: &Self| offer.0.tools.list(&ToolFilter::default());
        let alike = |(mine, theirs): (Arc<Tool>, Arc<Tool>)| {
            Arc::ptr_eq(&mine, &theirs) || mine.definition == theirs.definition
        };
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.tools.len() == other.0.tools.len() && list(self).into_iter().zip(list(other)).all(alike))
    }

    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<ToolName> {
        self.0.names().into_iter().collect()
    }

    /// Their definitions, as a model provider wants them.
    #[must_use]
    pub fn export(&self, format: Format) -> Vec<Value> {
        let tools = self.0.tools.list(&ToolFilter::default());
        let definitions: Vec<&Definition> = tools.iter().map(|tool| &tool.definition).collect();
        export::export(format, definitions)
    }
}

impl ToolHub {
    /// What a model is offered in this thread for one step: exactly the available tools, pinned. Where `auto_rebind` is off
    /// and somebody holds a list for the thread, that list, until it is [bound again](Self::rebind).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Offer, CallError> {
        self.offer_of(tenant, thread, &Toolset::all()).await
    }

    /// The same, of the tools of a toolset. Lists of other toolsets that somebody holds for the thread are not touched.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer_of(&self, tenant: &Tenant, thread: &ThreadId, toolset: &Toolset) -> Result<Offer, CallError> {
        match self.pinned_offer(tenant, thread, toolset) {
            Some(offer) => Ok(offer),
            None => self.rebind_of(tenant, thread, toolset).await,
        }
    }

    /// The same, and one line about all tools of the toolset as [`summary_of`](Self::summary_of) has it: both of one look at them.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer_and_summary(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
        language: Language,
    ) -> Result<(Offer, String), CallError> {
        let all = self.tools();
        let seen = self.snapshot_tools(self.list_toolset(toolset), StatusScope::Thread(tenant, thread)).await?;
        let line = summary_line(&seen, language);
        let offer = self.pinned_offer(tenant, thread, toolset);
        Ok((offer.unwrap_or_else(|| self.bind(&all, tenant, thread, toolset, usable_names(seen))), line))
    }

    /// The list that stays until it is bound again, where the owner wants that and somebody holds one.
    fn pinned_offer(&self, tenant: &Tenant, thread: &ThreadId, toolset: &Toolset) -> Option<Offer> {
        let stays = !self.engine.statuses.settings().auto_rebind;
        stays.then(|| self.engine.offers.latest(tenant, thread, toolset)).flatten().map(Offer)
    }

    /// What a model is offered in this thread from now on, whatever somebody holds for it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rebind(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Offer, CallError> {
        self.rebind_of(tenant, thread, &Toolset::all()).await
    }

    /// The same, of the tools of a toolset. Where nothing has changed, it is the list that somebody holds already.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rebind_of(&self, tenant: &Tenant, thread: &ThreadId, toolset: &Toolset) -> Result<Offer, CallError> {
        let all = self.tools();
        let usable = self.find_usable(tenant, thread, toolset).await?;
        Ok(self.bind(&all, tenant, thread, toolset, usable))
    }

    /// Binds a list of these tools, or finds it bound.
    fn bind(
        &self,
        all: &Tools,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
        (names, grows_old): UsableTools,
    ) -> Offer {
        let names: Vec<ToolName> = names.into_iter().collect();
        let tools = Arc::new(all.subset(&names));
        let held = self.engine.offers.latest(tenant, thread, toolset).filter(|held| held.tools.is_equivalent(&tools));
        let bound = held.unwrap_or_else(|| {
            let (tenant, thread, toolset) = (tenant.clone(), thread.clone(), toolset.clone());
            let bound = Arc::new(BoundOffer { tenant, thread, toolset, tools, holder_state: Mutex::default() });
            self.engine.offers.add(&bound);
            bound
        });
        if grows_old.is_some() {
            // Nothing else will happen at that moment, so whoever tells holders must know of it now.
            self.engine.services.availability_changed.notify_one();
        }
        Offer(bound)
    }

    /// Whether the thread would be offered something else now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn should_rebind(&self, offer: &Offer) -> Result<bool, CallError> {
        Ok(self.diff_offer(&offer.0).await?.0 != Difference::default())
    }

    /// The tools of a toolset that a thread may use now, and when one of them begins to wait again by itself.
    async fn find_usable(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        toolset: &Toolset,
    ) -> Result<UsableTools, CallError> {
        self.snapshot_tools(self.list_toolset(toolset), StatusScope::Thread(tenant, thread)).await.map(usable_names)
    }

    /// The tools of a toolset, usable or not, by name.
    pub(super) fn list_toolset(&self, toolset: &Toolset) -> Vec<Arc<Tool>> {
        let mut tools = self.list(&ToolFilter::default());
        tools.retain(|tool| toolset.contains(&tool.definition.name));
        tools
    }

    /// What has changed, and when more does by itself.
    async fn diff_offer(&self, bound: &BoundOffer) -> Result<(Difference, Option<Timestamp>), CallError> {
        let (now, grows_old) = self.find_usable(&bound.tenant, &bound.thread, &bound.toolset).await?;
        let then = bound.names();
        let less = |a: &BTreeSet<ToolName>, b: &BTreeSet<ToolName>| a.difference(b).cloned().collect();
        Ok((Difference { added: less(&now, &then), removed: less(&then, &now) }, grows_old))
    }

    /// Tells the holder of one list what is new; a removal only if it has lasted. Answers when to look again: when one will
    /// have, or when there will be one.
    async fn notify_holder(&self, bound: &BoundOffer, now: Instant) -> Result<Option<Instant>, CallError> {
        let (Difference { added, removed }, grows_old) = self.diff_offer(bound).await?;
        let delay = self.engine.statuses.settings().rebind_delay;
        let mut heard = bound.holder_state.lock().unwrap_or_else(PoisonError::into_inner);
        let HolderState { notified: told, unavailable_since: gone } = &mut *heard;
        gone.retain(|tool, _| removed.contains(tool));
        let mut next = grows_old.map(|at| clock::deadline_after(now, at.since(self.now())));
        let lasts = |tool: &ToolName| {
            let due = clock::deadline_after(*gone.entry(tool.clone()).or_insert(now), delay);
            let lasts = due <= now || told.removed.contains(tool);
            next = if lasts { next } else { Some(next.map_or(due, |next| next.min(due))) };
            lasts
        };
        let removed: Vec<_> = removed.into_iter().filter(lasts).collect();
        let fresh = |now: &[ToolName], then: &[ToolName]| now.iter().any(|tool| !then.contains(tool));
        let news = (fresh(&added, &told.added) || fresh(&removed, &told.removed)).then(|| EventKind::RebindRequired {
            reason: format!("{} to add, {} to remove", added.len(), removed.len()),
            added: added.clone(),
            removed: removed.clone(),
        });
        *told = Difference { added, removed };
        drop(heard);
        if let Some(news) = news {
            let events = &self.engine.services.events;
            events.emit_for_tenant(self.now(), &bound.tenant, Some(&bound.thread), news);
        }
        Ok(next)
    }

    /// Tells all holders; answers when to look again, even if nothing changes until then.
    async fn notify_holders(&self) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for bound in self.engine.offers.all() {
            let Some(bound) = bound.upgrade() else { continue };
            let now = self.engine.services.clock.instant();
            let due = self
                .notify_holder(&bound, now)
                .await
                .unwrap_or_else(|_| Some(clock::deadline_after(now, STORE_RETRY_DELAY)));
            next = next.into_iter().chain(due).min();
            // There may be thousands of them, and calls want to go on meanwhile. An offer must not seem to be held by this.
            drop(bound);
            tokio::task::yield_now().await;
        }
        next
    }
}

/// Which tools may be used, and when one of them begins to wait again by itself.
type UsableTools = (BTreeSet<ToolName>, Option<Timestamp>);

fn usable_names(mut seen: Vec<ToolSnapshot>) -> UsableTools {
    seen.retain(ToolSnapshot::is_offered);
    let grows_old = seen.iter().filter_map(|seen| seen.reading.next_change).min();
    (seen.iter().map(|seen| seen.tool.definition.name.clone()).collect(), grows_old)
}

/// Tells holders of offers about changes, for as long as the hub lives. A tool that is gone for a moment and back again is
/// no news: removals are told after a delay, if they still hold then.
pub(super) async fn watch_offers(hub: Weak<Engine>, stirred: Arc<Notify>) {
    let mut due: Option<Instant> = None;
    loop {
        match due {
            None => stirred.notified().await,
            // Whether it was stirred or the time has come: both are looked at below.
            Some(at) => drop(tokio::time::timeout_at(at, stirred.notified()).await),
        }
        let Some(engine) = hub.upgrade() else { return };
        due = ToolHub { engine }.notify_holders().await;
    }
}
