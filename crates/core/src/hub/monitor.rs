//! What tools have done so far, in numbers.

use super::ToolHub;
use crate::{
    monitor::ToolStats,
    registry::{Filter, Tool},
};

impl ToolHub {
    /// What one tool has done since the hub began; `None` where nobody knows it.
    #[must_use]
    pub fn tool_stats(&self, tool: &str) -> Option<ToolStats> {
        self.get(tool).map(|tool| counted(&tool))
    }

    /// What every tool has done since the hub began, by name.
    #[must_use]
    pub fn stats(&self) -> Vec<ToolStats> {
        self.list(&Filter::default()).iter().map(|tool| counted(tool)).collect()
    }

    /// How many calls wait for their turn, of all tools together.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.engine.scheduler.queued()
    }
}

fn counted(tool: &Tool) -> ToolStats {
    tool.desk.meter.stats(tool.definition.name.clone(), tool.desk.lane.queued(), tool.desk.stuck.many())
}
