//! One list of tools. It never changes; changes make another list.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{RegistryError, Toolset, depends};
use crate::{executor::Executor, hooks::Hook, scheduler::Desk, services::Services, state::StateRules};
use toolhub_schema::{schema::Schema, suggest};
use toolhub_types::{
    ids::StateName,
    language::Language,
    policy::{Gate, Limits, Policy, PolicyBook, Rule},
    state_config::ManagerType,
    status::Presence,
    tool::{Definition, Kind, ToolName},
};

/// Which registration of a tool this is. A tool whose limits change stays the one it was; one that takes the place of another
/// under its name is another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registration(Arc<AtomicBool>);

impl Registration {
    /// The tool was removed, or another took its place. Calls that have it go on, and nothing is kept for later ones.
    pub(crate) fn retire(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl PartialEq for Registration {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A registered tool.
#[derive(Clone)]
pub struct Tool {
    /// What is known about it.
    pub definition: Definition,
    /// What its owner said about its calls.
    pub policy: Policy,
    pub(crate) registration: Registration,
    pub(crate) limits: Limits,
    /// Whether its calls are denied, asked about or allowed.
    pub(crate) gate: Gate,
    /// Its place in the scheduler. A tool that takes its place under the same name takes this over.
    pub(crate) desk: Arc<Desk>,
    /// The owner's own code around its calls.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    /// Of its definition: another one means that the tool is another.
    pub(crate) fingerprint: String,
    /// The states it takes out, and what holds for them.
    pub(crate) state: StateRules,
    /// Its owner has switched it off, and this is why.
    pub(crate) disabled: Option<Box<str>>,
    /// A call whose process died is run again. The tool is idempotent.
    pub(crate) rerun_interrupted: bool,
    pub(crate) schema: Schema,
    pub(crate) executor: Arc<dyn Executor>,
    /// What its executions may reach. Kept here so that a call holds one shared thing, the tool, and not two: counting
    /// holders is what callers on several threads would otherwise wait for each other at.
    pub(crate) services: Arc<Services>,
    /// Its calls belong to a thread; one is minted where the caller names none.
    pub(crate) needs_thread: bool,
    /// Its calls touch what is kept for a thread, so they have something to commit.
    pub(crate) stateful: bool,
}

impl Tool {
    /// What holds for its calls, after everything that was said about it has been laid over each other.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The rules that may concern its calls, in the order they are asked, and what holds where none of them speaks.
    #[must_use]
    pub fn rules(&self, language: Language) -> Vec<String> {
        self.gate.in_words(language)
    }

    /// The rule that denies every call of it, so that it is not offered.
    #[must_use]
    pub fn denied_by(&self) -> Option<String> {
        self.gate.denies_all(&self.definition).map(Rule::label)
    }

    /// The names of the states it takes out.
    #[must_use]
    pub fn states(&self) -> &[StateName] {
        &self.state.names
    }

    /// What else is known of it, if it is not simply there.
    pub(crate) fn presence(&self) -> Option<Presence> {
        self.disabled.as_ref().map(|why| Presence::Disabled { words: Some(why.to_string()) })
    }

    /// What was said about tools holds for it from now on; says whether that changes anything.
    pub(super) fn hold_to(&mut self, book: &PolicyBook) -> bool {
        let mut limits = book.limits(&self.definition, &self.policy);
        // An instance remembers things nobody else sees, so nobody can tell when its answer would be another.
        limits.cache = limits.cache.filter(|_| !self.stateful || !self.state.names.is_empty());
        let gate = book.gate(&self.definition, &limits);
        let changed = self.limits != limits || self.gate != gate;
        (self.limits, self.gate) = (limits, gate);
        changed
    }
}

/// A list of tools that never changes.
#[derive(Default)]
pub struct Tools {
    by_name: HashMap<ToolName, Arc<Tool>>,
    /// The tools others wait for.
    bases: HashMap<ToolName, Base>,
    revision: u64,
}

/// Whether others wait for a tool, and what they want to know of its successes.
///
/// As wide as its neighbours in what travels through the doors: a single byte there would be moved in odd pieces at every
/// door, which costs a call about as much as looking its tool up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub(crate) enum Base {
    /// Nobody waits for it.
    No,
    /// Somebody wants to know that it has succeeded.
    Once,
    /// Somebody wants to know when it last did.
    Lately,
}

/// Which tools to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only tools with this tag.
    pub tag: Option<String>,
}

impl Tools {
    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// Whether other tools of this list wait for it.
    pub(crate) fn base(&self, name: &str) -> Base {
        // Most hubs have no dependencies at all, and every call asks.
        if self.bases.is_empty() { Base::No } else { self.bases.get(name).copied().unwrap_or(Base::No) }
    }

