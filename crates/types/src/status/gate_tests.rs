//! Admission case by case: two records at a moment, one decision.

use super::*;
use crate::{
    ids::CallId,
    status::{Breaker, Cause, Hold, Override, Permit},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

/// A breaker that opened at 0 and is on probation from 300; perhaps probed until a moment.
fn open(probed_until: Option<i64>) -> Facts {
    let probe = probed_until.map(|until| Permit { id: CallId::mint(at(0)), taken: at(300), lease_until: at(until) });
    let breaker = Breaker::Open { since: at(0), until: at(300), openings: 1, cause: Cause::InARow, probe };
    Facts { breaker, consecutive_failures: 3, ..Facts::default() }
}

fn held(status: Hold, until: Option<i64>) -> Facts {
    let word = Override { status, reason: None, until: until.map(at) };
    Facts { operator: Some(word), ..Facts::default() }
}

#[track_caller]
fn check(thread: Option<&Facts>, shared: &Facts, second: i64, expected: &Admission) {
    let settings = StatusSettings::default();
    assert_eq!(&admit(thread, shared, &Presence::Ready, &settings, at(second)), expected, "at {second}");
}

fn refusal(kind: ErrorKind, reason: Reason, seconds: Option<u64>) -> Admission {
    Admission::Refuse { kind, reason, retry_after: seconds.map(Duration::from_secs) }
}

#[test]
fn a_healthy_tool_lets_calls_pass_with_and_without_a_thread() {
    check(None, &Facts::default(), 0, &Admission::Pass);
    check(Some(&Facts::default()), &Facts::default(), 0, &Admission::Pass);
}

#[test]
fn a_failed_tool_refuses_and_says_when_to_come_back() {
    let refused = refusal(ErrorKind::ToolFailedStatus, Reason::FailedInARow { times: 3 }, Some(200));
    check(Some(&open(None)), &Facts::default(), 100, &refused);
    check(Some(&Facts::default()), &open(None), 100, &refused);
    check(None, &open(None), 100, &refused);
}

#[test]
fn an_operators_word_refuses_with_its_own_kind() {
    let words = None;
    let maintenance = refusal(ErrorKind::ToolMaintenance, Reason::Maintenance { words: None }, Some(50));
    check(None, &held(Hold::Maintenance, Some(150)), 100, &maintenance);
    let off = refusal(ErrorKind::ToolUnavailable, Reason::SwitchedOff { words }, None);
    check(Some(&held(Hold::Unavailable, None)), &Facts::default(), 100, &off);
    check(None, &held(Hold::Maintenance, Some(150)), 150, &Admission::Pass);
}

#[test]
fn on_probation_the_call_must_take_the_permit_of_each_record_that_asks() {
    let (fresh, open) = (Facts::default(), open(None));
    check(Some(&open), &fresh, 300, &Admission::Probe { thread: true, shared: false });
    check(Some(&fresh), &open, 300, &Admission::Probe { thread: false, shared: true });
    check(Some(&open), &open, 300, &Admission::Probe { thread: true, shared: true });
    check(None, &open, 300, &Admission::Probe { thread: false, shared: true });
}

#[test]
fn while_a_probe_runs_others_wait_until_its_lease_ends() {
    let probed = open(Some(330));
    check(None, &probed, 310, &Admission::WaitForProbe);
    check(Some(&open(None)), &probed, 310, &Admission::WaitForProbe);
    check(Some(&probed), &open(None), 310, &Admission::WaitForProbe);
    check(None, &probed, 330, &Admission::Probe { thread: false, shared: true });
}

#[test]
fn a_lease_from_a_future_that_was_taken_back_blocks_nobody() {
    let mut probed = open(None);
    if let Breaker::Open { probe, .. } = &mut probed.breaker {
        *probe = Some(Permit { id: CallId::mint(at(0)), taken: at(90_000), lease_until: at(90_030) });
    }
    check(None, &probed, 400, &Admission::Probe { thread: false, shared: true });
}

#[test]
fn with_counting_off_an_open_breaker_gates_nothing_and_an_override_still_does() {
    let off = StatusSettings { enabled: false, ..StatusSettings::default() };
    let admitted = |shared: &Facts| admit(None, shared, &Presence::Ready, &off, at(100));
    assert_eq!(admitted(&open(None)), Admission::Pass);
    assert_eq!(admitted(&open(Some(330))), Admission::Pass);
    assert!(matches!(admitted(&held(Hold::Maintenance, None)), Admission::Refuse { .. }));
}

#[test]
fn absence_refuses_with_the_fitting_kind() {
    let of = |presence| match admit(None, &Facts::default(), &presence, &StatusSettings::default(), at(0)) {
        Admission::Refuse { kind, .. } => Some(kind),
        _ => None,
    };
    assert_eq!(of(Presence::Disabled { words: None }), Some(ErrorKind::ToolUnavailable));
    assert_eq!(of(Presence::Disconnected), Some(ErrorKind::ToolUnavailable));
    assert_eq!(of(Presence::NoImplementation), Some(ErrorKind::ToolUnavailable));
    assert_eq!(of(Presence::WaitingFor(vec![])), Some(ErrorKind::DependencyNotMet));
    assert_eq!(of(Presence::DependenciesMet), None);
}
