//! What a thread has achieved, and what a tool that depends on it still waits for.
//!
//! In: the dependencies of a tool and the evidence of a thread. Out: what is missing, in the order of declaration.
//! Evidence is only ever added to; a later failure revokes nothing. What to tell a model is in `step.rs`; where the
//! evidence is stored is not known here.

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

/// When a tool succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Success {
    /// For the first time.
    pub first: Timestamp,
    /// For the last time so far.
    pub last: Timestamp,
    /// How many tools had succeeded in the thread before its first time. Orders are compared by this and not by
    /// `first`, because a clock that is set back must not turn an order round.
    pub order: u32,
}

/// Something that a tool still waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingDependency {
    /// This tool has not succeeded yet.
    NeverSucceeded {
        /// Which.
        tool: ToolName,
    },
    /// This tool's last success is too long ago.
    Stale {
        /// Which.
        tool: ToolName,
        /// How old it may be.
        within: Duration,
    },
    /// None of these tools has succeeded, or not lately enough.
    NoneOf {
        /// Which.
        tools: Vec<ToolName>,
    },
    /// The first successes came in the wrong order. Nothing in this thread can make up for it.
    OutOfOrder {
        /// The tool that had to succeed first.
        earlier: ToolName,
        /// The tool that succeeded before it.
        later: ToolName,
    },
}

/// What a tool with these dependencies still waits for; nothing when its time has come.
#[must_use]
pub fn missing_dependencies(depends_on: &DependsOn, evidence: &Evidence, now: Timestamp) -> Vec<MissingDependency> {
    let mut found = Vec::new();
    for group in &depends_on.0 {
        match group {
            DependencyGroup::All { tools, within } => {
                found.extend(tools.iter().filter_map(|tool| evidence.find_missing(tool, *within, now)));
            }
            DependencyGroup::Any { tools, within } => {
                // A group of no tools asks for nothing; otherwise nobody could ever satisfy it.
                let met =
                    tools.is_empty() || tools.iter().any(|tool| evidence.find_missing(tool, *within, now).is_none());
                found.extend((!met).then(|| MissingDependency::NoneOf { tools: tools.clone() }));
            }
            DependencyGroup::Sequence { tools, within } => {
                let disorder = evidence.find_order_violation(tools);
                // Nothing helps any more against a wrong order, so nothing else is asked for.
                let lacking = tools.iter().filter(|_| disorder.is_none());
                found.extend(lacking.filter_map(|tool| evidence.find_missing(tool, *within, now)));
                found.extend(disorder);
            }
        }
    }
    found
}

/// When a tool whose dependencies are met begins to wait again because evidence has grown old; absent where it never does.
#[must_use]
pub fn next_expiry(depends_on: &DependsOn, evidence: &Evidence) -> Option<Timestamp> {
    let groups = depends_on.0.iter().filter_map(|group| {
        let within = group.within()?;
        let ends = group.tools().iter().filter_map(|tool| evidence.get(tool)).map(|success| success.last + within);
        match group {
            DependencyGroup::Any { .. } => ends.max(),
            DependencyGroup::All { .. } | DependencyGroup::Sequence { .. } => ends.min(),
        }
    });
    // At its very end the time is not over yet.
    groups.min().map(|end| end + Duration::from_millis(1))
}

impl Evidence {
    /// Forgets a tool's successes; says whether there was one.
    pub fn forget(&mut self, tool: &ToolName) -> bool {
        self.0.remove(tool).is_some()
    }

    /// Notes a success.
    pub fn add(&mut self, tool: &ToolName, now: Timestamp) {
        let order = self.0.values().map(|success| success.order.saturating_add(1)).max().unwrap_or(0);
        self.0.entry(tool.clone()).and_modify(|success| success.last = now).or_insert(Success {
            first: now,
            last: now,
            order,
        });
    }

    /// Takes in what was saved of tools that have not succeeded here. Each side keeps its own order; only how the two lie
    /// to each other is decided by the clock, because nothing else can tell.
    pub fn merge(&mut self, saved: &Self) {
        let in_order = |one: &Self| {
            let mut list: Vec<_> = one.0.iter().map(|(tool, success)| (tool.clone(), *success)).collect();
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

    /// When a tool succeeded, if it did.
    #[must_use]
    pub fn get(&self, tool: &ToolName) -> Option<Success> {
        self.0.get(tool).copied()
    }

    /// Every tool that succeeded, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ToolName, &Success)> {
        self.0.iter()
    }

    fn find_missing(&self, tool: &ToolName, within: Option<Duration>, now: Timestamp) -> Option<MissingDependency> {
        let Some(success) = self.0.get(tool) else {
            return Some(MissingDependency::NeverSucceeded { tool: tool.clone() });
        };
        // A success that seems to lie ahead, after a clock was set back, is fresh: it did happen.
        let limit = within.filter(|within| now.since(success.last) > *within)?;
        Some(MissingDependency::Stale { tool: tool.clone(), within: limit })
    }

    /// The first two of the list whose order is wrong for good: the later one succeeded, the earlier one had not.
    fn find_order_violation(&self, tools: &[ToolName]) -> Option<MissingDependency> {
        let order = |tool: &ToolName| self.0.get(tool).map_or(u32::MAX, |success| success.order);
        let mut pairs = (0..tools.len()).flat_map(|at| tools[at + 1..].iter().map(move |later| (&tools[at], later)));
        let (earlier, later) = pairs.find(|(earlier, later)| order(earlier) > order(later))?;
        Some(MissingDependency::OutOfOrder { earlier: earlier.clone(), later: later.clone() })
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
