//! Retries: when, how often, and what is never executed twice.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
    time::Duration,
};

use futures_util::poll;
use tokio_util::sync::CancellationToken;
use toolhub::{
    HubBuilder, HubChange, Retry, StatusScope,
    ids::{Tenant, ThreadId},
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, ScriptStep, ScriptedTool, TestClock, scripted},
};
use toolhub_testkit::soak;

use crate::gated_tool::{GatedTool, wait_until};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Waits of exactly one second, two, four.
fn retry_without_jitter() -> Retry {
    Retry { jitter: false, ..Retry::default() }
}

fn upstream_error() -> ToolError {
    ToolError::with_kind(ErrorKind::UpstreamError, "503")
}

fn fail() -> ScriptStep {
    ScriptStep::Fail(upstream_error())
}

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

async fn hub(steps: Vec<ScriptStep>, change: impl FnOnce(ToolBuilder) -> ToolBuilder) -> (ToolHub, ScriptedTool) {
    let (tool, script) = scripted("it", steps);
    (builder().tool(change(tool.retry(retry_without_jitter()))).build().await.unwrap(), script)
}

async fn call(hub: &ToolHub) -> Outcome {
    hub.call("it", json!({})).thread("t1").await
}

#[tokio::test(start_paused = true)]
async fn only_what_does_no_harm_twice_is_tried_again() {
    let check = async |change: fn(ToolBuilder) -> ToolBuilder, error: ToolError, attempts: u32| {
        let (hub, script) = hub(vec![ScriptStep::Fail(error.clone())], change).await;
        let outcome = call(&hub).await;
        let (retried, place) = (attempts > 1, format!("{error:?}"));
        assert_eq!((outcome.attempts, outcome.is_success()), (attempts, retried), "{place}");
        assert_eq!(script.recorded_arguments().len(), attempts as usize, "{place}");
        assert_eq!(outcome.duration, if retried { SECOND } else { Duration::ZERO }, "{place}");
    };
    let with_effect: fn(ToolBuilder) -> ToolBuilder = |tool| tool;
    check(ToolBuilder::read_only, upstream_error(), 2).await;
    check(ToolBuilder::idempotent, upstream_error(), 2).await;
    check(with_effect, upstream_error(), 1).await;
    check(with_effect, upstream_error().effect(Effect::None), 2).await;
    check(with_effect, upstream_error().effect(Effect::Unknown), 1).await;
    // And only transient failures.
    check(ToolBuilder::read_only, ToolError::new("no such file"), 1).await;
    check(ToolBuilder::read_only, ToolError::refused("no"), 1).await;
    check(ToolBuilder::read_only, ToolError::new("429").retryable(None), 2).await;
    check(with_effect, ToolError::refused("429").retryable(None), 2).await;
    check(ToolBuilder::read_only, ToolError::with_kind(ErrorKind::Overloaded, "busy"), 2).await;
    check(|tool| tool.read_only().no_retry(), upstream_error(), 1).await;
}

#[tokio::test(start_paused = true)]
async fn three_attempts_are_made_and_the_waits_double() {
    let (hub, script) = hub(vec![fail(); 10], ToolBuilder::read_only).await;
    let outcome = call(&hub).await;
    outcome.assert_error(ErrorKind::UpstreamError);
    assert_eq!((outcome.attempts, outcome.duration, script.recorded_arguments().len()), (3, 3 * SECOND, 3));
    let stats = hub.tool_stats("it").unwrap();
    assert_eq!((stats.calls, stats.retries, stats.in_flight), (1, 2, 0));
    assert_eq!(stats.errors, [("upstream_error", 1)].into());
}

#[tokio::test(start_paused = true)]
async fn three_failed_attempts_of_one_call_are_one_failure_of_the_tool() {
    let (hub, _) = hub(vec![fail(); 9], ToolBuilder::read_only).await;
    for failures in 1..=3 {
        call(&hub).await.assert_error(ErrorKind::UpstreamError);
        let info = hub.tool_status("it", StatusScope::Shared).await.unwrap();
        assert_eq!(info.consecutive_failures, failures);
        assert_eq!(info.status == ToolStatus::Failed, failures == 3);
    }
    let (hub, _) = self::hub(vec![fail(), fail(), ScriptStep::Return(json!(1))], ToolBuilder::read_only).await;
    call(&hub).await.assert_success();
    let info = hub.tool_status("it", StatusScope::Shared).await.unwrap();
    assert_eq!((info.consecutive_failures, info.last_failure_time), (0, None), "the call succeeded in the end");
}

