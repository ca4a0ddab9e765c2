//! The lists that are offered where there is no thread: one view per toolset, shared by all who hold its list.
//!
//! In: the tools usable now. Out: the list with its revision, and an announcement when the lists that were handed out are out of
//! date. However many holders there are, a view is compared once. `hub/shared_offer.rs` finds the usable tools.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::RemovalDelay;
use crate::{
    execution::Tool,
    registry::{Tools, Toolset},
};
use toolhub_storage::clock::Instant;
use toolhub_types::tool::ToolName;

/// Number of views from which those without a holder are pruned.
const MIN_PRUNE: usize = 64;

/// The tools offered where there is no thread, at one time. Cheap to clone.
#[derive(Clone)]
pub struct SharedOffer(Arc<SharedList>);

struct SharedList {
    revision: u64,
    tools: Box<[Arc<Tool>]>,
}

impl SharedOffer {
    /// The tools, sorted by name.
    #[must_use]
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.0.tools
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        let tools = self.tools();
        let index = tools.binary_search_by(|tool| tool.definition.name.as_str().cmp(name)).ok()?;
        tools.get(index)
    }

    /// Identifies the list: two lists with the same revision, of whatever toolset, have the same definitions. What is made from a
    /// list, such as its JSON text, can be cached by it.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    fn has_same_definitions(&self, tools: &[Arc<Tool>]) -> bool {
        let same = |(mine, other): (&Arc<Tool>, &Arc<Tool>)| is_same_definition(mine, other);
        self.tools().len() == tools.len() && self.tools().iter().zip(tools).all(same)
    }
}

impl std::fmt::Debug for SharedOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.tools().iter().map(|tool| tool.definition.name.as_str());
        f.debug_struct("SharedOffer").field("revision", &self.revision()).field("tools", &names.len()).finish()
    }
}

fn is_same_definition(a: &Arc<Tool>, b: &Arc<Tool>) -> bool {
    Arc::ptr_eq(a, b) || a.definition == b.definition
}

/// Says when a list of tools has changed; see [`ToolHub::watch_shared_offer`](crate::ToolHub::watch_shared_offer) and
/// [`Offer::watch`](crate::Offer::watch).
#[derive(Debug, Clone)]
pub struct OfferWatch(watch::Receiver<u64>);

impl OfferWatch {
    pub(crate) fn new(changes: watch::Receiver<u64>) -> Self {
        Self(changes)
    }

    /// Waits until the list should be read again. Several changes that were not waited for are one. Returns `false` when the hub or
    /// the offer is gone.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// The views, by toolset.
#[derive(Default)]
pub(crate) struct SharedViews {
    by_toolset: Mutex<HashMap<Toolset, Arc<SharedView>>>,
    last_revision: AtomicU64,
}

impl SharedViews {
    /// The view of a toolset.
    pub(crate) fn get(&self, toolset: &Toolset) -> Arc<SharedView> {
        let mut views = self.lock();
        if let Some(view) = views.get(toolset) {
            return view.clone();
        }
        if views.len() >= MIN_PRUNE {
            views.retain(|_, view| view.has_holders() || Arc::strong_count(view) > 1);
        }
        let view = Arc::new(SharedView::new(toolset.clone()));
        views.insert(toolset.clone(), view.clone());
        view
    }

    /// The watched views.
    pub(crate) fn held(&self) -> Vec<Arc<SharedView>> {
        self.lock().values().filter(|view| view.has_holders()).cloned().collect()
    }

