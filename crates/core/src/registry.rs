//! Knows every tool: definitions, what depends on what, and who runs it. It cannot execute.
//!
//! In: tools, checked as a whole. Out: a list that never changes; a new one takes its place when tools come or go,
//! and whoever holds the old one keeps what it was offered.

mod builder;
mod dependencies;
mod error;
mod tools;
mod toolset;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

pub(crate) use builder::BuildContext;
pub use builder::ToolBuilder;
pub use error::RegistryError;
pub use tools::{ToolFilter, Tools};
pub use toolset::Toolset;

use crate::{
    execution::{EvidenceDemand, Tool},
    state::StoreRouter,
};
use toolhub_types::{policy::PolicySet, tool::ToolName};

/// Every tool the hub knows.
#[derive(Default)]
pub struct Registry {
    current: ArcSwap<Tools>,
    /// What was said about tools. Held by whoever makes the next list, so that no change is lost between reading and
    /// swapping, and every tool of a list is held to the same.
    policies: Mutex<Arc<PolicySet>>,
}

impl Registry {
    /// A registry without tools; those that come are held to this.
    pub(crate) fn with_policies(book: PolicySet) -> Self {
        Self { current: ArcSwap::default(), policies: Mutex::new(Arc::new(book)) }
    }

    /// The tools as they are now. The list stays as it is for as long as it is held.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Tools> {
        self.current.load_full()
    }

    /// The tool of this name, and whether others wait for it.
    pub(crate) fn find(&self, name: &str) -> Option<(Arc<Tool>, EvidenceDemand)> {
        let tools = self.current.load();
        tools.get(name).map(|tool| (tool.clone(), tools.evidence_demand(name)))
    }

    /// Adds tools, all or none. Before anybody can call them, `homes` learns who keeps their states.
    pub(crate) fn add(&self, new: Vec<Tool>, homes: &StoreRouter) -> Result<(), RegistryError> {
        let book = self.lock_policies();
        self.current.store(Arc::new(register_managers(self.current.load().with_added(new, &book)?, homes)?));
        Ok(())
    }

    /// Takes tools away, puts new ones in, also in the place of others, and holds all to another book, where one is given.
    /// `with_it` happens at the same moment, as far as anybody who changes tools can tell. Answers the list before and after.
    pub(crate) fn apply(
        &self,
        (without, new): (&[ToolName], Vec<Tool>),
        book: Option<PolicySet>,
        homes: &StoreRouter,
        with_it: impl FnOnce(),
    ) -> Result<(Arc<Tools>, Arc<Tools>), RegistryError> {
        let mut held = self.lock_policies();
        let next_book = book.map_or_else(|| held.clone(), Arc::new);
        let before = self.snapshot();
        let replaced: Vec<ToolName> = new.iter().map(|tool| tool.definition.name.clone()).collect();
        let kept = before.retained(without.iter().chain(&replaced), &next_book);
        let after = Arc::new(register_managers(kept.with_added(new, &next_book)?, homes)?);
        self.current.store(after.clone());
        *held = next_book;
        with_it();
        Ok((before, after))
    }

    /// Takes all tools away; answers them.
    pub(crate) fn clear(&self) -> Arc<Tools> {
        let _book = self.lock_policies();
        let before = self.snapshot();
        self.current.store(Arc::new(before.cleared()));
        before
    }

    /// Takes a tool away. Tools that depend on it stay, and wait for it.
    pub(crate) fn remove(&self, name: &ToolName) -> Option<Arc<Tool>> {
        let _book = self.lock_policies();
        let (rest, gone) = self.current.load().without(name);
        self.current.store(Arc::new(rest));
        gone
    }

    fn lock_policies(&self) -> MutexGuard<'_, Arc<PolicySet>> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn register_managers(tools: Tools, homes: &StoreRouter) -> Result<Tools, RegistryError> {
    homes.assign_stores(&tools.manager_types()?);
    Ok(tools)
}
