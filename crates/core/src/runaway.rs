//! The runaway guard: limits repeated calls of one run.
//!
//! In: each call of a run before its tool starts, and each call with invalid arguments. Out: a refusal when a run makes
//! the same call, or calls in total, too often; and how often the same mistake was made.
//! Knows no tool and no clock. The same call means the same name and the same canonical JSON arguments.
//! The counts are bounded by `expiring_lru.rs` and live in memory only: after a restart a run starts at zero.

mod expiring_lru;

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::Serialize;

use expiring_lru::ExpiringLru;
use toolhub_storage::clock::Instant;
use toolhub_types::ids::{RunId, Tenant, ThreadId};

/// How much one run may call. 0 means no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunLimits {
    /// How often a run may make the same call: the same tool with the same arguments.
    pub same_call: u32,
    /// How many calls a run may make.
    pub calls: u32,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { same_call: 8, calls: 500 }
    }
}

/// Why a call of a run is refused. `Display` is the operator text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunawayError {
    /// The run has made this very call too often.
    #[error("the run reached its limit of {times} identical calls")]
    SameCall {
        /// How often it was made.
        times: u32,
    },
    /// The run has made too many calls.
    #[error("the run reached its limit of {calls} calls")]
    TooMany {
        /// How many it made.
        calls: u32,
    },
}

impl RunawayError {
    /// The text for the model.
    pub(crate) fn model_text(self, tool: &str) -> String {
        match self {
            Self::SameCall { times } => format!(
                "You have called `{tool}` with the same arguments {times} times in this run. Stop repeating it; use the \
                 earlier result or do something else."
            ),
            Self::TooMany { calls } => format!(
                "You have made {calls} tool calls in this run, as many as it may make. Call no more tools; answer with \
                 what you have."
            ),
        }
    }
}

/// The scope within which mistakes are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum MistakeScope {
    /// The run the call belongs to.
    Run(RunId),
    /// The thread, for a call outside of runs.
    Thread(Tenant, ThreadId),
}

/// Counts the calls of runs, and repeated mistakes.
#[derive(Debug)]
pub(crate) struct RunawayGuard {
    limits: RunLimits,
    runs: Mutex<ExpiringLru<RunId, RunCounts>>,
    mistakes: Mutex<ExpiringLru<MistakeScope, RepeatCounts>>,
    /// Randomly seeded, so that hash collisions cannot be provoked.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct RunCounts {
    calls: u32,
    repeats: RepeatCounts,
}

/// How often each call was made, by hash. A full map is cleared: a call that keeps repeating soon reaches the limit
/// again.
#[derive(Debug, Default)]
struct RepeatCounts(HashMap<u64, u32>);

/// How many different calls are counted per run: more than a run may make by default, and at most 15 KiB.
const MAX_DISTINCT_CALLS: usize = 512;

/// How many different mistakes are counted per run or thread. Every caller may open threads, so this is small.
const MAX_DISTINCT_MISTAKES: usize = 64;

impl RunawayGuard {
    pub(crate) fn new(limits: RunLimits) -> Self {
        Self { limits, runs: Mutex::default(), mistakes: Mutex::default(), hasher: RandomState::new() }
    }

    /// Counts a call of a run before its tool starts. A refused one is not counted.
    pub(crate) fn count_call(&self, run: RunId, tool: &str, arguments: &str, now: Instant) -> Result<(), RunawayError> {
        let RunLimits { same_call, calls } = self.limits;
        if same_call == 0 && calls == 0 {
            return Ok(());
        }
        let call = self.hasher.hash_one((tool, arguments));
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs.touch(run, now);
        if calls > 0 && run.calls >= calls {
            return Err(RunawayError::TooMany { calls: run.calls });
        }
        if same_call > 0 {
            let times = run.repeats.entry(call, MAX_DISTINCT_CALLS);
            if *times >= same_call {
                return Err(RunawayError::SameCall { times: *times });
            }
            *times += 1;
        }
        run.calls = run.calls.saturating_add(1);
        Ok(())
    }

    /// Counts a call with invalid arguments, and returns how often this very mistake was made so far.
    pub(crate) fn count_mistake(&self, scope: MistakeScope, tool: &str, arguments: &str, now: Instant) -> u32 {
        let call = self.hasher.hash_one((tool, arguments));
        let mut mistakes = self.mistakes.lock().unwrap_or_else(PoisonError::into_inner);
        let times = mistakes.touch(scope, now).entry(call, MAX_DISTINCT_MISTAKES);
        *times = times.saturating_add(1);
        *times
    }
}

impl RepeatCounts {
    fn entry(&mut self, call: u64, max_entries: usize) -> &mut u32 {
        if self.0.len() >= max_entries && !self.0.contains_key(&call) {
            self.0.clear();
        }
        self.0.entry(call).or_default()
    }
}

/// The text that is added for the model from the third identical mistake on.
pub(crate) fn mistake_text(times: u32) -> Option<String> {
    if times < 3 {
        return None;
    }
    let ordinal = match (times, times % 10, times % 100) {
        (3, ..) => "third".to_owned(),
        (_, _, 11..=13) => format!("{times}th"),
        (_, 1, _) => format!("{times}st"),
        (_, 2, _) => format!("{times}nd"),
        (_, 3, _) => format!("{times}rd"),
        _ => format!("{times}th"),
    };
    Some(format!(
        "This is the {ordinal} time with the same invalid arguments. Stop repeating this call: change the arguments as \
         described above, or do something else."
    ))
}

#[cfg(test)]
mod tests;
