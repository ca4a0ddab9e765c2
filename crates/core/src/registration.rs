//! Tells two registrations of a tool under one name apart.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use toolhub_types::tool::ToolName;

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

/// A tool under its name, as it was registered.
#[derive(Clone, Copy)]
pub(crate) struct RegisteredTool<'a> {
    pub(crate) name: &'a ToolName,
    pub(crate) registration: &'a Registration,
}
