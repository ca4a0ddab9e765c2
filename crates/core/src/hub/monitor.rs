//! What tools and the hub have done so far, in numbers.
//!
//! In: nothing. Out: snapshots of what the rooms have counted in memory. No store is asked.

use super::ToolHub;
use crate::{
    execution::Tool,
    monitor::{ApprovalStats, StatusChanges, ToolStats},
    registry::ToolFilter,
};
use toolhub_storage::backend::StoreStats;

impl ToolHub {
    /// What one tool has done since the hub began; `None` where nobody knows it.
    #[must_use]
    pub fn tool_stats(&self, tool: &str) -> Option<ToolStats> {
        self.get(tool).map(|tool| stats_of(&tool))
    }

    /// What every tool has done since the hub began, by name.
    #[must_use]
    pub fn stats(&self) -> Vec<ToolStats> {
        self.list(&ToolFilter::default()).iter().map(|tool| stats_of(tool)).collect()
    }

    /// How many calls wait for their turn, of all tools together.
    #[must_use]
    pub fn queued_calls(&self) -> usize {
        self.engine.scheduler.queued()
    }

    /// How often statuses of tools changed since the hub began, by tool.
    #[must_use]
    pub fn status_changes(&self) -> Vec<StatusChanges> {
        self.engine.statuses.changes()
    }

    /// How many questions wait for people, and how long people took.
    #[must_use]
    pub fn approval_stats(&self) -> ApprovalStats {
        self.engine.approvals.stats()
    }

    /// How many threads were used here lately: within the last ten minutes or so.
    #[must_use]
    pub fn active_threads(&self) -> usize {
        self.engine.services.thread_activity.count()
    }

    /// How long the stores took, by sort and request. A store of states in memory is not measured.
    #[must_use]
    pub fn store_stats(&self) -> Vec<StoreStats> {
        self.engine.services.store_meters.stats()
    }

    /// How many events were lost, because a listener or the store was too slow for them.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.engine.services.events.dropped()
    }
}

fn stats_of(tool: &Tool) -> ToolStats {
    tool.runtime.meter.stats(tool.definition.name.clone(), tool.runtime.queue.queued(), tool.runtime.stuck.count())
}
