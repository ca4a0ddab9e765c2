//! Cases of `evaluate`: a record at a given time, its status, reason and next change.

use super::*;
use crate::status::{Failure, Override};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn open_record() -> StatusRecord {
    let breaker = Breaker::Open { since: at(0), until: at(300), openings: 1, cause: BreakerCause::InARow, probe: None };
    StatusRecord { breaker, consecutive_failures: 3, ..StatusRecord::default() }
}

fn with_override(record: StatusRecord, status: OverrideStatus, until: Option<i64>) -> StatusRecord {
    StatusRecord {
        operator_override: Some(Override { status, reason: Some("disk".into()), until: until.map(at) }),
        ..record
    }
}

#[track_caller]
fn check(
    record: &StatusRecord,
    readiness: &Readiness,
    second: i64,
    status: ToolStatus,
    reason: &str,
    change: Option<i64>,
) {
    let effective = evaluate(record, readiness, &StatusSettings::default(), at(second));
    assert_eq!(effective.status, status);
    assert_eq!(effective.reason.text(crate::language::Language::English), reason);
    assert_eq!(effective.next_change, change.map(at));
}

use Readiness::{DependenciesMet, Disabled, Disconnected, NoImplementation, PendingApproval, Ready};
use ToolStatus::{Available, Failed, Maintenance, Unavailable};

#[test]
fn the_worst_word_that_is_true_is_said() {
    let maintenance = with_override(open_record(), OverrideStatus::Maintenance, Some(100));
    check(&maintenance, &Disabled { message: None }, 50, Maintenance, "in maintenance: disk", Some(100));
    check(&maintenance, &Disabled { message: None }, 100, Failed, "failed 3 times in a row", Some(300));
    check(&maintenance, &Disabled { message: None }, 300, Unavailable, "disabled", None);
    check(&maintenance, &Ready, 300, Available, "on probation", None);
    let pending = PendingApproval { message: "run x".into() };
    check(&maintenance, &pending, 50, Maintenance, "in maintenance: disk", None);
    let text = "in maintenance, its definition waits for approval: run x";
    check(&maintenance, &pending, 100, Maintenance, text, None);
    let off = with_override(open_record(), OverrideStatus::Unavailable, Some(400));
    check(&off, &Ready, 100, Failed, "failed 3 times in a row", Some(300));
    check(&off, &Ready, 300, Unavailable, "set to unavailable by an operator: disk", Some(400));
    check(&off, &Disconnected { message: None }, 300, Unavailable, "set to unavailable by an operator: disk", None);
}

#[test]
fn what_is_absent_is_unavailable() {
    check(&StatusRecord::default(), &Disconnected { message: None }, 0, Unavailable, "not connected", None);
    check(&StatusRecord::default(), &NoImplementation { function: None }, 0, Unavailable, "no implementation", None);
    let bound = NoImplementation { function: Some("app.tools:slug".into()) };
    check(&StatusRecord::default(), &bound, 0, Unavailable, "no implementation registered for app.tools:slug", None);
}

#[test]
fn an_available_tool_says_what_happened_last() {
    let failure = Failure { at: at(20), kind: crate::error::ErrorKind::Timeout, text: String::new() };
    let success = StatusRecord { last_success: Some(at(10)), ..StatusRecord::default() };
    let failed = StatusRecord { last_failure: Some(failure), ..success.clone() };
    check(&StatusRecord::default(), &Ready, 0, Available, "never run", None);
    check(&StatusRecord::default(), &DependenciesMet, 0, Available, "dependencies met", None);
    check(&success, &DependenciesMet, 0, Available, "executed successfully", None);
    check(
        &StatusRecord { consecutive_failures: 2, ..failed.clone() },
        &Ready,
        30,
        Available,
        "the last 2 calls failed",
        None,
    );
    check(&failed, &Ready, 30, Available, "available again", None);
    check(&StatusRecord { last_success: Some(at(20)), ..failed }, &Ready, 30, Available, "executed successfully", None);
}

#[test]
fn in_a_thread_the_reason_agrees_with_the_counters_of_both_records() {
    let failure = |second| Failure { at: at(second), kind: crate::error::ErrorKind::Timeout, text: String::new() };
    let failed = |times| StatusRecord {
        consecutive_failures: times,
        last_failure: Some(failure(20)),
        ..StatusRecord::default()
    };
    let (fresh, success) = (StatusRecord::default(), StatusRecord { last_success: Some(at(10)), ..failed(0) });
    let reset = StatusRecord { reset: Some(at(5)), ..StatusRecord::default() };
    let open = |times| StatusRecord { consecutive_failures: times, ..open_record() };
    for (own, shared, reason) in [
        (&fresh, &fresh, "never run"),
        (&fresh, &failed(2), "the last 2 calls failed"),
        (&success, &failed(1), "the last call failed"),
        (&success, &fresh, "available again"),
        (&reset, &fresh, "reset, not run since"),
        (&reset, &failed(2), "the last 2 calls failed"),
        (&open(3), &open(4), "failed 4 times in a row"),
    ] {
        let effective = evaluate_in_thread(own, shared, &Ready, &StatusSettings::default(), at(30));
        assert_eq!(effective.reason.text(crate::language::Language::English), reason);
    }
}

#[test]
fn a_breaker_that_seems_to_open_in_the_future_withholds_nothing() {
    check(&open_record(), &Ready, -5, Failed, "failed 3 times in a row", Some(300));
    check(&open_record(), &Ready, -6, Available, "on probation", None);
}

#[test]
fn with_counting_off_the_breaker_has_no_word() {
    let off = StatusSettings { enabled: false, ..StatusSettings::default() };
    for second in [100, 400] {
        let effective = evaluate(&open_record(), &Ready, &off, at(second));
        assert_eq!((effective.status, effective.probation), (Available, false));
    }
}

#[test]
fn a_thread_sees_the_worse_of_the_two_until_both_are_better() {
    let at_100 = |record: &StatusRecord| evaluate(record, &Ready, &StatusSettings::default(), at(100));
    let both = |thread: &StatusRecord, shared: &StatusRecord| worst(at_100(thread), at_100(shared));
    let later = |until| with_override(StatusRecord::default(), OverrideStatus::Maintenance, until);
    assert_eq!(both(&open_record(), &StatusRecord::default()), at_100(&open_record()));
    assert_eq!(both(&StatusRecord::default(), &open_record()), at_100(&open_record()));
    assert_eq!(both(&later(Some(200)), &open_record()).next_change, Some(at(200)));
    assert_eq!(both(&later(Some(200)), &later(Some(500))).next_change, Some(at(500)));
    assert_eq!(both(&later(None), &later(Some(500))).next_change, None);
}

#[test]
fn probation_of_either_record_is_told() {
    let now = |record: &StatusRecord| evaluate(record, &Ready, &StatusSettings::default(), at(300));
    let fresh = StatusRecord::default();
    for (thread, shared) in [(&fresh, &open_record()), (&open_record(), &fresh)] {
        let effective = worst(now(thread), now(shared));
        assert_eq!((effective.probation, effective.reason), (true, Reason::OnProbation));
    }
}

#[test]
fn the_words_are_written_in_lower_case() {
    let json = serde_json::to_string(&[Available, Unavailable, Failed, Maintenance]).unwrap();
    assert_eq!(json, r#"["available","unavailable","failed","maintenance"]"#);
}