    pub(crate) fn next_revision(&self) -> u64 {
        self.last_revision.fetch_add(1, Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Toolset, Arc<SharedView>>> {
        self.by_toolset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The view of one toolset.
pub(crate) struct SharedView {
    toolset: Toolset,
    announcements: watch::Sender<u64>,
    state: Mutex<ViewState>,
}

struct ViewState {
    /// The tools of the toolset, usable or not, sorted by name, and the revision of the registry that they are from.
    candidates: Arc<[Arc<Tool>]>,
    registry_revision: Option<u64>,
    current: SharedOffer,
    handed_out: HandedOut,
    /// The list that was handed out last.
    last_handed_out: u64,
    removal_delay: RemovalDelay,
}

/// What holders may have: lists that were handed out since the last announcement.
#[derive(Default)]
struct HandedOut {
    /// The tools in each of the lists.
    in_all: BTreeMap<ToolName, Arc<Tool>>,
    /// The tools in one of the lists.
    in_any: BTreeSet<ToolName>,
}

impl HandedOut {
    fn only(list: &SharedOffer) -> Self {
        let named = list.tools().iter().map(|tool| (tool.definition.name.clone(), tool.clone()));
        let in_all: BTreeMap<_, _> = named.collect();
        Self { in_any: in_all.keys().cloned().collect(), in_all }
    }

    fn add(&mut self, list: &SharedOffer) {
        self.in_all.retain(|name, tool| list.get(name).is_some_and(|other| is_same_definition(tool, other)));
        self.in_any.extend(list.tools().iter().map(|tool| tool.definition.name.clone()));
    }

    fn lacks_one_of(&self, list: &SharedOffer) -> bool {
        let has = |tool: &Arc<Tool>| {
            self.in_all.get(&tool.definition.name).is_some_and(|handed_out| is_same_definition(handed_out, tool))
        };
        !list.tools().iter().all(has)
    }
}

impl SharedView {
    pub(crate) fn new(toolset: Toolset) -> Self {
        let current = SharedOffer(Arc::new(SharedList { revision: 0, tools: Box::default() }));
        let state = ViewState {
            candidates: Arc::default(),
            registry_revision: None,
            current,
            handed_out: HandedOut::default(),
            last_handed_out: 0,
            removal_delay: RemovalDelay::default(),
        };
        Self { toolset, announcements: watch::Sender::new(0), state: Mutex::new(state) }
    }

    pub(crate) fn watch(&self) -> OfferWatch {
        OfferWatch(self.announcements.subscribe())
    }

    /// Whether no list was handed out.
    pub(crate) fn is_new(&self) -> bool {
        self.lock().last_handed_out == 0
    }

    fn has_holders(&self) -> bool {
        self.announcements.receiver_count() > 0
    }

    /// The tools of the toolset, usable or not, sorted by name.
    pub(crate) fn candidates(&self, registry: &Tools) -> Arc<[Arc<Tool>]> {
        let mut state = self.lock();
        if state.registry_revision != Some(registry.revision()) {
            state.candidates = registry.list_toolset(&self.toolset).into();
            state.registry_revision = Some(registry.revision());
        }
        state.candidates.clone()
    }

    /// The list of these tools, for a caller that asked for it.
    pub(crate) fn hand_out(&self, usable: Vec<Arc<Tool>>, next_revision: impl FnOnce() -> u64) -> SharedOffer {
        let mut state = self.lock();
        let list = state.update(usable, next_revision);
        match state.last_handed_out {
            0 => state.handed_out = HandedOut::only(&list),
            last if last != list.revision() => state.handed_out.add(&list),
            _ => {}
        }
        state.last_handed_out = list.revision();
        list
    }

    /// Announces a change: a tool that a list lacks at once, a tool that is not usable any more after `delay`. Returns when to
    /// look again. `times`: of the last change of availability, and now.
    pub(crate) fn announce(
        &self,
        usable: Vec<Arc<Tool>>,
        next_revision: impl FnOnce() -> u64,
        times: (Instant, Instant),
        delay: Duration,
    ) -> Option<Instant> {
        let mut state = self.lock();
        let list = state.update(usable, next_revision);
        let ViewState { handed_out, last_handed_out, removal_delay, .. } = &mut *state;
        let removed = handed_out.in_any.iter().filter(|name| list.get(name).is_none()).cloned().collect();
        let (due, next) = removal_delay.due(removed, times, delay);
        if due.is_empty() && !handed_out.lacks_one_of(&list) {
            return next;
        }
        // All holders read the list now.
        (*handed_out, *last_handed_out) = (HandedOut::only(&list), list.revision());
        self.announcements.send_modify(|count| *count += 1);
        None
    }

    fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewState {
    /// Replaces the list if it has changed.
    fn update(&mut self, usable: Vec<Arc<Tool>>, next_revision: impl FnOnce() -> u64) -> SharedOffer {
        let is_same = self.current.revision() != 0 && self.current.has_same_definitions(&usable);
        let revision = if is_same { self.current.revision() } else { next_revision() };
        self.current = SharedOffer(Arc::new(SharedList { revision, tools: usable.into() }));
        self.current.clone()
    }
}
