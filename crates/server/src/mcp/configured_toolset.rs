//! The toolset of an address, as the config has it now.
//!
//! In: its name and the host program. Out: its tools after each reload of the config that changes them.

use std::sync::Arc;

use toolhub_core::Toolset;

use crate::host_control::HostControl;

/// A toolset of the config, by name.
#[derive(Clone)]
pub(crate) struct ConfiguredToolset {
    name: String,
    host: Arc<dyn HostControl>,
}

impl ConfiguredToolset {
    pub(crate) fn new(name: &str, host: &Arc<dyn HostControl>) -> Self {
        Self { name: name.to_owned(), host: host.clone() }
    }

    /// Waits until its tools are not those of `known`. Returns `None` when the config has it no more. Cancel safe.
    pub(super) async fn changed_from(&self, known: &Toolset) -> Option<Toolset> {
        loop {
            let changed = self.host.toolsets_changed();
            let current = self.current();
            if current.as_ref() != Some(known) {
                return current;
            }
            changed.await;
        }
    }

    fn current(&self) -> Option<Toolset> {
        let found = self.host.toolsets().into_iter().find(|toolset| toolset.name == self.name)?;
        Toolset::from_patterns(found.tools).ok()
    }
}
