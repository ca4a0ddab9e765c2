//! Statistics of a tool's recent calls, from the journal.
//!
//! In: a tool and a time window. Out: counts and latencies. Records are sorted by arrival but selected by their end, so
//! calls that arrived more than an hour before the window are missed. The number of scanned records is limited, and the
//! result says whether that was enough.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Journal, terms};
use crate::monitor::Meter;
use toolhub_storage::{backend::StoreError, latency::Latency};
use toolhub_types::{ids::CallId, timestamp::Timestamp, tool::ToolName};

/// Maximum number of records scanned.
const MAX_SCANNED_RECORDS: usize = 10_000;
/// Number of records read per page.
const PAGE_SIZE: usize = 500;
/// How long before the window a call may have arrived that ended in it.
const ARRIVAL_LOOKBACK: Duration = Duration::from_secs(3600);

/// Statistics of a tool's recorded calls within a time window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecentStats {
    /// The tool.
    pub tool: ToolName,
    /// Start of the window: calls that ended from then on are counted.
    pub from: Timestamp,
    /// End of the window.
    pub until: Timestamp,
    /// Whether the whole window is covered. Otherwise the scan limit was reached, and `from` is later than requested.
    pub complete: bool,
    /// Number of calls that reached the tool, or were answered from its result cache, and ended.
    pub calls: u64,
    /// Number of failed calls, by error code.
    pub errors: BTreeMap<&'static str, u64>,
    /// Number of calls that were refused before they reached the tool, by error code. They do not count as calls, and only
    /// those that had waited have a record.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Number of retries.
    pub retries: u64,
    /// Latency of the calls that reached the tool, in milliseconds.
    pub latency: Latency,
}

impl Journal {
    /// Statistics of a tool's calls of all tenants that ended within the window up to now.
    pub(crate) async fn recent_stats(
        &self,
        tool: &ToolName,
        window: Duration,
        now: Timestamp,
    ) -> Result<RecentStats, StoreError> {
        let (mut from, mut complete) = (now - window, true);
        let oldest = CallId::first_at(from - ARRIVAL_LOOKBACK);
        let (meter, mut calls, mut scanned) = (Meter::default(), 0, 0);
        let mut before = None;
        'pages: loop {
            let (ended, next) = self.ended_calls(terms::tool(tool), before, PAGE_SIZE, now).await?;
            for (id, record) in ended {
                if id < oldest {
                    break 'pages;
                }
                let Some(outcome) = record.outcome else { continue };
                if scanned == MAX_SCANNED_RECORDS {
                    // Calls that ended before the oldest scanned call arrived are not covered.
                    (complete, from) = (false, from.max(outcome.started_at));
                    break 'pages;
                }
                scanned += 1;
                if record.tool != *tool || outcome.ended_at < from {
                    continue;
                }
                match (outcome.attempts > 0 || outcome.cached, outcome.error_kind()) {
                    (false, Some(kind)) => meter.record_refusal(kind),
                    (false, None) => {}
                    (true, error) => {
                        calls += 1;
                        meter.record_end(outcome.duration, error);
                    }
                }
                (1..outcome.attempts).for_each(|_| meter.record_retry());
            }
            match next {
                Some(_) => before = next,
                None => break,
            }
        }
        let stats = meter.stats(tool.clone(), 0, 0);
        let (errors, refusals, retries, latency) = (stats.errors, stats.refusals, stats.retries, stats.latency);
        Ok(RecentStats { tool: tool.clone(), from, until: now, complete, calls, errors, refusals, retries, latency })
    }
}
