//! A report of commits that a store acknowledged and lost all the same.

use std::collections::BTreeSet;

use toolhub_types::timestamp::Timestamp;

/// Commits that were acknowledged and are lost: a fail-over to a server that did not have them yet, or files that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossReport {
    /// How many. Includes commits of other nodes if this node no longer remembers which of them are its own.
    pub commits: u64,
    /// When the first one that this node remembers was acknowledged.
    pub since: Timestamp,
    /// The partitions of some of them, as text.
    pub partitions: Vec<String>,
}

impl LossReport {
    /// How many partitions a report names.
    pub const MAX_NAMED: usize = 20;

    /// One report of all these losses; `None` for none.
    #[must_use]
    pub fn merge(reports: &[Self]) -> Option<Self> {
        let partitions: BTreeSet<&String> = reports.iter().flat_map(|report| &report.partitions).collect();
        Some(Self {
            commits: reports.iter().map(|report| report.commits).sum(),
            since: reports.iter().map(|report| report.since).min()?,
            partitions: partitions.into_iter().take(Self::MAX_NAMED).cloned().collect(),
        })
    }
}
