//! Evidence of successes in a thread, and the dependencies of a tool that are still missing.
//!
//! In: the dependencies of a tool and the evidence of a thread. Out: the missing dependencies, in declaration order.
//! Evidence only grows; a later failure revokes nothing. `dependency_hint.rs` has the texts for models; storage is left to others.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    timestamp::Timestamp,
    tool::{DependencyGroup, DependsOn, ToolName},
};

/// The tools that succeeded in a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Evidence(BTreeMap<ToolName, Success>);

/// The successes of one tool in a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Success {
    /// The first success.
    pub first: Timestamp,
    /// The latest success.
    pub last: Timestamp,
    /// How many tools had succeeded in the thread before the first success. Sequences are compared by this and not by
    /// `first`, because a clock that is set back must not reverse an order.
    pub order: u32,
}

/// A missing dependency of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingDependency {
    /// This tool has not succeeded yet.
    NeverSucceeded {
        /// The tool.
        tool: ToolName,
    },
    /// This tool's last success is too old.
    Stale {
        /// The tool.
        tool: ToolName,
        /// The maximum age.
        within: Duration,
    },
    /// None of these tools has succeeded, or not recently enough.
    NoneOf {
        /// The tools.
        tools: Vec<ToolName>,
    },
    /// The first successes came in the wrong order. This cannot be corrected in this thread.
    OutOfOrder {
        /// The tool that had to succeed first.
        earlier: ToolName,
        /// The tool that succeeded before it.
        later: ToolName,
    },
}

/// The missing dependencies of a tool; empty if all are met.
#[must_use]
pub fn missing_dependencies(depends_on: &DependsOn, evidence: &Evidence, now: Timestamp) -> Vec<MissingDependency> {
    let mut missing = Vec::new();
    for group in &depends_on.0 {
        match group {
            DependencyGroup::All { tools, within } => {
                missing.extend(tools.iter().filter_map(|tool| evidence.find_missing(tool, *within, now)));
            }
            DependencyGroup::Any { tools, within } => {
                // An empty group requires nothing; otherwise it could never be met.
                let is_met =
                    tools.is_empty() || tools.iter().any(|tool| evidence.find_missing(tool, *within, now).is_none());
                missing.extend((!is_met).then(|| MissingDependency::NoneOf { tools: tools.clone() }));
            }
            DependencyGroup::Sequence { tools, within } => {
                let violation = evidence.find_order_violation(tools);
                // A wrong order cannot be corrected, so the other missing tools of the group are not reported.
                let reported = tools.iter().filter(|_| violation.is_none());
                missing.extend(reported.filter_map(|tool| evidence.find_missing(tool, *within, now)));
                missing.extend(violation);
            }
        }
    }
    missing
}

/// When the first evidence of a tool whose dependencies are met expires, so that it waits again; `None` if none expires.
#[must_use]
pub fn next_expiry(depends_on: &DependsOn, evidence: &Evidence) -> Option<Timestamp> {
    let groups = depends_on.0.iter().filter_map(|group| {
        let within = group.within()?;
        let expiries = group.tools().iter().filter_map(|tool| evidence.get(tool)).map(|success| success.last + within);
        match group {
            DependencyGroup::Any { .. } => expiries.max(),
            DependencyGroup::All { .. } | DependencyGroup::Sequence { .. } => expiries.min(),
        }
    });
    // The maximum age is inclusive: evidence expires one millisecond later.
    groups.min().map(|expiry| expiry + Duration::from_millis(1))
}

impl Evidence {
    /// Removes a tool's successes; returns whether there was one.
    pub fn forget(&mut self, tool: &ToolName) -> bool {
        self.0.remove(tool).is_some()
    }

    /// Records a success.
    pub fn add(&mut self, tool: &ToolName, now: Timestamp) {
        let order = self.0.values().map(|success| success.order.saturating_add(1)).max().unwrap_or(0);
        self.0.entry(tool.clone()).and_modify(|success| success.last = now).or_insert(Success {
            first: now,
            last: now,
            order,
        });
    }

    /// Merges saved successes of tools that have not succeeded here. Each side keeps its own order; the two are interleaved by
    /// timestamp, because nothing else relates them.
    pub fn merge(&mut self, saved: &Self) {
        let in_order = |evidence: &Self| {
            let mut list: Vec<_> = evidence.0.iter().map(|(tool, success)| (tool.clone(), *success)).collect();
            list.sort_by_key(|(_, success)| success.order);
            list
        };
        let mut saved = in_order(saved);
        saved.retain(|(tool, _)| !self.0.contains_key(tool));
        if saved.is_empty() {
            return;
        }
        let (mut saved, mut merged) = (saved.into_iter().peekable(), Vec::new());
        for own in in_order(self) {
            while let Some(earlier) = saved.next_if(|(_, success)| success.first <= own.1.first) {
                merged.push(earlier);
            }
            merged.push(own);
        }
        let numbered = merged.into_iter().chain(saved).zip(0..);
        self.0 = numbered.map(|((tool, success), order)| (tool, Success { order, ..success })).collect();
    }

    /// The successes of a tool, if any.
    #[must_use]
    pub fn get(&self, tool: &ToolName) -> Option<Success> {
        self.0.get(tool).copied()
    }

    /// All tools that succeeded, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ToolName, &Success)> {
        self.0.iter()
    }

    fn find_missing(&self, tool: &ToolName, within: Option<Duration>, now: Timestamp) -> Option<MissingDependency> {
        let Some(success) = self.0.get(tool) else {
            return Some(MissingDependency::NeverSucceeded { tool: tool.clone() });
        };
        // A success in the future (the clock was set back) counts as fresh: it did happen.
        let exceeded = within.filter(|within| now.since(success.last) > *within)?;
        Some(MissingDependency::Stale { tool: tool.clone(), within: exceeded })
    }

    /// The first pair of the list in the wrong order: the later tool succeeded before the earlier one did.
    fn find_order_violation(&self, tools: &[ToolName]) -> Option<MissingDependency> {
        let order = |tool: &ToolName| self.0.get(tool).map_or(u32::MAX, |success| success.order);
        let mut pairs =
            (0..tools.len()).flat_map(|index| tools[index + 1..].iter().map(move |later| (&tools[index], later)));
        let (earlier, later) = pairs.find(|(earlier, later)| order(earlier) > order(later))?;
        Some(MissingDependency::OutOfOrder { earlier: earlier.clone(), later: later.clone() })
    }
}

#[cfg(test)]
mod tests;
