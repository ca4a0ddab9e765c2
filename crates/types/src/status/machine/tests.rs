//! Cases of `apply`: events with their seconds, then the status and its reason at a given second.

use super::*;
use crate::{
    language::Language,
    status::{FailureWindow, Readiness, evaluate},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn call_ended(signal: HealthSignal) -> StatusEvent {
    StatusEvent::CallEnded { signal, epoch: None }
}

fn success() -> StatusEvent {
    call_ended(HealthSignal::Success)
}

fn failure() -> StatusEvent {
    call_ended(HealthSignal::Failure { kind: ErrorKind::UpstreamError, text: "503".into() })
}

fn apply_all(settings: &StatusSettings, events: &[(i64, StatusEvent)]) -> StatusRecord {
    events
        .iter()
        .fold(StatusRecord::default(), |record, (second, event)| apply(&record, event, settings, at(*second), 0.0))
}

fn describe_status(record: &StatusRecord, settings: &StatusSettings, second: i64) -> String {
    let effective = evaluate(record, &Readiness::Ready, settings, at(second));
    format!("{:?}: {}", effective.status, effective.reason.text(Language::English))
}

#[track_caller]
fn check(events: &[(i64, StatusEvent)], second: i64, expected: &str) {
    let settings = StatusSettings::default();
    assert_eq!(
        describe_status(&apply_all(&settings, events), &settings, second),
        expected,
        "at {second} after {events:?}"
    );
}

fn three_failures_at(second: i64) -> Vec<(i64, StatusEvent)> {
    vec![(second, failure()); 3]
}

fn append_events(
    mut events: Vec<(i64, StatusEvent)>,
    more: impl IntoIterator<Item = (i64, StatusEvent)>,
) -> Vec<(i64, StatusEvent)> {
    events.extend(more);
    events
}

#[test]
fn failures_in_a_row_open_the_breaker_and_a_success_between_them_does_not() {
    check(&[(0, failure()), (1, failure())], 2, "Available: the last 2 calls failed");
    check(
        &[(0, failure()), (1, failure()), (2, success()), (3, failure()), (4, failure())],
        5,
        "Available: the last 2 calls failed",
    );
    check(
        &[(0, failure()), (1, failure()), (2, call_ended(HealthSignal::Uncounted)), (3, failure())],
        5,
        "Failed: failed 3 times in a row",
    );
}

#[test]
fn the_first_wait_is_exact_and_ends_in_probation_without_any_event() {
    check(&three_failures_at(0), 299, "Failed: failed 3 times in a row");
    check(&three_failures_at(0), 300, "Available: on probation");
}

#[test]
fn a_success_or_an_uncounted_answer_on_probation_closes_the_breaker() {
    check(&append_events(three_failures_at(0), [(300, success())]), 301, "Available: executed successfully");
    let closed = append_events(three_failures_at(0), [(300, call_ended(HealthSignal::Uncounted))]);
    check(&closed, 301, "Available: available again");
    check(&append_events(closed, [(302, failure()), (303, failure())]), 304, "Available: the last 2 calls failed");
}

#[test]
fn each_failed_probe_doubles_the_wait_up_to_the_cap() {
    let settings = StatusSettings::default();
    let mut record = apply_all(&settings, &three_failures_at(0));
    let mut now = at(0);
    for minutes in [5, 10, 20, 40, 60, 60] {
        let Breaker::Open { since, until, .. } = record.breaker else { panic!("closed") };
        assert_eq!(until.since(since), Duration::from_secs(minutes * 60));
        now = now + Duration::from_secs(minutes * 60);
        record = apply(&record, &failure(), &settings, now, 0.0);
    }
    record = apply(&record, &failure(), &settings, now + Duration::from_secs(3600), 1.0);
    let Breaker::Open { since, until, .. } = record.breaker else { panic!("closed") };
    assert_eq!(until.since(since), Duration::from_secs(48 * 60), "jitter shortens");
}

#[test]
fn a_first_wait_above_the_cap_is_kept_and_odd_jitter_does_no_harm() {
    let settings = StatusSettings { failure_duration: Duration::from_secs(7200), ..StatusSettings::default() };
    assert_eq!(backoff(2, &settings, f64::NAN), Duration::from_secs(7200));
    assert_eq!(backoff(u32::MAX, &settings, 9.0), Duration::from_secs(5760));
    let forever = StatusSettings { failure_duration: Duration::MAX, ..StatusSettings::default() };
    let record = apply_all(&forever, &three_failures_at(0));
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<StatusRecord>(&text).unwrap(), record);
}

