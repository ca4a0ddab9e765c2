//! Which messages a sequence of changes leads to.

use super::*;
use crate::alerts::testing::Silent;

const MINUTE: i64 = 60;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn signal(condition: Condition, seconds: i64, state: &str) -> Signal {
    let kind = match (condition.row().kind, state) {
        (ConditionKind::Instant, _) => SignalKind::Happened,
        (_, "available") => SignalKind::Ended,
        _ => SignalKind::Active,
    };
    Signal { kind, state: state.into(), ..Signal::active(condition, "x", at(seconds), state) }
}

/// The messages, as phase, second and number of changes, after these changes until `end`.
fn messages(
    target: &AlertTarget,
    condition: Condition,
    changes: &[(i64, &str)],
    end: i64,
) -> Vec<(AlertPhase, i64, u64)> {
    let mut record = AlertRecord::new(&signal(condition, 0, "failed"));
    let (mut sent, mut ids) = (Vec::new(), Vec::new());
    for second in 0..=end {
        for (_, state) in changes.iter().filter(|(at, _)| *at == second) {
            record.observe(&signal(condition, second, state));
        }
        record.settle(target, at(second));
        if let Some(due) = record.due(target).filter(|due| due.at <= at(second)) {
            let alert = record.report(due.phase, None, at(second));
            sent.push((due.phase, second, alert.count));
            ids.push(alert.id);
        }
    }
    assert!(ids.iter().all(|id| id.starts_with("alert_")), "{ids:?}");
    sent
}

fn target() -> AlertTarget {
    AlertTarget::new("ops", Silent)
}

#[test]
fn a_begin_a_change_and_an_end_are_told_and_a_long_alert_again() {
    let changes = [(10, "failed"), (10 * MINUTE, "available")];
    let sent = messages(&target(), Condition::ToolStatus, &changes, 3600);
    assert_eq!(sent, [(AlertPhase::Firing, 10, 1), (AlertPhase::Resolved, 600, 1)]);
    let changes = [(10, "failed"), (20, "maintenance")];
    let sent = messages(&target().repeat(Duration::from_secs(3600)), Condition::ToolStatus, &changes, 8000);
    let expected = [
        (AlertPhase::Firing, 10, 1),
        (AlertPhase::Changed, 20, 1),
        (AlertPhase::Repeated, 3620, 1),
        (AlertPhase::Repeated, 7220, 1),
    ];
    assert_eq!(sent, expected);
    let sent = messages(&target(), Condition::ToolWithheld, &changes, 3600);
    assert_eq!(sent, [(AlertPhase::Firing, 10, 1)], "only begin and end");
}

#[test]
fn what_ends_within_its_hold_is_not_told() {
    let short = [(10, "failed"), (40, "available")];
    assert_eq!(messages(&target(), Condition::ServerDown, &short, 600), []);
    let long = [(10, "failed"), (90, "available")];
    let sent = messages(&target(), Condition::ServerDown, &long, 600);
    assert_eq!(sent, [(AlertPhase::Firing, 70, 1), (AlertPhase::Resolved, 90, 1)]);
    let sent = messages(&target().resolved(false), Condition::ServerDown, &long, 600);
    assert_eq!(sent, [(AlertPhase::Firing, 70, 1)]);
    let own = target().hold(Duration::from_secs(20));
    assert_eq!(messages(&own, Condition::ServerDown, &short, 600)[0], (AlertPhase::Firing, 30, 1));
}

#[test]
fn fifty_flaps_are_three_messages_however_fast_they_are() {
    for period in [2, 30, 60, 300, 600] {
        let changes: Vec<_> =
            (0..100).map(|change| (change * period, if change % 2 == 0 { "failed" } else { "available" })).collect();
        let sent = messages(&target(), Condition::ToolStatus, &changes, 100 * period + 4000);
        assert!(sent.len() <= 3, "a change each {period} s: {sent:?}");
        assert_eq!(sent.last().unwrap().0, AlertPhase::Flapping);
    }
}

#[test]
fn a_tool_that_stays_down_after_flapping_is_told() {
    let flaps = (0..7).map(|change| (change * 20, if change % 2 == 0 { "failed" } else { "available" }));
    let sent = messages(&target(), Condition::ToolStatus, &flaps.collect::<Vec<_>>(), 8000);
    let phases: Vec<_> = sent.iter().map(|(phase, ..)| *phase).collect();
    assert_eq!(phases, [AlertPhase::Firing, AlertPhase::Resolved, AlertPhase::Flapping, AlertPhase::Firing]);
}

#[test]
fn what_has_no_end_is_counted_for_a_minute() {
    let failures: Vec<_> = (0..50).map(|second| (second, "error")).collect();
    let sent = messages(&target(), Condition::RunFailed, &failures, 600);
    assert_eq!(sent, [(AlertPhase::Happened, 0, 1), (AlertPhase::Happened, 60, 49)]);
}

#[test]
fn an_alert_has_one_id_from_begin_to_end_and_the_next_one_another() {
    let mut record = AlertRecord::new(&signal(Condition::ToolStatus, 0, "failed"));
    let mut ids = Vec::new();
    for (second, state) in [(0, "failed"), (10, "maintenance"), (20, "available"), (9000, "failed")] {
        record.observe(&signal(Condition::ToolStatus, second, state));
        let phase = record.due(&target()).unwrap().phase;
        ids.push(record.report(phase, None, at(second)).id);
    }
    assert_eq!((&ids[0], &ids[1]), (&ids[1], &ids[2]));
    assert_ne!(ids[2], ids[3]);
}

#[test]
fn an_older_version_is_ignored() {
    let mut record = AlertRecord::new(&signal(Condition::ToolStatus, 0, "failed"));
    let versioned = |version, state| Signal { version: Some(version), ..signal(Condition::ToolStatus, 0, state) };
    assert!(record.observe(&versioned(3, "failed")));
    assert!(!record.observe(&versioned(2, "available")));
    assert!(!record.observe(&versioned(3, "available")));
    assert!(record.is_active);
}
