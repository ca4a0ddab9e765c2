//! Statistics of tools and approvals: calls, errors, latency, retries, refusals.
//!
//! In: each end of a call, as it happens. Out: snapshots for the API and for metrics. Counting is cheap enough for
//! every call; reading sums up the shards of all threads and may lag a moment. Nothing is decided here.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use toolhub_storage::latency::Latency;
use toolhub_types::{status::ToolStatus, tool::ToolName};

mod call_sampler;
mod meter;
mod poll_watch;
mod refusals;

pub use call_sampler::{CallSample, CallSampler};
pub(crate) use meter::{InFlight, Meter, Polling};
pub use poll_watch::PollWatch;
pub use refusals::Refusal;
pub(crate) use refusals::RefusalLog;

/// The size of a store with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoreSize {
    /// The current size, in bytes. In memory: of journal, events, artifacts and threads.
    pub bytes: u64,
    /// The maximum size, in bytes.
    pub limit: u64,
    /// Number of ended calls that were removed because the store was near its maximum size.
    pub trimmed_calls: u64,
    /// Whether the store refused the last write because it has reached its maximum size.
    pub is_full: bool,
}

/// Statistics of a tool since the hub started.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStats {
    /// The tool.
    pub tool: ToolName,
    /// How many calls reached the tool, or were answered from its result cache, and ended.
    pub calls: u64,
    /// How many of these calls failed, by error name.
    pub errors: BTreeMap<&'static str, u64>,
    /// How many calls were refused before they reached the tool, by error name. They do not count as calls.
    pub refusals: BTreeMap<&'static str, u64>,
    /// How many calls were answered from the result cache.
    pub cache_hits: u64,
    /// How many calls were looked up in the result cache in vain.
    pub cache_misses: u64,
    /// How many calls are executing now.
    pub in_flight: u64,
    /// How many calls wait for a slot now.
    pub queued: usize,
    /// How many blocking functions still run after their call has ended.
    pub stuck: usize,
    /// How many retries were made after failed attempts.
    pub retries: u64,
    /// How often a rate limit refused or delayed a call.
    pub rate_limited: u64,
    /// Latency of calls. Does not include refused calls.
    pub latency: Latency,
    /// Latency of successful calls.
    #[serde(skip)]
    pub succeeded: Latency,
    /// Latency of calls that failed, by error name.
    #[serde(skip)]
    pub failed: BTreeMap<&'static str, Latency>,
}

/// How often a tool's status changed from one to another since the hub started, globally or in one thread.
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
    pub count: u64,
}

/// Statistics of approval requests.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalStats {
    /// How many requests are pending: those this hub made, and those it found when it started.
    pub pending: usize,
    /// How long answers took. Does not include requests that timed out.
    pub wait: Latency,
}