#[test]
fn one_call_at_a_time_holds_the_permit() {
    let settings = StatusSettings::default();
    let [one, two] = [1, 2].map(|second| CallId::mint(at(second)));
    let take = |record: &StatusRecord, id, second| {
        apply(record, &StatusEvent::ProbeTaken { id, lease: Duration::from_secs(30) }, &settings, at(second), 0.0)
    };
    let failed = apply_all(&settings, &three_failures_at(0));
    assert_eq!(take(&failed, one, 299), failed, "not before probation");
    let probed = take(&failed, one, 300);
    assert!(probed.is_probe_held_by(one) && probed.epoch > failed.epoch);
    assert_eq!(take(&probed, two, 329), probed, "the first call holds the lease");
    assert!(take(&probed, two, 330).is_probe_held_by(two), "the lease expired");
    let released = apply(&probed, &StatusEvent::ProbeReleased { id: one }, &settings, at(301), 0.0);
    assert!(take(&released, two, 301).is_probe_held_by(two));
    assert_eq!(apply(&probed, &StatusEvent::ProbeReleased { id: two }, &settings, at(301), 0.0), probed);
}

#[test]
fn results_of_an_old_epoch_move_nothing_but_are_remembered() {
    let settings = StatusSettings::default();
    let failed = apply_all(&settings, &three_failures_at(0));
    let late = |signal| StatusEvent::CallEnded { signal, epoch: Some(failed.epoch - 1) };
    for second in [100, 400] {
        let after = apply(&failed, &late(HealthSignal::Success), &settings, at(second), 0.0);
        assert_eq!((&after.breaker, after.last_success), (&failed.breaker, Some(at(second))));
        assert_eq!(after.last_failure, failed.last_failure, "both are kept");
    }
    let failure = HealthSignal::Failure { kind: ErrorKind::Crashed, text: String::new() };
    let after = apply(&failed, &late(failure), &settings, at(400), 0.0);
    assert_eq!(after.breaker, failed.breaker);
}

#[test]
fn a_probe_that_outlived_its_lease_no_longer_decides() {
    let settings = StatusSettings::default();
    let take = |record: &StatusRecord, second| {
        let event = StatusEvent::ProbeTaken { id: CallId::mint(at(second)), lease: Duration::from_secs(30) };
        apply(record, &event, &settings, at(second), 0.0)
    };
    let first = take(&apply_all(&settings, &three_failures_at(0)), 300);
    let second = take(&first, 330);
    let success = |epoch| StatusEvent::CallEnded { signal: HealthSignal::Success, epoch: Some(epoch) };
    assert_eq!(apply(&second, &success(first.epoch), &settings, at(331), 0.0).breaker, second.breaker);
    assert_eq!(apply(&second, &success(second.epoch), &settings, at(331), 0.0).breaker, Breaker::Closed);
}

#[test]
fn success_lifts_no_override_and_an_override_ends_on_time() {
    let maintenance = |until| StatusEvent::from_operator(ToolStatus::Maintenance, Some("disk".into()), until);
    check(&[(0, maintenance(None)), (1, success())], 2, "Maintenance: in maintenance: disk");
    check(&[(0, maintenance(Some(at(10)))), (1, success())], 9, "Maintenance: in maintenance: disk");
    check(&[(0, maintenance(Some(at(10)))), (1, success())], 10, "Available: executed successfully");
    check(&[(0, maintenance(None)), (1, StatusEvent::ForcedAvailable)], 2, "Available: never run");
}

#[test]
fn a_tool_that_never_ran_can_be_set_to_every_word() {
    let set_to = |status| [(0, StatusEvent::from_operator(status, None, None))];
    check(&set_to(ToolStatus::Failed), 299, "Failed: set to failed by an operator");
    check(&set_to(ToolStatus::Failed), 300, "Available: on probation");
    check(&[(0, StatusEvent::from_operator(ToolStatus::Failed, None, Some(at(9))))], 9, "Available: on probation");
    check(&set_to(ToolStatus::Maintenance), 1, "Maintenance: in maintenance");
    check(&set_to(ToolStatus::Unavailable), 1, "Unavailable: set to unavailable by an operator");
    check(&set_to(ToolStatus::Available), 1, "Available: never run");
}

#[test]
fn clearing_by_hand_keeps_what_is_known_and_a_reset_forgets_it() {
    check(&append_events(three_failures_at(0), [(1, StatusEvent::ForcedAvailable)]), 2, "Available: available again");
    check(&append_events(three_failures_at(0), [(1, StatusEvent::Reset)]), 2, "Available: reset, not run since");
    check(
        &append_events(three_failures_at(0), [(1, StatusEvent::ForcedAvailable), (2, failure())]),
        2,
        "Available: the last call failed",
    );
    let settings = StatusSettings::default();
    let before = apply_all(&settings, &[(0, failure()), (1, failure())]);
    let running = StatusEvent::CallEnded {
        signal: HealthSignal::Failure { kind: ErrorKind::Crashed, text: String::new() },
        epoch: Some(before.epoch),
    };
    let after = apply(&apply(&before, &StatusEvent::Reset, &settings, at(2), 0.0), &running, &settings, at(3), 0.0);
    assert_eq!(after.consecutive_failures, 0, "a call from before the reset does not count after it");
}

