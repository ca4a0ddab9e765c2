//! Evidence of successes in a thread, and the dependencies of a tool that are still missing.
//!
//! In: the dependencies of a tool and the evidence of a thread. Out: the missing dependencies, in declaration order; when
//! they were met, and when they expire. A later failure revokes nothing; a reset does. `dependency_hint.rs` has the texts
//! for models; storage is left to others.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    timestamp::Timestamp,
    tool::{DependencyGroup, DependsOn, ToolName},
};

/// The successes in a thread on which tools depend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The tools that succeeded.
    #[serde(default)]
    successes: BTreeMap<ToolName, Success>,
    /// The sequences whose progress does not follow from the first successes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sequences: Vec<SequenceProgress>,
    /// When the successes of tools were reset that have not succeeded since. Earlier successes in the journal do not count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    resets: BTreeMap<ToolName, Timestamp>,
}

/// The successes of one tool in a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Success {
    /// The first success.
    pub first: Timestamp,
    /// The latest success.
    pub last: Timestamp,
    /// How many tools had succeeded in the thread before the first success. Orders are compared by this and not by `first`,
    /// because a clock that is set back must not reverse an order.
    pub order: u32,
}

/// How many tools of a sequence have succeeded in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SequenceProgress {
    tools: Vec<ToolName>,
    done: usize,
    /// When that number last changed.
    at: Timestamp,
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
    /// This tool of a sequence has succeeded too early, and must succeed again.
    OutOfOrder {
        /// The tool.
        tool: ToolName,
        /// The tool before it in the sequence.
        after: ToolName,
    },
}

/// The missing dependencies of a tool; empty if all are met.
#[must_use]
pub fn missing_dependencies(depends_on: &DependsOn, evidence: &Evidence, now: Timestamp) -> Vec<MissingDependency> {
    depends_on.0.iter().flat_map(|group| evidence.missing_in_group(group, now)).collect()
}

/// When the first evidence of a tool whose dependencies are met expires, so that it waits again; `None` if none expires.
#[must_use]
pub fn next_expiry(depends_on: &DependsOn, evidence: &Evidence) -> Option<Timestamp> {
    let groups = depends_on.0.iter().filter_map(|group| {
        let within = group.within()?;
        let successes = group.tools().iter().filter_map(|tool| evidence.get(tool));
        let expiries = successes.map(|success| success.expires_at(within));
        match group {
            DependencyGroup::Any { .. } => expiries.max(),
            DependencyGroup::All { .. } | DependencyGroup::Sequence { .. } => expiries.min(),
        }
    });
    groups.min()
}

/// When the dependencies of a tool were last met, or ceased to be; `None` if no evidence of them was ever recorded.
#[must_use]
pub fn dependencies_changed(depends_on: &DependsOn, evidence: &Evidence, now: Timestamp) -> Option<Timestamp> {
    depends_on.0.iter().filter_map(|group| evidence.group_changed(group, now)).max()
}

