//! How long things take: durations counted from many threads, summed up as quantiles.
//!
//! In: one duration at a time. Out: a `Latency`. Counting is cheap enough for every call; reading adds up what the threads counted
//! and may be a moment behind. Nothing is decided here.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

mod histogram;
mod recorder;

pub use histogram::{Histogram, HistogramSnapshot};
pub use recorder::{LatencyRecorder, shard_count, thread_index};

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
    counts: HistogramSnapshot,
}

impl Latency {
    /// What was counted.
    #[must_use]
    pub fn from_counts(counts: HistogramSnapshot) -> Self {
        Self {
            count: counts.total(),
            mean: counts.mean(),
            p50: counts.quantile(0.50),
            p95: counts.quantile(0.95),
            p99: counts.quantile(0.99),
            max: counts.max(),
            counts,
        }
    }

    /// How many calls took no longer than each of these bounds. A call just under a bound may be missing.
    #[must_use]
    pub fn cumulative_counts(&self, bounds: &[Duration]) -> Vec<u64> {
        bounds.iter().map(|bound| self.counts.count_within(*bound)).collect()
    }
}

/// Milliseconds with three digits after the point: many tools take less than one.
fn fraction<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e3)
}
