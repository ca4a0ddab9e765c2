//! Latency metrics: durations recorded from many threads, summarized as quantiles.
//!
//! In: one duration at a time. Out: a `Latency`. Recording is cheap enough for every call; reading sums the per-thread
//! histograms and may miss durations that are being recorded concurrently.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

mod histogram;
mod recorder;

pub use histogram::{Histogram, HistogramSnapshot};
pub use recorder::{LatencyRecorder, shard_count, thread_index};

/// Latency distribution of the measured operations. The quantiles are accurate to about 12.5 %.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Latency {
    /// Number of measured calls.
    pub count: u64,
    /// Mean duration.
    #[serde(rename = "meanMs", serialize_with = "millis_with_fraction")]
    #[schemars(with = "f64")]
    pub mean: Duration,
    /// Median: half of the calls took no longer.
    #[serde(rename = "p50Ms", serialize_with = "millis_with_fraction")]
    #[schemars(with = "f64")]
    pub p50: Duration,
    /// 95 of 100 calls took no longer.
    #[serde(rename = "p95Ms", serialize_with = "millis_with_fraction")]
    #[schemars(with = "f64")]
    pub p95: Duration,
    /// 99 of 100 calls took no longer.
    #[serde(rename = "p99Ms", serialize_with = "millis_with_fraction")]
    #[schemars(with = "f64")]
    pub p99: Duration,
    /// Longest duration.
    #[serde(rename = "maxMs", serialize_with = "millis_with_fraction")]
    #[schemars(with = "f64")]
    pub max: Duration,
    #[serde(skip)]
    counts: HistogramSnapshot,
}

impl Latency {
    /// Summarizes a histogram snapshot.
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

    /// The snapshot that this summarizes.
    #[must_use]
    pub fn counts(&self) -> &HistogramSnapshot {
        &self.counts
    }

    /// Number of calls within each of these upper bounds. A call just under a bound may be missing from its count.
    #[must_use]
    pub fn cumulative_counts(&self, bounds: &[Duration]) -> Vec<u64> {
        bounds.iter().map(|bound| self.counts.count_within(*bound)).collect()
    }
}

/// Milliseconds with three decimal places: many tools take less than one millisecond.
fn millis_with_fraction<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((duration.as_secs_f64() * 1e6).round() / 1e3)
}