impl Evidence {
    /// Records a success, and the progress of the sequences that contain the tool.
    pub fn add<'a>(&mut self, tool: &ToolName, now: Timestamp, sequences: impl IntoIterator<Item = &'a [ToolName]>) {
        let advanced: Vec<(&[ToolName], usize)> = sequences
            .into_iter()
            .map(|tools| (tools, self.progress(tools).0))
            .filter(|(tools, done)| tools.get(*done) == Some(tool))
            .collect();
        self.add_success(tool, now);
        for (tools, done) in advanced {
            // In the usual case each tool succeeds first in the right order, and the successes say enough.
            if self.progress(tools).0 != done + 1 {
                self.set_progress(tools, done + 1, now);
            }
        }
    }

    /// Adds successes of tools that are found later, in the journal or in a snapshot. A tool that has succeeded here keeps
    /// its first success. Each side keeps its own order; the two are interleaved by timestamp, because nothing else relates
    /// them.
    pub fn merge(&mut self, found: &Self) {
        let in_order = |evidence: &Self| {
            let mut list: Vec<_> = evidence.successes.iter().map(|(tool, success)| (tool.clone(), *success)).collect();
            list.sort_by_key(|(_, success)| success.order);
            list
        };
        for (tool, success) in &mut self.successes {
            success.last = found.get(tool).map_or(success.last, |found| found.last.max(success.last));
        }
        let mut new = in_order(found);
        new.retain(|(tool, _)| !self.successes.contains_key(tool));
        if !new.is_empty() {
            let (mut new, mut merged) = (new.into_iter().peekable(), Vec::new());
            for own in in_order(self) {
                while let Some(earlier) = new.next_if(|(_, success)| success.first <= own.1.first) {
                    merged.push(earlier);
                }
                merged.push(own);
            }
            let numbered = merged.into_iter().chain(new).zip(0..);
            self.successes = numbered.map(|((tool, success), order)| (tool, Success { order, ..success })).collect();
        }
        for SequenceProgress { tools, done, at } in &found.sequences {
            if self.progress(tools).0 < *done {
                self.set_progress(tools, *done, *at);
            }
        }
        self.resets.retain(|tool, _| !self.successes.contains_key(tool));
    }

    /// Removes a tool's successes; returns whether there was one. Successes that are found later count only if they are
    /// newer than this reset.
    pub fn reset(&mut self, tool: &ToolName, now: Timestamp) -> bool {
        for sequence in &mut self.sequences {
            let index = sequence.tools.iter().position(|name| name == tool).unwrap_or(usize::MAX);
            if index < sequence.done {
                (sequence.done, sequence.at) = (index, now);
            }
        }
        self.sequences.retain(|sequence| sequence.done > 0);
        self.resets.insert(tool.clone(), now);
        self.successes.remove(tool).is_some()
    }

    /// When a tool that has not succeeded since was reset.
    #[must_use]
    pub fn reset_at(&self, tool: &ToolName) -> Option<Timestamp> {
        self.resets.get(tool).copied()
    }

    /// The successes of a tool, if any.
    #[must_use]
    pub fn get(&self, tool: &ToolName) -> Option<Success> {
        self.successes.get(tool).copied()
    }

    /// Whether both record the same progress of all sequences.
    #[must_use]
    pub fn has_same_progress(&self, other: &Self) -> bool {
        self.sequences == other.sequences
    }

    fn add_success(&mut self, tool: &ToolName, now: Timestamp) {
        let order = self.successes.values().map(|success| success.order.saturating_add(1)).max().unwrap_or(0);
        let first = Success { first: now, last: now, order };
        self.successes.entry(tool.clone()).and_modify(|success| success.last = now).or_insert(first);
        self.resets.remove(tool);
    }

    /// How many tools of a sequence have succeeded in its order, and when that number last changed.
    fn progress(&self, tools: &[ToolName]) -> (usize, Option<Timestamp>) {
        if let Some(stored) = self.sequences.iter().find(|sequence| sequence.tools == tools) {
            return (stored.done, Some(stored.at));
        }
        let (mut done, mut at, mut latest) = (0, None, None);
        for success in tools.iter().map_while(|tool| self.successes.get(tool)) {
            if Some(success.order) <= latest {
                break;
            }
            (done, at, latest) = (done + 1, at.max(Some(success.first)), Some(success.order));
        }
        (done, at)
    }

    fn set_progress(&mut self, tools: &[ToolName], done: usize, at: Timestamp) {
        self.sequences.retain(|sequence| sequence.tools != tools);
        self.sequences.push(SequenceProgress { tools: tools.to_vec(), done, at });
    }

    fn missing_in_group(&self, group: &DependencyGroup, now: Timestamp) -> Vec<MissingDependency> {
        let missing = |tool: &ToolName| self.find_missing(tool, group.within(), now);
        match group {
            DependencyGroup::All { tools, .. } => tools.iter().filter_map(missing).collect(),
            DependencyGroup::Any { tools, .. } => {
                // An empty group requires nothing; otherwise it could never be met.
                let is_met = tools.is_empty() || tools.iter().any(|tool| missing(tool).is_none());
                (!is_met).then(|| MissingDependency::NoneOf { tools: tools.clone() }).into_iter().collect()
            }
            DependencyGroup::Sequence { tools, .. } => {
                let (done, _) = self.progress(tools);
                let stale = tools[..done].iter().filter_map(missing);
                let next = (done..tools.len()).map(|index| match index.checked_sub(1).map(|before| &tools[before]) {
                    Some(after) if self.successes.contains_key(&tools[index]) => {
                        MissingDependency::OutOfOrder { tool: tools[index].clone(), after: after.clone() }
                    }
                    _ => MissingDependency::NeverSucceeded { tool: tools[index].clone() },
                });
                stale.chain(next).collect()
            }
        }
    }

    fn find_missing(&self, tool: &ToolName, within: Option<Duration>, now: Timestamp) -> Option<MissingDependency> {
        let Some(success) = self.successes.get(tool) else {
            return Some(MissingDependency::NeverSucceeded { tool: tool.clone() });
        };
        // A success in the future (the clock was set back) counts as fresh: it did happen.
        let exceeded = within.filter(|within| now.since(success.last) > *within)?;
        Some(MissingDependency::Stale { tool: tool.clone(), within: exceeded })
    }

    fn group_changed(&self, group: &DependencyGroup, now: Timestamp) -> Option<Timestamp> {
        let is_fresh = |tool: &&ToolName| self.find_missing(tool, group.within(), now).is_none();
        let changed = |tool: &ToolName| match (self.successes.get(tool), group.within()) {
            (None, _) => self.reset_at(tool),
            (Some(success), None) => Some(success.first),
            (Some(success), Some(within)) if now >= success.expires_at(within) => Some(success.expires_at(within)),
            // All successes up to the last one were within the time, so the tool never waited in between.
            (Some(success), Some(within)) if success.last.since(success.first) <= within => Some(success.first),
            (Some(success), Some(_)) => Some(success.last),
        };
        let latest = group.tools().iter().filter_map(changed).max();
        match group {
            DependencyGroup::All { .. } => latest,
            DependencyGroup::Any { tools, .. } => tools.iter().filter(is_fresh).filter_map(changed).min().or(latest),
            DependencyGroup::Sequence { tools, .. } => latest.max(self.progress(tools).1),
        }
    }
}

impl Success {
    /// From when on it is too old. The maximum age is inclusive.
    fn expires_at(&self, within: Duration) -> Timestamp {
        self.last + within + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests;
