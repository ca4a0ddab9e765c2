//! `Registration`: tells two registrations of a tool under one name apart, and knows whose instances the tool uses.

mod instance_group;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::AcqRel},
};

pub use instance_group::InstanceGroup;
use toolhub_types::tool::ToolName;

/// The identity of a tool's registration. It stays the same when the tool's limits change; a tool that replaces another under
/// its name has a new one.
#[derive(Debug, Clone)]
pub(crate) struct Registration(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tool: ToolName,
    instances: InstanceGroup,
    retired: AtomicBool,
}

impl Registration {
    /// A registration of a tool that uses the instances of a group; its own ones if there is none.
    pub(crate) fn new(tool: &ToolName, instances: Option<InstanceGroup>) -> Self {
        let instances = instances.unwrap_or_default();
        instances.join(tool);
        Self(Arc::new(Inner { tool: tool.clone(), instances, retired: AtomicBool::new(false) }))
    }

    pub(crate) fn tool(&self) -> &ToolName {
        &self.0.tool
    }

    /// The group whose instances it uses.
    pub(crate) fn instances(&self) -> &InstanceGroup {
        &self.0.instances
    }

    /// Marks the tool as removed or replaced. Running calls continue; a group without tools keeps no instances for later ones.
    pub(crate) fn retire(&self) {
        self.0.retire();
    }
}

impl PartialEq for Registration {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Inner {
    fn retire(&self) {
        if !self.retired.swap(true, AcqRel) {
            self.instances.leave(&self.tool);
        }
    }
}

impl Drop for Inner {
    // A tool that was built and not registered.
    fn drop(&mut self) {
        self.retire();
    }
}
