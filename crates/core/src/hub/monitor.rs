//! Monitoring: counters and latencies of tools, approvals, threads and stores.
//!
//! In: nothing. Out: snapshots of in-memory counters; no store is read.

use std::sync::Arc;

use super::ToolHub;
use crate::{
    execution::Tool,
    monitor::{ApprovalStats, CallSample, CallSampler, PollWatch, Refusal, StatusChanges, StoreSize, ToolStats},
    registry::ToolFilter,
};
use toolhub_storage::backend::{Backend, ServersReport, StoreStats};
use toolhub_types::tool::ToolName;

impl ToolHub {
    /// Counters of one tool since the hub was built; `None` if it is not registered.
    #[must_use]
    pub fn tool_stats(&self, tool: &str) -> Option<ToolStats> {
        self.get(tool).map(|tool| stats_of(&tool))
    }

    /// Counters of all tools since the hub was built, sorted by name.
    #[must_use]
    pub fn stats(&self) -> Vec<ToolStats> {
        self.list(&ToolFilter::default()).iter().map(|tool| stats_of(tool)).collect()
    }

    /// The tools that have blocked a worker of the async runtime since the last check with this watch. Call it from a
    /// thread outside the runtime, because a check on a blocked worker is late.
    pub fn blocking_polls(&self, watch: &mut PollWatch) -> Vec<ToolName> {
        let tools = self.engine.registry.snapshot();
        watch.check(tools.iter().map(|tool| (&tool.definition.name, &tool.runtime.meter)))
    }

    /// What happened to the calls of each tool since the last sample with this sampler. Tools without calls are left out.
    pub fn sample_calls(&self, sampler: &mut CallSampler) -> Vec<CallSample> {
        let tools = self.engine.registry.snapshot();
        let read = |tool: &Arc<Tool>| sampler.read(&tool.definition.name, &tool.runtime.meter, tool.runtime.queued());
        let samples = tools.iter().filter_map(read).collect();
        sampler.finish(tools.len(), |tool| tools.get(tool.as_str()).is_some());
        samples
    }

    /// The latest calls of this hub that were refused before they reached their tool, the newest first: the wanted ones before a
    /// number, at most so many.
    pub fn refusals(&self, before: Option<u64>, limit: usize, wanted: impl Fn(&Refusal) -> bool) -> Vec<Refusal> {
        self.engine.services.refusals.page(before, limit, wanted)
    }

    /// Number of queued calls of all tools.
    #[must_use]
    pub fn queued_calls(&self) -> usize {
        self.engine.scheduler.queued()
    }

    /// Number of status changes since the hub was built, by tool.
    #[must_use]
    pub fn status_changes(&self) -> Vec<StatusChanges> {
        self.engine.statuses.changes()
    }

    /// Number of pending approvals, and how long answers took.
    #[must_use]
    pub fn approval_stats(&self) -> ApprovalStats {
        self.engine.approvals.stats()
    }

    /// Number of threads used on this node within about the last ten minutes.
    #[must_use]
    pub fn active_threads(&self) -> usize {
        self.engine.services.thread_activity.count()
    }

    /// Latencies of the stores, by store and operation. An in-memory state store is not measured.
    #[must_use]
    pub fn store_stats(&self) -> Vec<StoreStats> {
        self.engine.services.store_meters.stats()
    }

    /// The size of the hub's store and its limit, if it has one, and how many calls were removed because of it.
    #[must_use]
    pub fn store_size(&self) -> Option<StoreSize> {
        let limit = self.engine.services.store.size_limit()?;
        let trimmed_calls = self.engine.journal.trimmed();
        Some(StoreSize { bytes: limit.bytes(), limit: limit.limit(), trimmed_calls, is_full: limit.is_full() })
    }

    /// Why stores cannot write, as far as they know without a request:
    /// [`Backend::write_error`](crate::backend::Backend::write_error). Empty if all of them can. Without the stores of
    /// [`store_refusals`](Self::store_refusals).
    #[must_use]
    pub fn store_errors(&self) -> Vec<String> {
        self.ask_stores(|store| store.write_error().filter(|_| store.servers().is_none()))
    }

    /// Why stores on servers, which all nodes share, refused the last write. They answer reads. Empty if all of them accept writes.
    #[must_use]
    pub fn store_refusals(&self) -> Vec<String> {
        self.ask_stores(|store| store.write_error().filter(|_| store.servers().is_some()))
    }

    /// Which records of stores are damaged, as far as they know without a request:
    /// [`Backend::damage`](crate::backend::Backend::damage). Empty if none is known to be.
    #[must_use]
    pub fn store_damage(&self) -> Vec<String> {
        self.ask_stores(Backend::damage)
    }

    /// How many commits the hub's store has acknowledged to this process and lost.
    #[must_use]
    pub fn lost_commits(&self) -> u64 {
        self.engine.services.store.losses(0).iter().map(|report| report.commits).sum()
    }

    /// The servers of the hub's store, if it has any, as of its last look at them.
    #[must_use]
    pub fn store_servers(&self) -> Option<ServersReport> {
        self.engine.services.store.servers()
    }

    /// What an operator should know about the durability and the load of stores: [`Backend::warnings`](crate::backend::Backend::warnings).
    #[must_use]
    pub fn store_warnings(&self) -> Vec<String> {
        let services = &self.engine.services;
        let of_states = services.state.store_router().non_hub_stores();
        let mut warnings = services.store.warnings();
        warnings.extend(self.engine.batched_records.as_ref().and_then(|records| records.warning()));
        warnings.extend(of_states.iter().flat_map(Backend::warnings));
        warnings
    }

    fn ask_stores(&self, read: impl Fn(&dyn Backend) -> Option<String>) -> Vec<String> {
        let services = &self.engine.services;
        let state_stores = services.state.store_router().non_hub_stores();
        let of_states = state_stores.iter().filter_map(|store| read(&**store));
        read(&*services.store).into_iter().chain(of_states).collect()
    }

    /// Number of events dropped because a subscriber or the store was too slow.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.engine.services.events.dropped()
    }
}

fn stats_of(tool: &Tool) -> ToolStats {
    tool.runtime.meter.stats(tool.definition.name.clone(), tool.runtime.queued(), tool.runtime.stuck.count())
}
