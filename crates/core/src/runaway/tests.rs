//! Limits of repeated calls, and counting of repeated mistakes.

use std::time::Duration;

use super::*;
use toolhub_types::timestamp::Timestamp;

fn run() -> RunId {
    RunId::mint(Timestamp::from_millis(1))
}

fn guard(same_call: u32, calls: u32) -> (RunawayGuard, Instant) {
    (RunawayGuard::new(RunLimits { same_call, calls }), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn the_same_call_is_refused_when_it_was_made_often_enough() {
    let ((guard, now), run) = (guard(3, 0), run());
    for _ in 0..3 {
        assert_eq!(guard.count_call(run, "find", "a", now), Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(guard.count_call(run, "find", "a", now), Err(RunawayError::SameCall { times: 3 }));
    }
    assert_eq!(guard.count_call(run, "find", "b", now), Ok(()));
    assert_eq!(guard.count_call(run, "found", "a", now), Ok(()));
    assert_eq!(guard.count_call(self::run(), "find", "a", now), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_run_may_make_only_so_many_calls_and_refused_ones_do_not_count() {
    let ((guard, now), run) = (guard(1, 3), run());
    assert_eq!(guard.count_call(run, "find", "a", now), Ok(()));
    for _ in 0..5 {
        assert_eq!(guard.count_call(run, "find", "a", now), Err(RunawayError::SameCall { times: 1 }));
    }
    assert_eq!(guard.count_call(run, "find", "b", now), Ok(()));
    assert_eq!(guard.count_call(run, "find", "c", now), Ok(()));
    assert_eq!(guard.count_call(run, "find", "d", now), Err(RunawayError::TooMany { calls: 3 }));
    assert_eq!(guard.count_call(run, "find", "a", now), Err(RunawayError::TooMany { calls: 3 }));
}

#[tokio::test(start_paused = true)]
async fn nought_means_no_limit_and_memory_stays_bounded_all_the_same() {
    let ((guard, now), run) = (guard(0, 0), run());
    for _ in 0..1_000 {
        assert_eq!(guard.count_call(run, "find", "a", now), Ok(()));
    }
    let (guard, now) = self::guard(2, 0);
    for arguments in 0..5_000 {
        assert_eq!(guard.count_call(run, "find", &arguments.to_string(), now), Ok(()));
    }
    assert!(guard.runs.lock().unwrap().touch(run, now).repeats.0.len() <= MAX_DISTINCT_CALLS);
    // A loop is refused however long the run was before.
    let refused = (0..3).any(|_| guard.count_call(run, "find", "again", now).is_err());
    assert!(refused);
}

#[tokio::test(start_paused = true)]
async fn a_run_not_heard_of_for_an_hour_begins_anew() {
    let ((guard, now), run) = (guard(1, 0), run());
    let hour = Duration::from_secs(3600);
    assert_eq!(guard.count_call(run, "find", "a", now), Ok(()));
    assert!(guard.count_call(run, "find", "a", now + hour / 2).is_err());
    assert_eq!(guard.count_call(run, "find", "a", now + hour / 2 + hour), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn many_callers_at_once_get_no_more_than_the_limit() {
    let ((guard, now), run) = (guard(8, 0), run());
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..8).filter(|_| guard.count_call(run, "find", "a", now).is_ok()).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 8);
}

#[tokio::test(start_paused = true)]
async fn the_same_mistake_is_counted_for_each_run_or_thread_alone() {
    let (guard, now) = guard(0, 0);
    let thread = |tenant: &str| MistakeScope::Thread(Tenant::new(tenant).unwrap(), ThreadId::new("t").unwrap());
    assert_eq!(guard.count_mistake(thread("a"), "find", "x", now), 1);
    assert_eq!(guard.count_mistake(thread("a"), "find", "x", now), 2);
    assert_eq!(guard.count_mistake(thread("a"), "find", "y", now), 1);
    assert_eq!(guard.count_mistake(thread("a"), "seek", "x", now), 1);
    assert_eq!(guard.count_mistake(thread("b"), "find", "x", now), 1);
    assert_eq!(guard.count_mistake(MistakeScope::Run(run()), "find", "x", now), 1);
    assert_eq!(guard.count_mistake(thread("a"), "find", "x", now), 3);
    assert_eq!(guard.count_mistake(thread("a"), "find", "x", now + Duration::from_secs(3600)), 1);
}

#[test]
fn from_the_third_time_on_a_model_is_told_to_stop() {
    assert_eq!((mistake_text(1), mistake_text(2)), (None, None));
    let cases = [(3, "third"), (4, "4th"), (11, "11th"), (21, "21st"), (22, "22nd"), (23, "23rd"), (113, "113th")];
    for (times, which) in cases {
        let text = mistake_text(times).unwrap();
        assert!(
            text.starts_with(&format!("This is the {which} time with the same invalid arguments. Stop ")),
            "{text}"
        );
    }
}

#[test]
fn a_refusal_tells_the_model_what_to_do_instead() {
    assert_eq!(
        RunawayError::SameCall { times: 8 }.model_text("find"),
        "You have called `find` with the same arguments 8 times in this run. Stop repeating it; use the earlier result \
         or do something else."
    );
    assert!(
        RunawayError::TooMany { calls: 500 }.model_text("find").starts_with("You have made 500 tool calls in this run")
    );
    assert_eq!(RunawayError::TooMany { calls: 500 }.to_string(), "the run reached its limit of 500 calls");
    assert_eq!(serde_json::to_value(RunLimits::default()).unwrap(), serde_json::json!({"sameCall": 8, "calls": 500}));
}
