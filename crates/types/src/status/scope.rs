//! Decides in which record a failure counts: the thread's, the shared one, both or none.
//!
//! In: the kind of a failure, the context of the call and the shared record. Out: one flag per record. A
//! record where it counts gets `HealthSignal::Failure`, the other one `HealthSignal::Uncounted`; a success goes to both.
//! The table of error kinds defines what counts and where; this file applies it. `machine.rs` checks whether counting is enabled
//! at all.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{StatusRecord, StatusSettings};
use crate::{
    digest,
    error::{CountsAsFailure, ErrorKind, FailureScope},
    ids::{Tenant, ThreadId},
};

/// A hash of a thread that timed out. The shared record is visible to all tenants, so it must not contain thread ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadFingerprint(SmolStr);

/// The context of a failed call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureContext {
    /// The thread it ran in. Without one, only the shared record exists.
    pub thread: Option<ThreadFingerprint>,
    /// Whether it failed while connecting, before any data of the thread could matter.
    pub connecting: bool,
    /// Whether what failed belongs to the thread alone, such as a process of its own.
    pub of_thread: bool,
    /// Whether it was the probe of the thread's record.
    pub probes_thread: bool,
    /// Whether it was the probe of the shared record.
    pub probes_shared: bool,
}

/// The records in which a failure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureTargets {
    /// The thread's record.
    pub thread: bool,
    /// The shared record.
    pub shared: bool,
}

/// Whether an error of this kind counts as a failure of the tool.
#[must_use]
pub fn counts_as_failure(kind: ErrorKind, settings: &StatusSettings) -> bool {
    match kind.row().counts {
        CountsAsFailure::Yes => true,
        CountsAsFailure::No => false,
        CountsAsFailure::OptIn => settings.count_tool_errors,
    }
}

/// The records in which a failure counts.
#[must_use]
pub fn failure_targets(
    kind: ErrorKind,
    context: &FailureContext,
    shared: &StatusRecord,
    settings: &StatusSettings,
) -> FailureTargets {
    if !counts_as_failure(kind, settings) {
        return FailureTargets { thread: false, shared: false };
    }
    let Some(own) = &context.thread else {
        return FailureTargets { thread: false, shared: true };
    };
    let (counts_in_thread, counts_in_shared) = match kind.row().scope {
        FailureScope::None => (false, false),
        FailureScope::Thread => (true, false),
        FailureScope::Shared => (context.of_thread, !context.of_thread),
        FailureScope::ThreadThenShared => {
            (true, context.connecting || shared.timed_out.iter().any(|thread| thread != own))
        }
    };
    // The failure counts in a probed record whatever its scope: a failed probe must not close the breaker.
    FailureTargets {
        thread: counts_in_thread || context.probes_thread,
        shared: counts_in_shared || context.probes_shared,
    }
}

impl ThreadFingerprint {
    /// The fingerprint of a thread.
    #[must_use]
    pub fn new(tenant: &Tenant, thread: &ThreadId) -> Self {
        let hash = digest::sha256_hex([tenant.as_str().as_bytes(), thread.as_str().as_bytes()]);
        Self(SmolStr::new(&hash[..16]))
    }

