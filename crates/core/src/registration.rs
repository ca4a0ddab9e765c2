//! `Registration`: tells two registrations of a tool under one name apart.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use toolhub_types::tool::ToolName;

/// The identity of a tool's registration. It stays the same when the tool's limits change; a tool that replaces another under
/// its name has a new one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registration(Arc<AtomicBool>);

impl Registration {
    /// Marks the tool as removed or replaced. Running calls continue; instances are no longer kept for later ones.
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

/// A tool's name and registration.
#[derive(Clone, Copy)]
pub(crate) struct RegisteredTool<'a> {
    pub(crate) name: &'a ToolName,
    pub(crate) registration: &'a Registration,
}
