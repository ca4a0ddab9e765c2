//! What tools and the hub have done so far, in numbers: calls, errors, latency, retries, refusals, and how the store answers.
//!
//! In: each end of a call, as it happens. Out: snapshots for people and for metrics. Counting is cheap enough for every call; reading adds up what the threads counted and may be a moment behind. Nothing is decided here.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use toolhub_storage::latency::Latency;
use toolhub_types::{status::ToolStatus, tool::ToolName};

mod meter;

pub(crate) use meter::{InFlight, Meter};

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
    pub count: u64,
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
