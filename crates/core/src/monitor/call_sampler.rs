//! Reads at intervals what happened to the calls of all tools.
//!
//! In: the counters of the tools at the time of each sample. Out: for each tool that had calls, the difference to the sample before.
//! Calls cost nothing more for it: the counters are those of `meter.rs`. A tool without activity since the last sample costs a
//! few loads.

use std::collections::{BTreeMap, HashMap};

use super::{Meter, ToolStats};
use toolhub_storage::latency::HistogramSnapshot;
use toolhub_types::{error::ErrorKind, tool::ToolName};

/// The totals at the last sample. Pass it to every [`ToolHub::sample_calls`](crate::ToolHub::sample_calls).
#[derive(Debug, Default)]
pub struct CallSampler {
    totals: HashMap<ToolName, Totals>,
    /// Whether there was a sample before.
    has_begun: bool,
}

/// The calls of a tool between two samples.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CallSample {
    /// The tool.
    pub tool: ToolName,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed or were cancelled, by error name.
    pub errors: BTreeMap<&'static str, u64>,
    /// Calls that were refused before they reached the tool.
    pub refused: u64,
    /// Calls that were answered from the result cache. They count as successful, too.
    pub cache_hits: u64,
    /// How long the calls took, without those that were refused.
    pub latency: HistogramSnapshot,
    /// How many calls are executing now.
    pub in_flight: u64,
    /// How many calls wait for a slot now.
    pub queued: usize,
}

/// The counts of a tool since the hub started.
#[derive(Debug, Default)]
struct Totals {
    activity: u64,
    /// Whether the counts were read again after the last activity. A call is counted shortly after it has ended.
    is_settled: bool,
    succeeded: u64,
    errors: BTreeMap<&'static str, u64>,
    refused: u64,
    cache_hits: u64,
    latency: HistogramSnapshot,
}

impl CallSampler {
    /// The calls of a tool since the last sample, if there were or are any.
    pub(crate) fn read(&mut self, tool: &ToolName, meter: &Meter, queued: usize) -> Option<CallSample> {
        let activity = meter.activity();
        let totals = match self.totals.get_mut(tool) {
            Some(totals) => totals,
            None if activity == 0 => return None,
            None => self.totals.entry(tool.clone()).or_default(),
        };
        let is_unchanged = totals.activity == activity;
        if is_unchanged && totals.is_settled && meter.in_flight() == 0 && queued == 0 {
            return None;
        }
        (totals.activity, totals.is_settled) = (activity, is_unchanged);
        let sample = totals.advance(meter.stats(tool.clone(), queued, 0));
        Some(sample).filter(|sample| self.has_begun && !sample.is_empty())
    }

    /// Ends a sample, of this number of tools.
    pub(crate) fn finish(&mut self, tools: usize, is_registered: impl Fn(&ToolName) -> bool) {
        self.has_begun = true;
        if self.totals.len() > tools {
            self.totals.retain(|tool, _| is_registered(tool));
        }
    }
}

impl Totals {
    /// Replaces the counts by later ones, and returns the difference.
    fn advance(&mut self, stats: ToolStats) -> CallSample {
        let new_errors = stats.errors.iter().filter_map(|(error, count)| {
            let count = count.saturating_sub(self.errors.get(error).copied().unwrap_or(0));
            (count > 0).then_some((*error, count))
        });
        let (refused, latency) = (stats.refusals.values().sum(), stats.latency.counts());
        let sample = CallSample {
            succeeded: stats.succeeded.count.saturating_sub(self.succeeded),
            errors: new_errors.collect(),
            refused: u64::saturating_sub(refused, self.refused),
            cache_hits: stats.cache_hits.saturating_sub(self.cache_hits),
            latency: latency.clone().since(&self.latency),
            in_flight: stats.in_flight,
            queued: stats.queued,
            tool: stats.tool,
        };
        let (activity, is_settled) = (self.activity, self.is_settled);
        let (succeeded, cache_hits, latency) = (stats.succeeded.count, stats.cache_hits, latency.clone().compact());
        *self = Self { activity, is_settled, succeeded, errors: stats.errors, refused, cache_hits, latency };
        sample
    }
}

impl CallSample {
    /// Calls that were cancelled.
    #[must_use]
    pub fn cancelled(&self) -> u64 {
        self.errors.get(ErrorKind::Cancelled.name()).copied().unwrap_or(0)
    }

    /// Calls that failed, without those that were cancelled.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum::<u64>() - self.cancelled()
    }

    fn is_empty(&self) -> bool {
        let Self { succeeded, errors, refused, in_flight, queued, .. } = self;
        succeeded + refused + in_flight == 0 && errors.is_empty() && *queued == 0
    }
}
