//! Decides which calls of one step may run concurrently.
//!
//! In: for each call whether it is parallel-safe, and on which earlier calls it depends; then the progress of each.
//! Out: which calls may start or continue now. Starts nothing and knows no tool. A dependent call only waits here until
//! the calls it depends on have ended; the dependency stage of the pipeline checks whether they succeeded.
//!
//! A call is either parallel-safe ("safe") or exclusive. The rules:
//! - Consecutive safe calls run concurrently. An exclusive call executes when all earlier calls have ended and nothing
//!   executes; later calls wait for it.
//! - A call that awaits approval does not execute. It holds back later exclusive calls. Safe calls overtake it, and
//!   also the exclusive ones that it holds back, because an answer may take a quarter of an hour.
//! - An approved call executes under the same rules as one that starts. It may have to wait: an exclusive one until the
//!   safe calls that overtook it have ended, a safe one until the exclusive call before it has.
//!
//! It follows that at most one exclusive call has started and not ended, and that all before it have ended. And there
//! is never a deadlock: the first call that has not ended runs, awaits approval, or waits only for calls that run now.

use std::collections::HashMap;

use toolhub_types::tool::DependsOn;

/// The calls of one step and the state of each.
#[derive(Debug, Clone)]
pub(crate) struct Plan(Vec<PlannedCall>);

/// One call of a step.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCall {
    /// Whether it may execute concurrently with others: its tool is read-only or declared parallel-safe.
    pub(crate) parallel_safe: bool,
    /// The earlier calls it depends on.
    pub(crate) dependencies: Vec<usize>,
    state: CallProgress,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallProgress {
    /// It has not started.
    Pending,
    /// It is in the pipeline or executing.
    Running,
    AwaitingApproval,
    /// It is approved, but the plan does not let it continue yet.
    Approved,
    Ended {
        /// Whether the tool succeeded.
        success: bool,
    },
}

/// Whether an approved call may execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a call that must wait executes only when `ready` returns it"]
pub(crate) enum Resumption {
    /// It executes from now on.
    Now,
    /// It waits until `ready` returns it.
    Later,
}

impl PlannedCall {
    pub(crate) fn new(parallel_safe: bool, dependencies: Vec<usize>) -> Self {
        Self { parallel_safe, dependencies, state: CallProgress::Pending }
    }
}

impl Plan {
    /// A plan in which no call has started. A dependency that is not an earlier call is ignored: it would never end.
    pub(crate) fn new(mut calls: Vec<PlannedCall>) -> Self {
        for (index, call) in calls.iter_mut().enumerate() {
            call.dependencies.retain(|dependency| *dependency < index);
        }
        Self(calls)
    }

    /// The calls that may execute now, all of them concurrently: those that have not started and approved ones that
    /// waited.
    pub(crate) fn ready(&self) -> Vec<usize> {
        let executing = self.0.iter().any(|call| call.state == CallProgress::Running);
        let mut ready = Vec::new();
        // Summary of the calls before the current one.
        let (mut all_ended, mut approval_pending, mut exclusive_ahead) = (true, false, false);
        for (index, call) in self.0.iter().enumerate() {
            let is_startable = match call.state {
                CallProgress::Pending => call.dependencies.iter().all(|dependency| self.has_ended(*dependency)),
                CallProgress::Approved => true,
                CallProgress::Running | CallProgress::AwaitingApproval | CallProgress::Ended { .. } => false,
            };
            let is_unblocked = if call.parallel_safe { !exclusive_ahead } else { all_ended && !executing };
            if is_startable && is_unblocked {
                ready.push(index);
            }
            match call.state {
                CallProgress::Ended { .. } => continue,
                CallProgress::AwaitingApproval => approval_pending = true,
                // It cannot start before the approval is answered, so no call waits for it until then.
                CallProgress::Pending if approval_pending => {}
                CallProgress::Pending | CallProgress::Approved | CallProgress::Running => {
                    exclusive_ahead |= !call.parallel_safe;
                }
            }
            all_ended = false;
        }
        ready
    }

    /// A ready call has started, or continues after it waited.
    pub(crate) fn mark_running(&mut self, index: usize) {
        self.transition(index, &[CallProgress::Pending, CallProgress::Approved], CallProgress::Running);
    }

    /// A call awaits approval.
    pub(crate) fn mark_awaiting_approval(&mut self, index: usize) {
        self.transition(index, &[CallProgress::Running], CallProgress::AwaitingApproval);
    }

    /// A call is approved. Calls that overtook it meanwhile may block it.
    pub(crate) fn mark_approved(&mut self, index: usize) -> Resumption {
        self.transition(index, &[CallProgress::AwaitingApproval], CallProgress::Approved);
        if self.ready().contains(&index) {
            self.mark_running(index);
        }
        if self.0[index].state == CallProgress::Running { Resumption::Now } else { Resumption::Later }
    }

    /// A call has ended: it succeeded, failed, was refused, or was cancelled before it started.
    pub(crate) fn mark_ended(&mut self, index: usize, success: bool) {
        self.0[index].state = CallProgress::Ended { success };
    }

    /// The step's task is gone, so no call waits for another any more.
    pub(crate) fn abandon(&mut self) {
        for call in &mut self.0 {
            call.state = CallProgress::Ended { success: false };
        }
    }

    pub(crate) fn state(&self, index: usize) -> CallProgress {
        self.0[index].state
    }

    fn has_ended(&self, index: usize) -> bool {
        matches!(self.0[index].state, CallProgress::Ended { .. })
    }

    /// Ignores a transition from any other state. Reports may arrive out of order: a call that was cancelled must not
    /// start to await approval.
    fn transition(&mut self, index: usize, from: &[CallProgress], to: CallProgress) {
        if from.contains(&self.0[index].state) {
            self.0[index].state = to;
        }
    }
}

/// For each call the earlier calls it depends on: those of the tools that its own tool depends on. In: the names of the
/// tools and their dependencies, in the order of the calls; an unknown tool has no dependencies.
pub(crate) fn earlier_dependencies(calls: &[(&str, &DependsOn)]) -> Vec<Vec<usize>> {
    let mut indices: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut dependencies = Vec::with_capacity(calls.len());
    for (index, (name, depends_on)) in calls.iter().enumerate() {
        let mut earlier: Vec<usize> =
            depends_on.names().filter_map(|tool| indices.get(tool.as_str())).flatten().copied().collect();
        // A tool may be in several groups.
        earlier.sort_unstable();
        earlier.dedup();
        dependencies.push(earlier);
        indices.entry(name).or_default().push(index);
    }
    dependencies
}

#[cfg(test)]
mod tests;
