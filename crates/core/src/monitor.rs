//! What tools and the hub have done so far, in numbers: calls, errors, latency, retries, refusals, and how the store answers.
//!
//! In: each end of a call, as it happens. Out: snapshots for people and for metrics. Counting is cheap enough for every call; reading adds up what the threads counted and may be a moment behind. Nothing is decided here.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::{status::ToolStatus, tool::ToolName};

mod histogram;
mod meter;
mod stores;
mod timed;

use histogram::Counts;
pub(crate) use meter::{InFlight, Meter};
pub(crate) use stores::{StoreMeter, StoreMeters};
pub(crate) use timed::{Timed, thread_number};

/// What a tool has done since the hub began.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStats {
    /// The tool.
    pub tool: ToolName,
    /// How many calls reached the tool and ended.
    pub calls: u64,
    /// How many calls failed or were refused, by the name of the error.
    pub errors: BTreeMap<&'static str, u64>,
    /// How many calls are with the tool now.
    pub in_flight: u64,
    /// How many calls wait for a slot now.
    pub queued: usize,
    /// How many calls run on although nobody waits for them.
    pub stuck: usize,
    /// How often a failed attempt was made again.
    pub retries: u64,
    /// How often a rate limit held a call back.
    pub rate_limited: u64,
    /// How long calls took. Refused calls are not in it.
    pub latency: Latency,
    /// The same, of the calls that succeeded.
    #[serde(skip)]
    pub succeeded: Latency,
    /// The same, of the calls that reached the tool and failed, by the name of the error.
    #[serde(skip)]
    pub failed: BTreeMap<&'static str, Latency>,
}

/// How often a tool's status changed from one to another since the hub began, for everybody or in one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusChanges {
    /// The tool.
    pub tool: ToolName,
    /// The status before.
    pub from: ToolStatus,
    /// The status after.
    pub to: ToolStatus,
    /// How often.
    pub many: u64,
}

/// Questions to people, in numbers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalStats {
    /// How many wait for an answer: those this hub asked, and those it found when it began.
    pub pending: usize,
    /// How long it took until people answered. Questions whose time ran out are not in it.
    pub wait: Latency,
}

/// How long a store took for one sort of request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The sort of store, such as `sqlite`.
    pub backend: &'static str,
    /// What it was asked for: `load`, `commit`, `scan` or `sweep`.
    pub operation: &'static str,
    /// How long that took, whatever the answer was.
    pub latency: Latency,
}

/// How long calls, or whatever was measured, took. The quantiles are right to about an eighth.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Latency {
    /// How many calls were measured.
    pub count: u64,
    /// The mean.
    #[serde(rename = "meanMs", serialize_with = "fraction")]
    #[schemars(with = "f64")]
    pub mean: Duration,
    /// Half of the calls took no longer.
    #[serde(rename = "p50Ms", serialize_with = "fraction")]
    #[schemars(with = "f64")]
    pub p50: Duration,
    /// 95 of 100 calls took no longer.
    #[serde(rename = "p95Ms", serialize_with = "fraction")]
    #[schemars(with = "f64")]
    pub p95: Duration,
    /// 99 of 100 calls took no longer.
    #[serde(rename = "p99Ms", serialize_with = "fraction")]
    #[schemars(with = "f64")]
    pub p99: Duration,
    /// The longest.
    #[serde(rename = "maxMs", serialize_with = "fraction")]
    #[schemars(with = "f64")]
    pub max: Duration,
    #[serde(skip)]
    counts: Counts,
}

impl Latency {
    fn of(counts: Counts) -> Self {
        Self {
            count: counts.total(),
            mean: counts.mean(),
            p50: counts.quantile(0.50),
            p95: counts.quantile(0.95),
            p99: counts.quantile(0.99),
            max: counts.longest(),
            counts,
        }
    }

    /// How many calls took no longer than each of these bounds. A call just under a bound may be missing.
    #[must_use]
    pub fn within(&self, bounds: &[Duration]) -> Vec<u64> {
        bounds.iter().map(|bound| self.counts.within(*bound)).collect()
    }
}

/// Milliseconds with three digits after the point: many tools take less than one.
fn fraction<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e3)
}
