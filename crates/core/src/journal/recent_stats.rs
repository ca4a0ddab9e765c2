//! What a tool has done lately, as the journal tells it.
//!
//! In: a tool and how far to look back. Out: numbers. Records lie in the order in which calls arrived, and they are wanted by
//! their end: calls that had been under way for long when the time began are not found. No more than so many records are
//! looked at, and the answer says if that was not enough.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use super::{CallRecord, Journal, LAYOUT};
use crate::monitor::Meter;
use toolhub_storage::{
    backend::{Cursor, Scan, Scope, StoreError, Table, decode},
    latency::Latency,
};
use toolhub_types::{ids::CallId, timestamp::Timestamp, tool::ToolName};

/// How many records are looked at.
const MAX_SCANNED_RECORDS: usize = 10_000;
/// How many are read at once.
const PAGE_SIZE: usize = 500;
/// How long before the time calls may have arrived that ended in it.
const ARRIVAL_LOOKBACK: Duration = Duration::from_secs(3600);

/// What a tool has done within a time, as far as it was written down.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecentStats {
    /// The tool.
    pub tool: ToolName,
    /// Calls that ended from this moment on are counted.
    pub from: Timestamp,
    /// Until when they were counted.
    pub until: Timestamp,
    /// Whether all of them are. Otherwise there were too many records to look at, and `from` is later than it was asked for.
    pub complete: bool,
    /// How many calls ended. Those that were refused before their tool began have mostly no record.
    pub calls: u64,
    /// How many of them failed, by the name of the error.
    pub errors: BTreeMap<&'static str, u64>,
    /// How often a failed attempt was made again.
    pub retries: u64,
    /// How long calls took that reached the tool, to the millisecond.
    pub latency: Latency,
}

impl Journal {
    /// What became of a tool's calls that ended within the time up to now, whosever they were.
    pub(crate) async fn recent_stats(
        &self,
        tool: &ToolName,
        window: Duration,
        now: Timestamp,
    ) -> Result<RecentStats, StoreError> {
        let (mut from, mut complete) = (now - window, true);
        let oldest = CallId::first_at(from - ARRIVAL_LOOKBACK);
        let (meter, mut calls, mut looked_at) = (Meter::default(), 0, 0);
        let mut scan = Scan { descending: true, ..Scan::new(Table::Calls, Scope::All).limit(PAGE_SIZE) };
        'pages: loop {
            let page = self.store.scan(scan.clone(), now).await?;
            for (key, row) in &page.rows {
                if key.id.parse::<CallId>().is_ok_and(|id| id < oldest) {
                    break 'pages;
                }
                let read = decode::<CallRecord>(key.table, &key.id, LAYOUT, row).inspect_err(StoreError::log_skipped);
                let Ok((record, _)) = read else { continue };
                let Some(outcome) = record.outcome else { continue };
                if looked_at == MAX_SCANNED_RECORDS {
                    // Of what ended before the oldest call that was looked at arrived, nothing more is known.
                    (complete, from) = (false, from.max(outcome.started_at));
                    break 'pages;
                }
                looked_at += 1;
                if record.tool != *tool || outcome.ended_at < from {
                    continue;
                }
                calls += 1;
                match (outcome.attempts, outcome.error_kind()) {
                    (0, Some(kind)) => meter.record_refusal(kind),
                    (0, None) => {}
                    (_, error) => meter.record_end(outcome.duration, error),
                }
                (1..outcome.attempts).for_each(|_| meter.record_retry());
            }
            match page.next {
                Some(Cursor(last)) => scan.after = Some(Cursor(last)),
                None => break,
            }
        }
        let counted = meter.stats(tool.clone(), 0, 0);
        let (errors, retries, latency) = (counted.errors, counted.retries, counted.latency);
        Ok(RecentStats { tool: tool.clone(), from, until: now, complete, calls, errors, retries, latency })
    }
}
