//! Decides in which record a failure counts: the thread's own, everybody's, both or none.
//!
//! In: the kind of a failure, the circumstances of the call and the shared record. Out: two yes-or-no answers. A
//! record where it counts is told `Answer::Failure`, the other one `Answer::Uncounted`; a success is told to both.
//! The table of error kinds says what counts and in whose record; here it is only applied. Whether anything is counted
//! at all is the machine's question.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{StatusRecord, StatusSettings};
use crate::{
    digest,
    error::{CountsAsFailure, ErrorKind, FailureScope},
    ids::{Tenant, ThreadId},
};

/// A thread that timed out, as a fingerprint: the shared record is read by everybody, a thread's name is not theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadFingerprint(SmolStr);

/// What else is known about a failed call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureContext {
    /// The thread it ran in. Without one there is no other record than everybody's.
    pub thread: Option<ThreadFingerprint>,
    /// It failed while connecting, before any thread's own data could matter.
    pub connecting: bool,
    /// It was the probe of the thread's record.
    pub probes_thread: bool,
    /// It was the probe of the shared record.
    pub probes_shared: bool,
}

/// The records in which a failure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureTargets {
    /// The thread's own.
    pub thread: bool,
    /// Everybody's.
    pub shared: bool,
}

/// Whether a failure of this kind speaks against the tool.
#[must_use]
pub fn counts_as_failure(kind: ErrorKind, settings: &StatusSettings) -> bool {
    match kind.row().counts {
        CountsAsFailure::Yes => true,
        CountsAsFailure::No => false,
        CountsAsFailure::OptIn => settings.count_tool_errors,
    }
}

/// Where a failure counts.
#[must_use]
pub fn failure_targets(
    kind: ErrorKind,
    circumstances: &FailureContext,
    shared: &StatusRecord,
    settings: &StatusSettings,
) -> FailureTargets {
    if !counts_as_failure(kind, settings) {
        return FailureTargets { thread: false, shared: false };
    }
    let Some(own) = &circumstances.thread else {
        return FailureTargets { thread: false, shared: true };
    };
    let (thread, everybody) = match kind.row().scope {
        FailureScope::Nobody => (false, false),
        FailureScope::Thread => (true, false),
        FailureScope::Shared => (false, true),
        FailureScope::ThreadThenShared => {
            (true, circumstances.connecting || shared.timed_out.iter().any(|it| it != own))
        }
    };
    // The record that is probed hears of the failure whatever its scope: a probe that failed cannot close a breaker.
    FailureTargets { thread: thread || circumstances.probes_thread, shared: everybody || circumstances.probes_shared }
}

impl ThreadFingerprint {
    /// The fingerprint of a thread.
    #[must_use]
    pub fn new(tenant: &Tenant, thread: &ThreadId) -> Self {
        let hash = digest::sha256_hex([tenant.as_str().as_bytes(), thread.as_str().as_bytes()]);
        Self(SmolStr::new(&hash[..16]))
    }

    /// Adds this thread to those that timed out. Two are enough to know that it is not one thread's own slowness.
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

    /// A failure in thread `own` after timeouts in the threads of `timed_out`, as (thread, shared).
    #[track_caller]
    fn check(kind: ErrorKind, own: Option<&str>, timed_out: &[&str], expected: (bool, bool)) {
        let settings = StatusSettings::default();
        let shared = timed_out.iter().fold(StatusRecord::default(), |facts, name| {
            apply(&facts, &StatusEvent::TimedOut { by: thread(name) }, &settings, Timestamp::default(), 0.0)
        });
        let circumstances = FailureContext { thread: own.map(thread), ..FailureContext::default() };
        let counting = failure_targets(kind, &circumstances, &shared, &settings);
        assert_eq!((counting.thread, counting.shared), expected, "{kind}");
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
    fn connecting_and_probing_widen_the_scope_and_refusals_count_only_when_asked() {
        let of = |kind, circumstances: &FailureContext, settings: &StatusSettings| {
            let counting = failure_targets(kind, circumstances, &StatusRecord::default(), settings);
            (counting.thread, counting.shared)
        };
        let plain = FailureContext { thread: Some(thread("a")), ..FailureContext::default() };
        let usual = StatusSettings::default();
        let connecting = FailureContext { connecting: true, ..plain.clone() };
        assert_eq!(of(ErrorKind::Timeout, &connecting, &usual), (true, true));
        let probes = FailureContext { probes_shared: true, ..plain.clone() };
        assert_eq!(of(ErrorKind::ToolError, &probes, &usual), (true, true));
        let probes = FailureContext { probes_thread: true, ..plain.clone() };
        assert_eq!(of(ErrorKind::UpstreamError, &probes, &usual), (true, true));
        assert_eq!(of(ErrorKind::Cancelled, &probes, &usual), (false, false));
        let asked = StatusSettings { count_tool_errors: true, ..StatusSettings::default() };
        assert_eq!(of(ErrorKind::ToolRefused, &plain, &asked), (true, false));
    }

    #[test]
    fn the_same_thread_id_of_two_tenants_is_two_threads() {
        let (id, other) = (ThreadId::new("t").unwrap(), Tenant::new("other").unwrap());
        assert_ne!(ThreadFingerprint::new(&Tenant::default(), &id), ThreadFingerprint::new(&other, &id));
    }
}
