//! Knows every tool: definitions, what depends on what, and who runs it. It cannot execute.
//!
//! In: tools, checked as a whole. Out: a list that never changes; a new one takes its place when tools come or go,
//! and whoever holds the old one keeps what it was offered.

mod builder;
mod depends;
mod error;
mod tools;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

pub use builder::ToolBuilder;
pub(crate) use builder::{STATE_PARAMETER, Workshop};
pub use error::RegistryError;
pub(crate) use tools::Base;
pub use tools::{Filter, Tool, Tools};

use crate::{state::Homes, tool::ToolName};

/// Every tool the hub knows.
#[derive(Default)]
pub struct Registry {
    current: ArcSwap<Tools>,
    /// Held by whoever makes the next list, so that no change is lost between reading and swapping.
    changing: Mutex<()>,
}

impl Registry {
    /// The tools as they are now. The list stays as it is for as long as it is held.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Tools> {
        self.current.load_full()
    }

    /// The tool of this name, and whether others wait for it.
    pub(crate) fn find(&self, name: &str) -> Option<(Arc<Tool>, Base)> {
        let tools = self.current.load();
        tools.get(name).map(|tool| (tool.clone(), tools.base(name)))
    }

    /// Adds tools, all or none. Before anybody can call them, `homes` learns who keeps their states.
    pub(crate) fn add(&self, new: Vec<Tool>, homes: &Homes) -> Result<(), RegistryError> {
        self.change(|tools| settled(tools.with(new)?, homes)).map(|_| ())
    }

    /// Puts these tools in the place of all others.
    pub(crate) fn replace(&self, all: Vec<Tool>, homes: &Homes) -> Result<Arc<Tools>, RegistryError> {
        self.change(|tools| settled(tools.emptied().with(all)?, homes))
    }

    /// Takes a tool away. Tools that depend on it stay, and wait for it.
    pub(crate) fn remove(&self, name: &ToolName) -> Option<Arc<Tool>> {
        let gone = std::cell::RefCell::new(None);
        let changed = self.change(|tools| {
            let (rest, tool) = tools.without(name);
            *gone.borrow_mut() = tool;
            Ok(rest)
        });
        debug_assert!(changed.is_ok(), "taking a tool away cannot fail");
        gone.into_inner()
    }

    /// Makes the next list from the present one; answers the one that was replaced.
    fn change(&self, next: impl FnOnce(&Tools) -> Result<Tools, RegistryError>) -> Result<Arc<Tools>, RegistryError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = next(&self.current.load())?;
        Ok(self.current.swap(Arc::new(next)))
    }
}

fn settled(tools: Tools, homes: &Homes) -> Result<Tools, RegistryError> {
    homes.settle(&tools.managers()?);
    Ok(tools)
}