#[tokio::test(start_paused = true)]
async fn chance_shortens_a_wait_to_any_part_of_it() {
    let (hub, _) = hub(Vec::new(), |tool| tool.read_only().retry(Retry { attempts: 2, ..Retry::default() })).await;
    let mut waits = Vec::new();
    for _ in 0..200 {
        // A new tool each time: a tool that always fails has a retry budget.
        let (tool, _) = scripted("it", [fail()]);
        hub.unregister("it").await;
        hub.register(tool.read_only().retry(Retry { attempts: 2, ..Retry::default() })).unwrap();
        let outcome = call(&hub).await;
        outcome.assert_success();
        waits.push(outcome.duration);
    }
    assert!(waits.iter().all(|wait| *wait <= SECOND + MILLISECOND), "{waits:?}");
    let quarters = |wait: &Duration| wait.as_millis().min(999) / 250;
    for quarter in 0..4 {
        let many = waits.iter().filter(|wait| quarters(wait) == quarter).count();
        // Fifty are expected; fewer than fifteen by chance happens once in a thousand million runs.
        assert!(many >= 15, "{many} of 200 waits lie in quarter {quarter}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_says_when_to_come_again_is_obeyed_where_that_helps() {
    let check = async |asks: Duration, attempts: u32, duration: Duration| {
        let error = upstream_error().retryable(Some(asks));
        let (hub, _) = hub(vec![ScriptStep::Fail(error)], |tool| tool.read_only().timeout(60 * SECOND)).await;
        let outcome = call(&hub).await;
        assert_eq!((outcome.attempts, outcome.duration), (attempts, duration), "{asks:?}");
        let retry_after = outcome.error.and_then(|error| error.retry_after);
        assert_eq!(retry_after, (attempts == 1).then_some(asks), "a call that is not retried carries the retry-after");
    };
    check(SECOND / 10, 2, SECOND).await;
    check(7 * SECOND, 2, 7 * SECOND).await;
    check(60 * SECOND, 1, Duration::ZERO).await;
    check(3600 * SECOND, 1, Duration::ZERO).await;
}

/// A tool that counts its live attempts, and hangs in the first ones.
fn hanging_tool(times: usize) -> (ToolBuilder, Arc<AtomicUsize>) {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let (alive, started) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = alive.clone();
    let work = move |_: NoArguments| {
        let (attempt, alive) = (started.fetch_add(1, SeqCst), alive.clone());
        async move {
            assert_eq!(alive.fetch_add(1, SeqCst), 0, "the previous attempt is still alive");
            let _alive = Alive(alive);
            if attempt < times { std::future::pending().await } else { Ok::<_, ToolError>(attempt) }
        }
    };
    (tool("it", work).retry(retry_without_jitter()), seen)
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_stopped_before_the_next_begins() {
    let (tool, alive) = hanging_tool(2);
    let hub = builder().tool(tool.read_only().attempt_timeout(5 * SECOND)).build().await.unwrap();
    let outcome = call(&hub).await;
    assert_eq!(outcome.assert_success(), &json!(2));
    assert_eq!((outcome.attempts, outcome.duration), (3, 13 * SECOND), "twice five seconds, and waits of one and two");
    assert_eq!(alive.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn one_deadline_is_for_all_attempts_and_waits() {
    // The tool's timeout, the caller's, and when the call ends after how many attempts. A wait that does not fit is not
    // begun.
    for (own, callers, attempts, duration) in [
        (30, None, 3, 18),
        (12, None, 2, 11),
        (8, None, 2, 8),
        (30, Some(8), 2, 8),
        (6, None, 1, 5),
        (5, Some(90), 1, 5),
        (3, None, 1, 3),
    ] {
        let (tool, _) = hanging_tool(9);
        let tool = tool.read_only().attempt_timeout(5 * SECOND).timeout(own * SECOND);
        let hub = builder().tool(tool).build().await.unwrap();
        let request = hub.call("it", json!({}));
        let outcome = callers.into_iter().fold(request, |request, time: u32| request.timeout(time * SECOND)).await;
        outcome.assert_error(ErrorKind::Timeout);
        assert_eq!((outcome.attempts, outcome.duration), (attempts, duration * SECOND), "{own} {callers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_time_for_each_attempt_a_timeout_is_final() {
    for steps in [vec![ScriptStep::Hang], vec![ScriptStep::Fail(ToolError::with_kind(ErrorKind::Timeout, "too slow"))]]
    {
        let (hub, script) = hub(steps, |tool| tool.read_only().timeout(5 * SECOND)).await;
        let outcome = call(&hub).await;
        outcome.assert_error(ErrorKind::Timeout);
        assert_eq!((outcome.attempts, script.recorded_arguments().len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_callers_own_signal_leaves_the_timeouts_as_they_are() {
    let signal = CancellationToken::new();
    let (tool, _) = hanging_tool(9);
    let tool = tool.read_only().attempt_timeout(5 * SECOND).timeout(12 * SECOND);
    let hub = builder().tool(tool).build().await.unwrap();
    let outcome = hub.call("it", json!({})).cancel_on(&signal).await;
    outcome.assert_error(ErrorKind::Timeout);
    assert_eq!((outcome.attempts, outcome.duration), (2, 11 * SECOND));
    assert!(!signal.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_attempts_ends_the_call_at_once() {
    for (read_only, effect) in [(true, Effect::None), (false, Effect::Unknown)] {
        let (hub, script) =
            hub(vec![fail(); 3], |tool| if read_only { tool.read_only() } else { tool.idempotent() }).await;
        let call = hub.call("it", json!({})).start();
        tokio::time::sleep(SECOND / 2).await;
        call.cancel();
        let outcome = call.await;
        outcome.assert_effect(effect).assert_error(ErrorKind::Cancelled);
        assert_eq!((outcome.duration, outcome.attempts, script.recorded_arguments().len()), (SECOND / 2, 1, 1));
    }
}

/// A tool that fails at its first attempt and then finds its only slot taken by another call.
async fn occupy_slot(change: impl FnOnce(ToolBuilder) -> ToolBuilder) -> (ToolHub, GatedTool, toolhub::CallHandle) {
    let (busy, failed) = (GatedTool::new(), Arc::new(AtomicBool::new(false)));
    let within = busy.clone();
    let work = move |_: NoArguments, cx: CallContext| {
        let (busy, first) = (within.clone(), !failed.swap(true, SeqCst));
        async move { if first { Err(upstream_error()) } else { busy.wait_at_gate(&cx).await } }
    };
    let tool = change(tool("it", work).read_only().max_concurrency(1).retry(retry_without_jitter()));
    let hub = builder().tool(tool).build().await.unwrap();
    let call = hub.call("it", json!({})).thread("t1").start();
    wait_until(|| hub.tool_stats("it").unwrap().in_flight == 0 && hub.running_calls() == 1).await;
    tokio::time::sleep(SECOND / 2).await;
    let other = hub.call("it", json!({})).thread("t2").start();
    wait_until(|| busy.running() == 1).await;
    // Neither awaited nor dropped: it stays in the slot.
    std::mem::forget(other);
    (hub, busy, call)
}

#[tokio::test(start_paused = true)]
async fn no_slot_is_held_between_attempts_and_the_next_one_waits_for_its_turn() {
    let (hub, busy, call) = occupy_slot(|tool| tool).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!((hub.queued_calls(), busy.started_threads()), (1, vec!["t2".to_owned()]));
    busy.release(2);
    let outcome = call.await;
    outcome.assert_success();
    assert_eq!((outcome.attempts, busy.max_running()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_slot_between_attempts_counts_against_the_deadline() {
    let (hub, _, call) = occupy_slot(|tool| tool.timeout(5 * SECOND).queue_timeout(60 * SECOND)).await;
    let began = tokio::time::Instant::now();
    let outcome = call.await;
    outcome.assert_error(ErrorKind::UpstreamError);
    assert_eq!((outcome.attempts, outcome.duration), (1, 5 * SECOND));
    assert_eq!((began.elapsed(), hub.queued_calls()), (5 * SECOND - SECOND / 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_next_attempt_waits_for_a_slot_is_a_cancel() {
    let (hub, _, call) = occupy_slot(|tool| tool).await;
    wait_until_queued(&hub).await;
    call.cancel();
    let outcome = call.await;
    outcome.assert_error(ErrorKind::Cancelled);
    assert_eq!((outcome.attempts, hub.queued_calls()), (1, 0));
}

async fn wait_until_queued(hub: &ToolHub) {
    while hub.queued_calls() == 0 {
        tokio::time::sleep(SECOND / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_attempt_may_have_done_is_not_forgotten() {
    let unknown = || ScriptStep::Fail(upstream_error());
    let none = || ScriptStep::Fail(upstream_error().effect(Effect::None));
    for (steps, effect) in [
        (vec![none(), none(), none()], Effect::None),
        (vec![unknown(), none(), none()], Effect::Unknown),
        (vec![none(), unknown(), none()], Effect::Unknown),
        (vec![unknown(), none(), ScriptStep::Return(json!(1))], Effect::Done),
    ] {
        let (hub, script) = hub(steps.clone(), ToolBuilder::idempotent).await;
        let outcome = call(&hub).await;
        assert_eq!((outcome.effect, script.recorded_arguments().len()), (effect, 3), "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_function_past_its_time_is_not_tried_again() {
    let (go, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (may_go, began) = (go.clone(), started.clone());
    let work = move |_: NoArguments| -> Result<(), ToolError> {
        began.fetch_add(1, SeqCst);
        while !may_go.load(Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    };
    let tool = blocking("it", work).read_only().attempt_timeout(SECOND).retry(retry_without_jitter());
    let hub = builder().tool(tool).build().await.unwrap();
    let mut call = hub.call("it", json!({})).into_future();
    assert!(poll!(&mut call).is_pending());
    wait_until(|| started.load(SeqCst) == 1).await;
    tokio::time::advance(SECOND).await;
    let outcome = call.await;
    outcome.assert_error(ErrorKind::Timeout);
    assert_eq!((outcome.attempts, started.load(SeqCst)), (1, 1));
    go.store(true, Release);
    wait_until(|| hub.stuck_calls() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_one_attempt() {
    let (hub, script) = hub(vec![fail(); 20], |tool| tool.read_only().no_retry()).await;
    for _ in 0..3 {
        call(&hub).await.assert_error(ErrorKind::UpstreamError);
    }
    // The same tool, now with retries: a probe of a broken tool is not retried.
    let (tool, fresh) = scripted("it", vec![fail(); 20]);
    hub.apply(HubChange::tools_only().put(tool.read_only().retry(retry_without_jitter()))).await.unwrap();
    tokio::time::sleep(300 * SECOND).await;
    let probe = call(&hub).await;
    probe.assert_error(ErrorKind::UpstreamError);
    assert_eq!((probe.attempts, fresh.recorded_arguments().len(), script.recorded_arguments().len()), (1, 1, 3));
}

#[derive(Default, Serialize, Deserialize)]
struct Count(u32);
impl ToolState for Count {
    const NAME: &'static str = "count";
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_attempt_did_to_the_state_is_not_committed_by_the_next() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let work = move |_: NoArguments, mut count: State<Count>| {
        let attempt = attempts.fetch_add(1, SeqCst);
        async move {
            count.0 += 1;
            if attempt % 3 < 2 { Err(upstream_error()) } else { Ok(count.0) }
        }
    };
    let hub = builder().tool(tool("it", work).idempotent().retry(retry_without_jitter())).build().await.unwrap();
    for expected in 1..=2 {
        let outcome = call(&hub).await;
        assert_eq!((outcome.assert_success(), outcome.attempts), (&json!(expected), 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_sees_a_fifth_more_than_its_calls() {
    let seconds = soak(10, 60);
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let work = move |_: NoArguments| {
        count.fetch_add(1, SeqCst);
        async { Err::<(), _>(upstream_error()) }
    };
    let hub = builder()
        .tool(tool("it", work).read_only())
        .status(StatusSettings { enabled: false, ..StatusSettings::default() })
        .build()
        .await
        .unwrap();
    let mut calls = Vec::new();
    for n in 0..seconds * 1_000_u32 {
        calls.extend((0..2).map(|_| hub.call("it", json!({})).thread(format!("t{}", n % 50)).start()));
        tokio::time::sleep(MILLISECOND).await;
    }
    let total = calls.len();
    let (mut attempts, mut explained) = (0, 0);
    for call in calls {
        let outcome = call.await;
        attempts += outcome.attempts as usize;
        explained += usize::from(outcome.error.is_some_and(|error| error.operator.contains("retry budget")));
    }
    assert!(explained * 10 >= total * 8, "{explained} of {total} calls say why they were not retried");
    let seen = seen.load(SeqCst);
    assert_eq!((seen, total), (attempts, seconds as usize * 2_000));
    assert!(seen * 10 <= total * 12, "{seen} attempts of {total} calls");
    assert!(seen * 10 >= total * 11, "{seen} attempts of {total} calls: the budget is not used");
    let stats = hub.tool_stats("it").unwrap();
    assert_eq!((stats.calls as usize, stats.retries as usize), (total, seen - total));
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    assert_eq!(
        hub.tool_status("it", StatusScope::Thread(&tenant, &thread)).await.unwrap().status,
        ToolStatus::Available
    );
}