#[test]
fn a_cool_down_ended_by_hand_does_not_come_back_with_the_clock() {
    let ended = append_events(three_failures_at(0), [(100, StatusEvent::CoolDownEnded)]);
    for second in [-1000, 50, 99, 100, 101] {
        check(&ended, second, "Available: on probation");
    }
    check(&[(0, StatusEvent::CoolDownEnded)], 1, "Available: never run");
}

#[test]
fn a_health_check_brings_a_tool_back_unless_an_operator_failed_it() {
    check(&append_events(three_failures_at(0), [(10, StatusEvent::Healthy)]), 10, "Available: available again");
    let forced_failed = StatusEvent::from_operator(ToolStatus::Failed, None, None);
    check(&[(0, forced_failed), (10, StatusEvent::Healthy)], 10, "Failed: set to failed by an operator");
}

#[test]
fn with_counting_off_nothing_counts_and_a_success_still_ends_a_row() {
    let off = StatusSettings { enabled: false, ..StatusSettings::default() };
    let record = apply_all(&off, &[(0, failure()), (1, failure()), (2, failure()), (3, failure())]);
    assert_eq!((record.consecutive_failures, &record.breaker), (0, &Breaker::Closed));
    assert_eq!(record.last_failure.as_ref().map(|failure| failure.at), Some(at(3)));
    let on = StatusSettings::default();
    let two = apply_all(&on, &[(0, failure()), (1, failure())]);
    assert_eq!(apply(&two, &success(), &off, at(2), 0.0).consecutive_failures, 0);
    let open = apply_all(&on, &three_failures_at(0));
    assert_eq!(apply(&open, &success(), &off, at(400), 0.0).breaker, open.breaker);
}

#[test]
fn too_many_failures_in_the_window_open_the_breaker() {
    let window = FailureWindow { failure_rate: 0.5, window: Duration::from_secs(100), minimum_calls: 4 };
    let settings = StatusSettings { failure_window: Some(window), ..StatusSettings::default() };
    let events = [(0, success()), (1, failure()), (2, success()), (3, failure())];
    let record = apply_all(&settings, &events);
    assert_eq!(describe_status(&record, &settings, 4), "Failed: 2 of the last 4 calls failed");
    let cleared = [(0, success()), (1, failure()), (2, success()), (3, StatusEvent::ForcedAvailable), (4, failure())];
    assert_eq!(describe_status(&apply_all(&settings, &cleared), &settings, 5), "Available: the last call failed");
    let spread = [(0, success()), (1, failure()), (200, success()), (201, failure())];
    assert_eq!(describe_status(&apply_all(&settings, &spread), &settings, 202), "Available: the last call failed");
}

#[test]
fn a_clock_that_jumps_never_wedges_a_failed_tool() {
    check(&three_failures_at(3600), 0, "Available: on probation");
    check(&three_failures_at(0), 31_536_000, "Available: on probation");
    let settings = StatusSettings::default();
    let id = CallId::mint(at(0));
    let probed = apply_all(
        &settings,
        &append_events(three_failures_at(0), [(300, StatusEvent::ProbeTaken { id, lease: Duration::from_secs(30) })]),
    );
    let success = StatusEvent::CallEnded { signal: HealthSignal::Success, epoch: Some(probed.epoch) };
    assert_eq!(apply(&probed, &success, &settings, at(100), 0.0).breaker, Breaker::Closed, "the probe's result counts");
}

#[test]
fn a_long_operators_line_is_cut_and_no_change_is_no_update() {
    let long = call_ended(HealthSignal::Failure { kind: ErrorKind::Crashed, text: "ü".repeat(9_999) });
    let record = apply_all(&StatusSettings::default(), &[(5, long), (9, call_ended(HealthSignal::Uncounted))]);
    assert_eq!(record.last_failure.map(|failure| failure.text.chars().count()), Some(500));
    assert_eq!(record.updated, Some(at(5)));
}

#[test]
fn a_restored_record_counts_from_here_and_holds_no_permit_of_another_life() {
    let (settings, now) = (StatusSettings::default(), Timestamp::from_millis(1_000));
    let id = CallId::mint(now);
    let breaker = Breaker::Open {
        since: now,
        until: now,
        openings: 2,
        cause: BreakerCause::InARow,
        probe: Some(ProbeLease { id, taken: now, lease_until: now }),
    };
    let saved = StatusRecord { breaker, epoch: 7, consecutive_failures: 3, ..StatusRecord::default() };
    let before = StatusRecord { epoch: 40, consecutive_failures: 1, ..StatusRecord::default() };
    let after = apply(&before, &StatusEvent::Restored(Box::new(saved)), &settings, now, 0.0);
    assert_eq!((after.epoch, after.consecutive_failures), (41, 3));
    assert!(!after.is_probe_held_by(id) && after.breaker.is_on_probation(now));
    let hostile = StatusRecord { epoch: u64::MAX, ..StatusRecord::default() };
    let after = apply(&before, &StatusEvent::Restored(Box::new(hostile)), &settings, now, 0.0);
    assert_eq!(after.epoch, 41, "a call of epoch 0 that still runs must not count");
}
