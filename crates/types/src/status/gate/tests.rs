//! Cases of `admit`: two records at a given time, one decision.

use super::*;
use crate::{
    ids::CallId,
    status::{Breaker, BreakerCause, Override, OverrideStatus, ProbeLease},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

/// A breaker that opened at 0 and is on probation from 300; optionally with a probe lease until a given second.
fn open_record(probed_until: Option<i64>) -> StatusRecord {
    let probe =
        probed_until.map(|until| ProbeLease { id: CallId::mint(at(0)), taken: at(300), lease_until: at(until) });
    let breaker = Breaker::Open { since: at(0), until: at(300), openings: 1, cause: BreakerCause::InARow, probe };
    StatusRecord { breaker, consecutive_failures: 3, ..StatusRecord::default() }
}

fn overridden_record(status: OverrideStatus, until: Option<i64>) -> StatusRecord {
    let operator_override = Some(Override { status, reason: None, until: until.map(at) });
    StatusRecord { operator_override, ..StatusRecord::default() }
}

#[track_caller]
fn check(thread: Option<&StatusRecord>, shared: &StatusRecord, second: i64, expected: &Admission) {
    let settings = StatusSettings::default();
    assert_eq!(&admit(thread, shared, &Readiness::Ready, &settings, at(second)), expected, "at {second}");
}

fn refusal(kind: ErrorKind, reason: Reason, seconds: Option<u64>) -> Admission {
    Admission::Refuse { kind, reason, retry_after: seconds.map(Duration::from_secs) }
}

#[test]
fn a_healthy_tool_lets_calls_pass_with_and_without_a_thread() {
    check(None, &StatusRecord::default(), 0, &Admission::Pass);
    check(Some(&StatusRecord::default()), &StatusRecord::default(), 0, &Admission::Pass);
}

#[test]
fn a_failed_tool_refuses_and_says_when_to_come_back() {
    let refused = refusal(ErrorKind::ToolFailedStatus, Reason::FailedInARow { times: 3 }, Some(200));
    check(Some(&open_record(None)), &StatusRecord::default(), 100, &refused);
    check(Some(&StatusRecord::default()), &open_record(None), 100, &refused);
    check(None, &open_record(None), 100, &refused);
}

#[test]
fn an_operators_word_refuses_with_its_own_kind() {
    let maintenance = refusal(ErrorKind::ToolMaintenance, Reason::Maintenance { message: None }, Some(50));
    check(None, &overridden_record(OverrideStatus::Maintenance, Some(150)), 100, &maintenance);
    let off = refusal(ErrorKind::ToolUnavailable, Reason::SetUnavailable { message: None }, None);
    check(Some(&overridden_record(OverrideStatus::Unavailable, None)), &StatusRecord::default(), 100, &off);
    check(None, &overridden_record(OverrideStatus::Maintenance, Some(150)), 150, &Admission::Pass);
}

#[test]
fn on_probation_the_call_must_take_the_permit_of_each_record_that_asks() {
    let (fresh, open) = (StatusRecord::default(), open_record(None));
    check(Some(&open), &fresh, 300, &Admission::Probe { thread: true, shared: false });
    check(Some(&fresh), &open, 300, &Admission::Probe { thread: false, shared: true });
    check(Some(&open), &open, 300, &Admission::Probe { thread: true, shared: true });
    check(None, &open, 300, &Admission::Probe { thread: false, shared: true });
}

#[test]
fn while_a_probe_runs_others_wait_until_its_lease_ends() {
    let probed = open_record(Some(330));
    check(None, &probed, 310, &Admission::WaitForProbe);
    check(Some(&open_record(None)), &probed, 310, &Admission::WaitForProbe);
    check(Some(&probed), &open_record(None), 310, &Admission::WaitForProbe);
    check(None, &probed, 330, &Admission::Probe { thread: false, shared: true });
}

#[test]
fn a_lease_from_a_future_that_was_taken_back_blocks_nobody() {
    let mut probed = open_record(None);
    if let Breaker::Open { probe, .. } = &mut probed.breaker {
        *probe = Some(ProbeLease { id: CallId::mint(at(0)), taken: at(90_000), lease_until: at(90_030) });
    }
    check(None, &probed, 400, &Admission::Probe { thread: false, shared: true });
}

#[test]
fn with_counting_off_an_open_breaker_gates_nothing_and_an_override_still_does() {
    let off = StatusSettings { enabled: false, ..StatusSettings::default() };
    let admitted = |shared: &StatusRecord| admit(None, shared, &Readiness::Ready, &off, at(100));
    assert_eq!(admitted(&open_record(None)), Admission::Pass);
    assert_eq!(admitted(&open_record(Some(330))), Admission::Pass);
    assert!(matches!(admitted(&overridden_record(OverrideStatus::Maintenance, None)), Admission::Refuse { .. }));
}

#[test]
fn absence_refuses_with_the_fitting_kind() {
    let kind_of = |readiness| match admit(None, &StatusRecord::default(), &readiness, &StatusSettings::default(), at(0))
    {
        Admission::Refuse { kind, .. } => Some(kind),
        _ => None,
    };
    assert_eq!(kind_of(Readiness::Disabled { message: None }), Some(ErrorKind::ToolUnavailable));
    assert_eq!(kind_of(Readiness::Disconnected { message: None }), Some(ErrorKind::ToolUnavailable));
    assert_eq!(kind_of(Readiness::NoImplementation { function: None }), Some(ErrorKind::ToolUnavailable));
    assert_eq!(kind_of(Readiness::WaitingFor(vec![])), Some(ErrorKind::DependencyNotMet));
    assert_eq!(kind_of(Readiness::DependenciesMet), None);
}
