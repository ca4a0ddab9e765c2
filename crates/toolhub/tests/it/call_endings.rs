//! Exactly one outcome for every call, however it ends, and no leaks.

use std::{
    future::IntoFuture,
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::poll;
use tokio_util::sync::CancellationToken;
use toolhub::{
    BusinessStateConfig, Status,
    backend::Memory,
    prelude::*,
    status::StatusSettings,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

use crate::{alloc, faulty_store::FaultyStore, shop_tools::add_to_cart};

const SECOND: Duration = Duration::from_secs(1);

/// A tool with this behaviour, for both places a call may run: the caller's task (read-only) and its own task.
async fn inline_and_spawned_hubs(steps: impl Fn() -> Vec<ScriptStep>) -> [ToolHub; 2] {
    let hub = async |read_only: bool| {
        let (tool, _) = scripted("it", steps());
        let tool = tool.timeout(10 * SECOND);
        let tool = if read_only { tool.read_only() } else { tool };
        ToolHub::builder().clock(TestClock::new()).tool(tool).build().await.unwrap()
    };
    [hub(true).await, hub(false).await]
}

pub(crate) fn silence_scripted_panics() {
    // The panics of scripted tools are expected; their backtraces would only hide real ones.
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let expected = info.payload().downcast_ref::<String>().is_some_and(|text| text.contains("scripted"));
            if !expected {
                usual(info);
            }
        }));
    });
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_failure_of_the_tool_and_of_nobody_else() {
    silence_scripted_panics();
    for hub in
        inline_and_spawned_hubs(|| vec![ScriptStep::Panic("scripted".into()), ScriptStep::Return(json!(1))]).await
    {
        let mut recorder = EventRecorder::new(&hub);
        let outcome = hub.call("it", json!({})).await;
        let text = outcome.assert_error(ErrorKind::Crashed);
        assert!(!text.contains("scripted"), "the panic message is not for the model: {text}");
        assert_eq!(outcome.error.as_ref().unwrap().operator, "it panicked: scripted");
        assert_eq!(recorder.end_count(outcome.id), 1);
        hub.call("it", json!({})).await.assert_success();
        assert_eq!(hub.running_calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_stopped_when_its_time_is_up() {
    for (hub, effect) in
        inline_and_spawned_hubs(|| vec![ScriptStep::Hang]).await.into_iter().zip([Effect::None, Effect::Unknown])
    {
        let mut recorder = EventRecorder::new(&hub);
        let outcome = hub.call("it", json!({})).await;
        outcome.assert_effect(effect).assert_error(ErrorKind::Timeout);
        assert_eq!((outcome.duration, outcome.status), (10 * SECOND, Status::Error));
        assert_eq!(recorder.end_count(outcome.id), 1);
        assert_eq!(hub.running_calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_as_cancelled_before_during_and_keeps_its_result_after() {
    for hub in inline_and_spawned_hubs(|| vec![ScriptStep::Wait(SECOND), ScriptStep::Return(json!("made it"))]).await {
        let mut recorder = EventRecorder::new(&hub);

        let before = CancellationToken::new();
        before.cancel();
        let outcome = hub.call("it", json!({})).cancel_on(&before).await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::Cancelled);
        assert_eq!((outcome.status, outcome.attempts), (Status::Cancelled, 0));
        assert_eq!(recorder.end_count(outcome.id), 1);

        let after = CancellationToken::new();
        let outcome = hub.call("it", json!({})).cancel_on(&after).await;
        after.cancel();
        assert_eq!(outcome.assert_success(), &json!("made it"));
        assert_eq!(recorder.end_count(outcome.id), 1);
    }
    for hub in inline_and_spawned_hubs(|| vec![ScriptStep::Hang]).await {
        let mut recorder = EventRecorder::new(&hub);
        let during = CancellationToken::new();
        let call = hub.call("it", json!({})).cancel_on(&during);
        let stop = async {
            tokio::time::sleep(SECOND).await;
            during.cancel();
        };
        let (outcome, ()) = tokio::join!(call.into_future(), stop);
        outcome.assert_error(ErrorKind::Cancelled);
        assert_eq!((outcome.status, outcome.duration), (Status::Cancelled, SECOND));
        assert_eq!(recorder.end_count(outcome.id), 1);
        assert_eq!(hub.running_calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_signal_is_never_given_by_a_call() {
    for hub in inline_and_spawned_hubs(|| vec![ScriptStep::Return(json!(1)), ScriptStep::Hang]).await {
        let signal = CancellationToken::new();
        hub.call("it", json!({})).cancel_on(&signal).await.assert_success();
        hub.call("it", json!({})).cancel_on(&signal).await.assert_error(ErrorKind::Timeout);
        drop(hub.call("it", json!({})).cancel_on(&signal).start());
        assert!(!signal.is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_call_can_be_cancelled_by_its_handle_or_by_its_id() {
    let [_, hub] = inline_and_spawned_hubs(|| vec![ScriptStep::Hang, ScriptStep::Hang]).await;
    let by_handle = hub.call("it", json!({})).start();
    by_handle.cancel();
    assert_eq!(by_handle.await.status, Status::Cancelled);
    let by_id = hub.call("it", json!({})).start();
    tokio::task::yield_now().await;
    let (id, tenant) = (by_id.id(), toolhub::ids::Tenant::default());
    let foreign = toolhub::ids::Tenant::new("foreign").unwrap();
    assert_eq!(hub.cancel_call(&foreign, id).await, Ok(toolhub::Cancellation::NotFound));
    assert_eq!(hub.cancel_call(&tenant, id).await, Ok(toolhub::Cancellation::Requested));
    assert_eq!(by_id.await.status, Status::Cancelled);
    assert_eq!(hub.cancel_call(&tenant, id).await, Ok(toolhub::Cancellation::AlreadyEnded(Status::Cancelled)));
    assert_eq!(hub.cancel_call(&foreign, id).await, Ok(toolhub::Cancellation::NotFound));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_cancels_unless_the_call_is_keyed_or_detached() {
    let ends = async |prepare: fn(toolhub::CallRequest<'_>) -> toolhub::CallRequest<'_>| {
        let [_, hub] = inline_and_spawned_hubs(|| vec![ScriptStep::Wait(SECOND), ScriptStep::Return(json!(1))]).await;
        let running = prepare(hub.call("it", json!({}))).start();
        let id = running.id();
        tokio::task::yield_now().await;
        drop(running);
        tokio::time::sleep(2 * SECOND).await;
        hub.call_record(&toolhub::ids::Tenant::default(), id).await.unwrap().unwrap().status
    };
    assert_eq!(ends(|call| call).await, Status::Cancelled);
    assert_eq!(ends(|call| { call.detached() }).await, Status::Success);
    assert_eq!(ends(|call| call.idempotency_key("k")).await, Status::Success);
    let [_, hub] = inline_and_spawned_hubs(|| vec![ScriptStep::Wait(SECOND)]).await;
    let call = hub.call("it", json!({})).detached();
    let id = call.id();
    let mut awaited = call.into_future();
    assert!(poll!(&mut awaited).is_pending());
    drop(awaited);
    tokio::time::sleep(2 * SECOND).await;
    let record = hub.call_record(&toolhub::ids::Tenant::default(), id).await.unwrap().unwrap();
    assert_eq!(record.status, Status::Success, "also when it was awaited");
}

/// Polls a call `polls` times, then drops it.
async fn drop_after_polls(hub: &ToolHub, polls: usize) -> (toolhub::ids::CallId, bool) {
    let call = hub.call("it", json!({}));
    let id = call.id();
    let mut future = call.into_future();
    for _ in 0..polls {
        if poll!(&mut future).is_ready() {
            return (id, true);
        }
        // Lets timers and tasks advance one step.
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
    }
    (id, false)
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_at_any_await_point_leaves_one_outcome_and_nothing_else() {
    let pause = || ScriptStep::Wait(Duration::from_millis(1));
    let steps =
        move || vec![pause(), ScriptStep::Progress("on".into()), pause(), pause(), ScriptStep::Return(json!(1))];
    for read_only in [true, false] {
        let mut finished = false;
        for polls in 0..40 {
            let (tool, script) = scripted("it", steps());
            let tool = if read_only { tool.read_only() } else { tool };
            let hub = ToolHub::builder().clock(TestClock::new()).tool(tool).build().await.unwrap();
            let mut recorder = EventRecorder::new(&hub);
            let (id, done) = drop_after_polls(&hub, polls).await;
            tokio::time::sleep(SECOND).await;
            let started = !script.recorded_arguments().is_empty() || polls > 0;
            assert_eq!(
                recorder.end_count(id),
                usize::from(started),
                "read-only {read_only}, dropped after {polls} polls"
            );
            assert_eq!(hub.running_calls(), 0);
            if let Some(record) = hub.call_record(&toolhub::ids::Tenant::default(), id).await.unwrap() {
                assert!(record.outcome.is_some(), "an open call was never closed");
            }
            finished |= done;
            if done {
                break;
            }
        }
        assert!(finished, "the last case must be a call that was not dropped");
    }
}

#[test]
fn thousands_of_calls_of_every_ending_leak_neither_memory_nor_tasks() {
    silence_scripted_panics();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Memory::new());
        let clock = TestClock::new();
        let (reads, read_script) = scripted("reads", []);
        let (writes, write_script) = scripted("writes", []);
        let hub = ToolHub::builder()
            .shared_store(store.clone())
            .clock(clock.clone())
            .tool(reads.read_only().timeout(SECOND))
            .tool(writes.timeout(SECOND))
            .tool(tool("add_to_cart", add_to_cart))
            // The tools always fail; they are called nevertheless.
            .status(StatusSettings { enabled: false, ..StatusSettings::default() })
            .call_retention(Duration::from_secs(60))
            // The history of a state is bounded, so it is not a leak.
            .business_state(BusinessStateConfig { max_history_size: 20, ..BusinessStateConfig::default() })
            .build()
            .await
            .unwrap();
        let round = async |times: usize| {
            for _ in 0..times {
                for (name, script) in [("reads", &read_script), ("writes", &write_script)] {
                    for step in [
                        ScriptStep::Return(json!({"some": "value"})),
                        ScriptStep::Panic("scripted".into()),
                        ScriptStep::Fail(ToolError::new("no")),
                        ScriptStep::Hang,
                    ] {
                        script.push_step(step);
                        hub.call(name, json!({"x": 1})).thread("t1").await;
                    }
                    script.push_step(ScriptStep::Hang);
                    let mut dropped = hub.call(name, json!({})).into_future();
                    let _ = poll!(&mut dropped);
                    // The call's own task must have started, or the call is refused before it runs.
                    tokio::task::yield_now().await;
                    drop(dropped);
                    tokio::time::sleep(SECOND).await;
                }
            }
            for n in 0..times {
                let item = json!({"sku": "poison", "qty": n + 1});
                let request = hub.call("add_to_cart", item).thread("t1").idempotency_key(format!("k{n}"));
                request.await;
            }
            // Records and keys expire and are swept; what remains was leaked.
            tokio::time::sleep(Duration::from_secs(26 * 3600)).await;
            read_script.clear();
            write_script.clear();
        };
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        // The first round gives maps their capacity.
        round(500).await;
        // A map that fills up by chance grows once, a leak grows in every round.
        let mut growth = Vec::new();
        while growth.last().is_none_or(|bytes| *bytes >= 5_500) {
            assert!(growth.len() < 4, "{growth:?} bytes leaked by 5,500 calls each: a byte or more per call");
            let (bytes, alive) = (alloc::allocated_bytes(), tasks());
            round(500).await;
            assert_eq!(tasks(), alive, "tasks were leaked");
            assert_eq!((hub.running_calls(), hub.stuck_calls()), (0, 0));
            growth.push(alloc::allocated_bytes() - bytes);
        }
    });
}

#[tokio::test]
async fn a_blocking_function_gives_its_result_and_its_panic_is_caught() {
    silence_scripted_panics();
    #[derive(Deserialize, JsonSchema)]
    struct Work {
        panics: bool,
    }
    fn work(work: Work) -> Result<&'static str, ToolError> {
        assert!(!work.panics, "scripted {}", 1);
        Ok("done")
    }
    let hub = ToolHub::builder().tool(blocking("work", work)).build().await.unwrap();
    assert_eq!(hub.call("work", json!({"panics": false})).await.assert_success(), &json!("done"));
    hub.call("work", json!({"panics": true})).await.assert_error(ErrorKind::Crashed);
    assert_eq!(hub.stuck_calls(), 0);
}

#[tokio::test]
async fn a_blocking_function_past_its_time_is_stuck_until_it_returns_and_keeps_its_place() {
    let go = Arc::new(AtomicBool::new(false));
    let saw_cancel = Arc::new(AtomicBool::new(false));
    let (may_go, cancel_seen) = (go.clone(), saw_cancel.clone());
    let work = move |_: NoArguments, cx: CallContext| -> Result<(), ToolError> {
        while !may_go.load(Ordering::Acquire) {
            cancel_seen.fetch_or(cx.is_cancelled(), Ordering::AcqRel);
            std::thread::yield_now();
        }
        Ok(())
    };
    let hub = ToolHub::builder()
        .max_blocking_threads(1)
        .tool(blocking("work", work).timeout(Duration::from_millis(50)))
        .build()
        .await
        .unwrap();
    hub.call("work", json!({})).await.assert_effect(Effect::Unknown).assert_error(ErrorKind::Timeout);
    assert_eq!(hub.stuck_calls(), 1);
    let second = hub.call("work", json!({})).await;
    second.assert_effect(Effect::None).assert_error(ErrorKind::Overloaded);
    while !saw_cancel.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    go.store(true, Ordering::Release);
    while hub.stuck_calls() > 0 {
        tokio::task::yield_now().await;
    }
    hub.call("work", json!({})).await.assert_success();
}

#[test]
fn a_runtime_that_stops_leaves_its_callers_with_an_outcome() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let (tool, _) = scripted("it", [ScriptStep::Hang]);
    let running = other.block_on(async {
        let hub = ToolHub::builder().tool(tool).build().await.unwrap();
        hub.call("it", json!({})).start()
    });
    other.shutdown_timeout(SECOND);
    let outcome = futures_util::FutureExt::now_or_never(running.into_future()).expect("it does not wait forever");
    outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_lets_calls_finish_for_a_while_and_cancels_the_rest() {
    for (wait, status) in [(1, Status::Success), (60, Status::Cancelled)] {
        let (tool, _) = scripted("it", [ScriptStep::Wait(wait * SECOND)]);
        let hub = ToolHub::builder().tool(tool.timeout(100 * SECOND)).build().await.unwrap();
        let running = hub.call("it", json!({})).start();
        tokio::task::yield_now().await;
        hub.shutdown(5 * SECOND).await;
        assert_eq!(running.await.status, status);
    }
}

/// Panics while it is serialized, and while it is dropped, if armed.
#[derive(Default, Deserialize)]
struct PanickingState {
    armed: bool,
}
impl Serialize for PanickingState {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        assert!(!self.armed, "scripted {}", "while written");
        to.serialize_unit()
    }
}
impl ToolState for PanickingState {
    const NAME: &'static str = "grenade";
}
/// Panics when it is dropped.
struct PanicOnDrop;
impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("scripted {}", "while dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_any_piece_of_a_tool_still_closes_its_call() {
    silence_scripted_panics();
    async fn arm(_: NoArguments, mut grenade: State<PanickingState>) -> Result<(), ToolError> {
        grenade.armed = true;
        Ok(())
    }
    async fn hang(_: NoArguments) -> Result<(), ToolError> {
        let _bomb = PanicOnDrop;
        std::future::pending().await
    }
    async fn throw(_: NoArguments) -> Result<(), ToolError> {
        std::panic::panic_any(PanicOnDrop)
    }
    let hub = ToolHub::builder()
        .tool(tool("arm", arm))
        .tool(tool("hang", hang))
        .tool(tool("throw", throw))
        .build()
        .await
        .unwrap();
    for name in ["arm", "hang", "throw"] {
        let mut recorder = EventRecorder::new(&hub);
        let outcome = hub.call(name, json!({})).idempotency_key("k").await;
        outcome.assert_error(ErrorKind::Crashed);
        assert_eq!(recorder.end_count(outcome.id), 1, "{name}");
        let record = hub.call_record(&toolhub::ids::Tenant::default(), outcome.id).await.unwrap().unwrap();
        assert_eq!(record.status, Status::Error, "{name}");
        assert!(hub.call(name, json!({})).idempotency_key("k").await.replayed, "{name}");
    }
}

/// Takes too long before or after a call, and panics when it is dropped.
struct HangingHook {
    before: bool,
}
impl HangingHook {
    fn hang<'a, T: Send + 'a>(here: bool, otherwise: T) -> BoxFuture<'a, Result<T, ToolError>> {
        Box::pin(async move {
            if here {
                let _bomb = PanicOnDrop;
                std::future::pending::<()>().await;
            }
            Ok(otherwise)
        })
    }
}
impl Hook for HangingHook {
    fn before<'a>(&'a self, _: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        Self::hang(self.before, BeforeDecision::Pass)
    }
    fn after<'a>(
        &'a self,
        _: &'a HookedCall<'a>,
        _: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        Self::hang(!self.before, AfterDecision::Pass)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_when_it_is_dropped_still_fails_closed_and_ends_the_call() {
    silence_scripted_panics();
    for before in [true, false] {
        let (tool, script) = scripted("it", []);
        let hub = ToolHub::builder()
            .clock(TestClock::new())
            .tool(tool)
            .hook("*", HangingHook { before })
            .build()
            .await
            .unwrap();
        let outcome = hub.call("it", json!({})).idempotency_key("k").await;
        outcome.assert_error(ErrorKind::Forbidden);
        outcome.assert_effect(if before { Effect::None } else { Effect::Done });
        assert_eq!(script.recorded_arguments().len(), usize::from(!before));
        let record = hub.call_record(&toolhub::ids::Tenant::default(), outcome.id).await.unwrap();
        assert_eq!(record.map(|record| record.status), (!before).then_some(Status::Error), "before {before}");
        let stats = hub.tool_stats("it").unwrap();
        assert_eq!(if before { stats.refusals } else { stats.errors }, [("forbidden", 1)].into());
        let running = hub.call("it", json!({})).start();
        tokio::time::sleep(SECOND).await;
        running.cancel();
        let kind = if before { ErrorKind::Cancelled } else { ErrorKind::Forbidden };
        running.await.assert_error(kind);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_or_cancelled_at_any_await_point_of_a_slow_store_leaves_one_outcome() {
    #[derive(Default, Serialize, Deserialize)]
    struct Count(u32);
    impl ToolState for Count {
        const NAME: &'static str = "count";
    }
    async fn count(_: NoArguments, mut count: State<Count>) -> Result<String, ToolError> {
        count.0 += 1;
        tokio::task::yield_now().await;
        Ok("x".repeat(30_000))
    }
    let mut completed = 0;
    for (read_only, key, cancel) in (0..8).map(|n| (n & 1 > 0, n & 2 > 0, n & 4 > 0)) {
        for polls in 1..40 {
            let tool = if read_only { tool("count", count).read_only() } else { tool("count", count) };
            let hub = ToolHub::builder().store(FaultyStore::default()).tool(tool).build().await.unwrap();
            let mut recorder = EventRecorder::new(&hub);
            let signal = CancellationToken::new();
            let call = hub.call("count", json!({})).thread("t1").cancel_on(&signal);
            let call = if key { call.idempotency_key("k") } else { call };
            let id = call.id();
            let mut future = call.into_future();
            let mut seen = None;
            for _ in 0..polls {
                if let std::task::Poll::Ready(outcome) = poll!(&mut future) {
                    seen = Some(outcome);
                    break;
                }
                tokio::task::yield_now().await;
            }
            if cancel && seen.is_none() {
                signal.cancel();
                seen = Some(future.await);
            } else {
                drop(future);
            }
            tokio::time::sleep(SECOND).await;
            let place = format!("read-only {read_only}, key {key}, cancel {cancel}, {polls} polls");
            assert_eq!(recorder.end_count(id), 1, "{place}");
            assert_eq!(hub.running_calls(), 0, "{place}");
            let record = hub.call_record(&toolhub::ids::Tenant::default(), id).await.unwrap();
            let recorded = record.map(|record| record.outcome.expect("no record is left open"));
            if let (Some(seen), Some(recorded)) = (&seen, &recorded) {
                assert_eq!((seen.status, seen.effect), (recorded.status, recorded.effect), "{place}");
            }
            completed += usize::from(seen.is_some_and(|outcome| outcome.is_success()));
        }
    }
    assert!(completed > 50, "only {completed} calls completed; the sweep does not reach the end");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_or_is_gone_delays_an_outcome_but_never_prevents_it() {
    for hangs in [true, false] {
        let store = Arc::new(FaultyStore::default());
        let failing_store = store.clone();
        let break_store = move |_: NoArguments| {
            failing_store.hangs.store(hangs, Ordering::Release);
            failing_store.unavailable.store(!hangs, Ordering::Release);
            async { Ok::<_, ToolError>("paid") }
        };
        let hub = ToolHub::builder().shared_store(store.clone()).tool(tool("pay", break_store)).build().await.unwrap();
        let after = hub.call("pay", json!({})).await;
        after.assert_effect(Effect::Done).assert_error(ErrorKind::StoreUnavailable);
        assert_eq!(after.output, json!("paid"), "the result is returned even though it could not be recorded");
        assert!(!after.error.unwrap().retryable, "an executed call must not be repeated");
        let before = hub.call("pay", json!({})).await;
        before.assert_effect(Effect::None).assert_error(ErrorKind::StoreUnavailable);
        assert!(before.error.unwrap().retryable);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_while_it_is_opened_does_not_run() {
    let (tool, script) = scripted("it", []);
    let hub = ToolHub::builder().store(FaultyStore::default()).tool(tool).build().await.unwrap();
    let running = hub.call("it", json!({})).start();
    tokio::task::yield_now().await;
    running.cancel();
    running.await.assert_effect(Effect::None).assert_error(ErrorKind::Cancelled);
    assert!(script.recorded_arguments().is_empty());
}

#[test]
fn a_call_made_outside_the_runtime_runs_in_the_hubs_own() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let (tool, _) = scripted("it", [ScriptStep::Return(json!(1))]);
    let hub = runtime.block_on(ToolHub::builder().tool(tool).build()).unwrap();
    let running = hub.call("it", json!({})).start();
    assert_eq!(runtime.block_on(running.into_future()).assert_success(), &json!(1));
}

#[test]
fn a_runtime_that_stops_tells_listeners_what_it_tells_the_caller() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let (tool, _) = scripted("it", [ScriptStep::Progress("begun".into()), ScriptStep::Hang]);
    let (mut recorder, running) = other.block_on(async {
        let hub = ToolHub::builder().tool(tool).build().await.unwrap();
        let (recorder, mut running) = (EventRecorder::new(&hub), hub.call("it", json!({})).start());
        let started = futures_util::StreamExt::next(&mut Box::pin(running.progress())).await;
        assert!(started.is_some());
        (recorder, running)
    });
    other.shutdown_timeout(SECOND);
    let outcome = futures_util::FutureExt::now_or_never(running.into_future()).unwrap();
    let reported = recorder.events().iter().find_map(|event| match &event.kind {
        toolhub::events::EventKind::ExecutionFailed { status, effect, error, .. } => Some((*status, *effect, *error)),
        _ => None,
    });
    assert_eq!(reported, Some((outcome.status, outcome.effect, ErrorKind::Interrupted)));
}
