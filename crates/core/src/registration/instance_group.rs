//! `InstanceGroup`: tools that share their instances.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolhub_types::tool::ToolName;

/// Tools that use one instance in each thread, such as the tools behind one connection; see
/// [`ToolBuilder::instance_group`](crate::ToolBuilder::instance_group). The instances must be of one type. Replacing one of the
/// tools closes nothing; the last one to be removed closes the instances.
#[derive(Debug, Clone, Default)]
pub struct InstanceGroup(Arc<Mutex<Vec<ToolName>>>);

impl InstanceGroup {
    /// A group without tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn join(&self, tool: &ToolName) {
        self.lock().push(tool.clone());
    }

    pub(super) fn leave(&self, tool: &ToolName) {
        let mut tools = self.lock();
        if let Some(index) = tools.iter().position(|member| member == tool) {
            tools.swap_remove(index);
        }
    }

    /// Whether a tool of this name belongs to it.
    pub(crate) fn has_tool(&self, tool: &str) -> bool {
        self.lock().iter().any(|member| member.as_str() == tool)
    }

    /// Whether no tool belongs to it any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ToolName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for InstanceGroup {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
