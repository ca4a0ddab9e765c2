//! The latest calls that were refused before they reached their tool. Most of them leave no record in the journal.
//!
//! In: refused calls. Out: those that are wanted, the newest first. Only in memory, and only so many.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;

use crate::call::CallHead;
use toolhub_types::{
    error::CallError,
    ids::{CallId, Caller, RunId, Tenant, ThreadId},
    timestamp::Timestamp,
};

/// Number of refusals kept.
const MAX_REFUSALS: usize = 10_000;
/// Longer texts and names are cut, because callers may cause long ones.
const MAX_TEXT_CHARS: usize = 500;
const MAX_NAME_CHARS: usize = 128;

/// A call that was refused before it reached its tool.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Refusal {
    /// Its position among all refusals since the hub started.
    #[serde(skip)]
    pub number: u64,
    /// The tenant of the caller.
    #[serde(skip)]
    pub tenant: Tenant,
    /// The call.
    pub call_id: CallId,
    /// The tool's name as the caller wrote it.
    pub tool: SmolStr,
    /// The thread, if the call named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The caller.
    pub caller: Caller,
    /// The agent run the call belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The error code.
    pub code: &'static str,
    /// Why, for operators.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// The latest refusals.
#[derive(Default)]
pub(crate) struct RefusalLog(Mutex<Refusals>);

#[derive(Default)]
struct Refusals {
    /// The oldest first.
    latest: VecDeque<Refusal>,
    /// The number of the next one.
    next: u64,
    /// How many there were since the hub started, by error name.
    counts: BTreeMap<&'static str, u64>,
}

impl RefusalLog {
    pub(crate) fn add(&self, head: &CallHead, error: &CallError, at: Timestamp) {
        let mut refusal = Refusal {
            number: 0,
            tenant: head.tenant.clone(),
            call_id: head.id,
            tool: head.tool.chars().take(MAX_NAME_CHARS).collect(),
            thread_id: head.named_thread().cloned(),
            caller: head.caller.clone(),
            run_id: head.run,
            code: error.kind.name(),
            text: error.operator.chars().take(MAX_TEXT_CHARS).collect(),
            at,
        };
        let mut refusals = self.lock();
        refusal.number = refusals.next;
        refusals.next += 1;
        *refusals.counts.entry(refusal.code).or_default() += 1;
        if refusals.latest.len() == MAX_REFUSALS {
            refusals.latest.pop_front();
        }
        refusals.latest.push_back(refusal);
    }

    /// How many calls were refused since the hub started, by error name.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().counts.clone()
    }

    /// The wanted ones before a number, the newest first, at most so many.
    pub(crate) fn page(&self, before: Option<u64>, limit: usize, wanted: impl Fn(&Refusal) -> bool) -> Vec<Refusal> {
        let refusals = self.lock();
        let newest_first = refusals.latest.iter().rev();
        let earlier = newest_first.skip_while(|refusal| before.is_some_and(|before| refusal.number >= before));
        earlier.filter(|refusal| wanted(refusal)).take(limit).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Refusals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