    /// The tools that pass the filter, by name.
    #[must_use]
    pub fn list(&self, filter: &Filter) -> Vec<Arc<Tool>> {
        let mut tools: Vec<_> = self.by_name.values().filter(|tool| filter.passes(&tool.definition)).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// Known names close to one that is not known, the closest first.
    #[must_use]
    pub fn suggest(&self, name: &str) -> Vec<String> {
        suggest::closest(name, self.by_name.keys().map(ToolName::as_str), 3).into_iter().map(String::from).collect()
    }

    /// The tools of this list that wait for this one, by name.
    pub(crate) fn waiting_for(&self, base: &ToolName) -> Vec<Arc<Tool>> {
        let waits = |tool: &&Arc<Tool>| tool.definition.depends_on.names().any(|name| name == base);
        let mut tools: Vec<_> = self.by_name.values().filter(waits).cloned().collect();
        tools.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
        tools
    }

    /// Only those of a toolset. What others wait for is still known.
    #[must_use]
    pub fn within(&self, toolset: &Toolset) -> Self {
        let names: Vec<ToolName> = self.by_name.keys().filter(|name| toolset.has(name)).cloned().collect();
        self.only(&names)
    }

    /// Only these of the list. What others wait for is still known.
    pub(crate) fn only(&self, names: &[ToolName]) -> Self {
        let chosen = names.iter().filter_map(|name| self.by_name.get_key_value(name));
        let by_name = chosen.map(|(name, tool)| (name.clone(), tool.clone())).collect();
        Self { by_name, bases: self.bases.clone(), revision: self.revision }
    }

    /// Whether a call among these would meet the same tools as one among the others, down to their limits and to what others
    /// wait for.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let same = |(name, tool): (&ToolName, &Arc<Tool>)| {
            other.by_name.get(name).is_some_and(|theirs| Arc::ptr_eq(tool, theirs))
        };
        self.by_name.len() == other.by_name.len() && self.by_name.iter().all(same) && self.bases == other.bases
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Grows with every change of the registry.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The list that follows when all tools are gone.
    pub(super) fn emptied(&self) -> Self {
        Self { revision: self.revision + 1, ..Self::default() }
    }

    /// These tools and the new ones, which are held to the book. No name may be there already.
    pub(super) fn with(&self, new: Vec<Tool>, book: &PolicyBook) -> Result<Self, RegistryError> {
        let mut by_name = self.by_name.clone();
        let mut names = Vec::with_capacity(new.len());
        for mut tool in new {
            tool.hold_to(book);
            let name = tool.definition.name.clone();
            if by_name.insert(name.clone(), Arc::new(tool)).is_some() {
                return Err(RegistryError::Duplicate(name));
            }
            names.push(name);
        }
        let next = Self { bases: depends::bases_of(&by_name), by_name, revision: self.revision + 1 };
        depends::check(&next, &names)?;
        next.managers()?;
        Ok(next)
    }

    /// Who keeps each state of these tools, as far as one of them says so.
    pub(super) fn managers(&self) -> Result<HashMap<StateName, Option<ManagerType>>, RegistryError> {
        let mut all: HashMap<StateName, Option<ManagerType>> = HashMap::new();
        for tool in self.by_name.values() {
            for state in &tool.state.names {
                let said = all.entry(state.clone()).or_default();
                if said.is_some() && tool.state.manager.is_some() && *said != tool.state.manager {
                    let reason = format!("another tool keeps the state `{state}` with another `manager_type`");
                    return Err(RegistryError::Refused { tool: tool.definition.name.clone(), reason });
                }
                *said = said.or(tool.state.manager);
            }
        }
        Ok(all)
    }

    pub(super) fn without(&self, name: &ToolName) -> (Self, Option<Arc<Tool>>) {
        let mut by_name = self.by_name.clone();
        let gone = by_name.remove(name);
        let revision = self.revision + u64::from(gone.is_some());
        (Self { bases: depends::bases_of(&by_name), by_name, revision }, gone)
    }

    /// These tools without the named ones, and all that stay held to the book. A tool for which nothing changes is the very
    /// same as before.
    pub(super) fn kept<'a>(&self, without: impl Iterator<Item = &'a ToolName>, book: &PolicyBook) -> Self {
        let mut by_name = self.by_name.clone();
        for name in without {
            by_name.remove(name);
        }
        for tool in by_name.values_mut() {
            let mut held: Tool = (**tool).clone();
            if held.hold_to(book) {
                *tool = Arc::new(held);
            }
        }
        Self { by_name, bases: HashMap::new(), revision: self.revision }
    }
}

impl Filter {
    fn passes(&self, definition: &Definition) -> bool {
        self.kind.as_ref().is_none_or(|kind| definition.kind == *kind)
            && self.tag.as_ref().is_none_or(|tag| definition.metadata.tags.contains(tag))
    }
}
