//! What a model is offered for one step, and the news that it is no longer what it would be offered now.
//!
//! In: a thread. Out: a list that stays as it is for as long as it is held. While it is held, a change of what the thread
//! may use is told as `tool.rebind.required`: an addition at once, a removal only if it lasts.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use serde_json::Value;
use tokio::sync::Notify;

use super::ToolHub;
use crate::{
    clock::{self, Instant},
    engine::Engine,
    error::CallError,
    events::News,
    export::{self, Format},
    ids::{Tenant, ThreadId},
    registry::{Filter, Tools},
    tool::{Definition, ToolName},
};

/// The tools a thread is offered for one step. Make its calls [among](super::CallRequest::among) these.
#[derive(Debug, Clone)]
pub struct Offer(Arc<Bound>);

/// A list that somebody holds for a thread.
#[derive(Debug)]
pub(crate) struct Bound {
    tenant: Tenant,
    thread: ThreadId,
    tools: Arc<Tools>,
    /// The difference listeners were told of last.
    told: Mutex<Difference>,
}

/// What has changed since a list was bound.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    added: Vec<ToolName>,
    removed: Vec<ToolName>,
}

/// The offers somebody holds, by thread: every question about a thread asks for its own, and there may be many threads.
#[derive(Default)]
pub(crate) struct Offers(Mutex<Held>);

#[derive(Default)]
struct Held {
    by_thread: HashMap<(Tenant, ThreadId), Vec<Weak<Bound>>>,
    /// How many threads there may be before those that hold nothing any more are looked for.
    room: usize,
}

impl Offers {
    fn add(&self, bound: &Arc<Bound>) {
        let mut held = self.lock();
        if held.by_thread.len() >= held.room {
            held.by_thread.retain(|_, offers| offers.iter().any(|offer| offer.strong_count() > 0));
            held.room = 2 * held.by_thread.len() + 1;
        }
        let offers = held.by_thread.entry((bound.tenant.clone(), bound.thread.clone())).or_default();
        offers.retain(|other| other.strong_count() > 0);
        offers.push(Arc::downgrade(bound));
    }

    /// Those held for one thread.
    pub(super) fn of(&self, tenant: &Tenant, thread: &ThreadId) -> Vec<Arc<Bound>> {
        let held = self.lock();
        if held.by_thread.is_empty() {
            return Vec::new();
        }
        let offers = held.by_thread.get(&(tenant.clone(), thread.clone()));
        offers.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    fn all(&self) -> Vec<Weak<Bound>> {
        self.lock().by_thread.values().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offer {
    /// The tools, as a list to make calls among.
    #[must_use]
    pub fn tools(&self) -> &Arc<Tools> {
        &self.0.tools
    }

    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<ToolName> {
        self.0.names().into_iter().collect()
    }

    /// Their definitions, as a model provider wants them.
    #[must_use]
    pub fn export(&self, format: Format) -> Vec<Value> {
        let tools = self.0.tools.list(&Filter::default());
        let definitions: Vec<&Definition> = tools.iter().map(|tool| &tool.definition).collect();
        export::export(format, definitions)
    }
}

impl Bound {
    pub(super) fn has(&self, tool: &ToolName) -> bool {
        self.tools.get(tool).is_some()
    }

    fn names(&self) -> BTreeSet<ToolName> {
        self.tools.list(&Filter::default()).iter().map(|tool| tool.definition.name.clone()).collect()
    }
}

impl ToolHub {
    /// What a model is offered in this thread for one step: exactly the available tools, pinned.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn offer(&self, tenant: &Tenant, thread: &ThreadId) -> Result<Offer, CallError> {
        let all = self.tools();
        let names = self.available_tools(tenant, thread).await?;
        let tools = Arc::new(all.only(&names));
        let (tenant, thread) = (tenant.clone(), thread.clone());
        let bound = Arc::new(Bound { tenant, thread, tools, told: Mutex::default() });
        self.engine.offers.add(&bound);
        Ok(Offer(bound))
    }

    /// Whether the thread would be offered something else now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn should_rebind(&self, offer: &Offer) -> Result<bool, CallError> {
        Ok(self.difference(&offer.0).await? != Difference::default())
    }

    async fn difference(&self, bound: &Bound) -> Result<Difference, CallError> {
        let now: BTreeSet<_> = self.available_tools(&bound.tenant, &bound.thread).await?.into_iter().collect();
        let then = bound.names();
        let less = |a: &BTreeSet<ToolName>, b: &BTreeSet<ToolName>| a.difference(b).cloned().collect();
        Ok(Difference { added: less(&now, &then), removed: less(&then, &now) })
    }

    /// Tells the holder of one list what is new. With `patient`, a removal is not told yet; says whether there is one.
    async fn tell_holder(&self, bound: &Bound, patient: bool) -> Result<bool, CallError> {
        let Difference { added, removed } = self.difference(bound).await?;
        let mut told = bound.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (removed, waiting): (Vec<_>, Vec<_>) =
            removed.into_iter().partition(|tool| !patient || told.removed.contains(tool));
        let fresh = |now: &[ToolName], then: &[ToolName]| now.iter().any(|tool| !then.contains(tool));
        let news = (fresh(&added, &told.added) || fresh(&removed, &told.removed)).then(|| News::RebindRequired {
            reason: format!("{} to add, {} to remove", added.len(), removed.len()),
            added: added.clone(),
            removed: removed.clone(),
        });
        *told = Difference { added, removed };
        drop(told);
        if let Some(news) = news {
            let events = &self.engine.services.events;
            events.tell_tenant(self.now(), &bound.tenant, Some(&bound.thread), news);
        }
        Ok(!waiting.is_empty())
    }

    /// Tells all holders; says whether a removal waits to be told.
    async fn tell_holders(&self, patient: bool) -> bool {
        let mut waits = false;
        for bound in self.engine.offers.all() {
            let Some(bound) = bound.upgrade() else { continue };
            // A store that does not answer now is asked again with the next change.
            waits |= self.tell_holder(&bound, patient).await.unwrap_or(false);
            // There may be thousands of them, and calls want to go on meanwhile. An offer must not seem to be held by this.
            drop(bound);
            tokio::task::yield_now().await;
        }
        waits
    }
}

/// Tells holders of offers about changes, for as long as the hub lives. A tool that is gone for a moment and back again is
/// no news: removals are told after a delay, if they still hold then.
pub(super) async fn watch(hub: Weak<Engine>, stirred: Arc<Notify>) {
    let mut due: Option<Instant> = None;
    loop {
        match due {
            None => stirred.notified().await,
            // Whether it was stirred or the time has come: both are looked at below.
            Some(at) => drop(tokio::time::timeout_at(at, stirred.notified()).await),
        }
        let Some(engine) = hub.upgrade() else { return };
        let (now, delay) = (engine.services.clock.instant(), engine.statuses.settings.rebind_delay);
        let ripe = due.is_some_and(|at| at <= now);
        let waits = ToolHub { engine }.tell_holders(!ripe).await;
        due = waits.then(|| due.filter(|_| !ripe).unwrap_or_else(|| clock::after(now, delay)));
    }
}