    /// Adds this thread to those that timed out. Two are enough to show that the problem is not specific to one thread.
    pub(super) fn add_to(&self, timed_out: &mut Vec<Self>) {
        if timed_out.len() < 2 && !timed_out.contains(self) {
            timed_out.push(self.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        status::{StatusEvent, apply},
        timestamp::Timestamp,
    };

    fn thread(name: &str) -> ThreadFingerprint {
        ThreadFingerprint::new(&Tenant::default(), &ThreadId::new(name).unwrap())
    }

    /// Checks where a failure in thread `own` counts after timeouts in the threads `timed_out`, as (thread, shared).
    #[track_caller]
    fn check(kind: ErrorKind, own: Option<&str>, timed_out: &[&str], expected: (bool, bool)) {
        let settings = StatusSettings::default();
        let shared = timed_out.iter().fold(StatusRecord::default(), |record, name| {
            apply(&record, &StatusEvent::TimedOut { by: thread(name) }, &settings, Timestamp::default(), 0.0)
        });
        let context = FailureContext { thread: own.map(thread), ..FailureContext::default() };
        let targets = failure_targets(kind, &context, &shared, &settings);
        assert_eq!((targets.thread, targets.shared), expected, "{kind}");
    }

    #[test]
    fn the_table_says_where_a_failure_counts() {
        check(ErrorKind::ToolError, Some("a"), &[], (true, false));
        check(ErrorKind::Crashed, Some("a"), &[], (true, false));
        check(ErrorKind::UpstreamUnreachable, Some("a"), &[], (false, true));
        check(ErrorKind::UpstreamError, Some("a"), &[], (false, true));
        check(ErrorKind::ToolRefused, Some("a"), &[], (false, false));
        check(ErrorKind::Overloaded, Some("a"), &[], (false, false));
    }

    #[test]
    fn a_timeout_is_everybodys_once_two_threads_have_it() {
        check(ErrorKind::Timeout, Some("a"), &[], (true, false));
        check(ErrorKind::Timeout, Some("a"), &["a", "a", "a"], (true, false));
        check(ErrorKind::Timeout, Some("b"), &["a", "b"], (true, true));
        check(ErrorKind::Timeout, Some("a"), &["a", "b"], (true, true));
        check(ErrorKind::Timeout, Some("c"), &["a", "b", "c"], (true, true));
    }

    #[test]
    fn without_a_thread_every_counted_failure_is_everybodys() {
        check(ErrorKind::ToolError, None, &[], (false, true));
        check(ErrorKind::Timeout, None, &[], (false, true));
        check(ErrorKind::ToolRefused, None, &[], (false, false));
    }

    #[test]
    fn connecting_and_probing_widen_the_scope_a_process_of_the_thread_narrows_it_and_refusals_count_only_when_asked() {
        let targets = |kind, context: &FailureContext, settings: &StatusSettings| {
            let targets = failure_targets(kind, context, &StatusRecord::default(), settings);
            (targets.thread, targets.shared)
        };
        let in_thread = FailureContext { thread: Some(thread("a")), ..FailureContext::default() };
        let defaults = StatusSettings::default();
        let connecting = FailureContext { connecting: true, ..in_thread.clone() };
        assert_eq!(targets(ErrorKind::Timeout, &connecting, &defaults), (true, true));
        let probes = FailureContext { probes_shared: true, ..in_thread.clone() };
        assert_eq!(targets(ErrorKind::ToolError, &probes, &defaults), (true, true));
        let probes = FailureContext { probes_thread: true, ..in_thread.clone() };
        assert_eq!(targets(ErrorKind::UpstreamError, &probes, &defaults), (true, true));
        assert_eq!(targets(ErrorKind::Cancelled, &probes, &defaults), (false, false));
        let own_process = FailureContext { of_thread: true, ..in_thread.clone() };
        assert_eq!(targets(ErrorKind::UpstreamError, &own_process, &defaults), (true, false));
        let without_thread = FailureContext { thread: None, ..own_process };
        assert_eq!(targets(ErrorKind::UpstreamError, &without_thread, &defaults), (false, true));
        let opted_in = StatusSettings { count_tool_errors: true, ..StatusSettings::default() };
        assert_eq!(targets(ErrorKind::ToolRefused, &in_thread, &opted_in), (true, false));
    }

    #[test]
    fn the_same_thread_id_of_two_tenants_is_two_threads() {
        let (id, other) = (ThreadId::new("t").unwrap(), Tenant::new("other").unwrap());
        assert_ne!(ThreadFingerprint::new(&Tenant::default(), &id), ThreadFingerprint::new(&other, &id));
    }
}
