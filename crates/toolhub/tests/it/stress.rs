//! Thousands of calls that time out, are cancelled or dropped, with every policy on: nothing leaks.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::poll;
use tokio_util::sync::CancellationToken;
use toolhub::{
    AfterDecision, BeforeDecision, BoxFuture, Hook, HookedCall, HubBuilder, HubChange, RateLimit, Retry,
    ids::Tenant,
    prelude::*,
    status::StatusSettings,
    testing::{AssertOutcome, TestClock},
};
use toolhub_testkit::soak;

use crate::{
    alloc,
    gated_tool::{GatedTool, wait_until},
};

const SECOND: Duration = Duration::from_secs(1);
const SLOTS: usize = 8;

/// Yields before and after every call.
struct SlowHook;
impl Hook for SlowHook {
    fn before<'a>(&'a self, _: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(BeforeDecision::AddNote("looked at".into()))
        })
    }

    fn after<'a>(
        &'a self,
        _: &'a HookedCall<'a>,
        _: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(AfterDecision::Pass)
        })
    }
}

/// The behaviour of the tools: the first attempts fail or hang, and most calls never get further.
#[derive(Deserialize, JsonSchema)]
struct StressArguments {
    n: usize,
}

fn unreliable_tool(name: &str, started: &Arc<AtomicUsize>) -> ToolBuilder {
    let started = started.clone();
    let work = move |weather: StressArguments| {
        let turn = started.fetch_add(1, SeqCst);
        async move {
            match (turn + weather.n) % 4 {
                0 => std::future::pending().await,
                1 => return Err(ToolError::with_kind(ErrorKind::UpstreamError, "503").effect(Effect::None)),
                2 => tokio::time::sleep(SECOND / 10).await,
                _ => {}
            }
            Ok(())
        }
    };
    let retry = Retry { first: SECOND / 10, ..Retry::default() };
    tool(name, work)
        .timeout(2 * SECOND)
        .attempt_timeout(SECOND)
        .retry(retry)
        .max_concurrency(SLOTS)
        .queue_timeout(20 * SECOND)
        .rate_limit(RateLimit::per_second(1_000_000))
        .rate_limit(RateLimit::per_second(1_000_000).each_thread().wait(SECOND))
}

fn builder() -> HubBuilder {
    ToolHub::builder()
        .clock(TestClock::new())
        .hook("*", SlowHook)
        .max_concurrency(2 * SLOTS)
        .status(StatusSettings { enabled: false, ..StatusSettings::default() })
        .call_retention(60 * SECOND)
}

/// This many calls, some of them in batches, of which a third is dropped, a third cancelled and a third left alone, at
/// random times.
async fn run_stress(hub: &ToolHub, calls: usize, together: usize) {
    for at_once in (0..calls).collect::<Vec<_>>().chunks(together) {
        let (mut dropped, mut cancelled, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for n in at_once {
            let name = if n % 2 == 0 { "reads" } else { "writes" };
            let call = hub.call(name, json!({"n": n})).thread(format!("t{}", n % 7));
            match n % 3 {
                0 => {
                    let mut call = call.into_future();
                    let _ = poll!(&mut call);
                    dropped.push(call);
                }
                1 => {
                    let signal = CancellationToken::new();
                    cancelled.push((call.cancel_on(&signal).start(), signal));
                }
                _ => left.push(call.start()),
            }
        }
        for (at, (call, (_, signal))) in dropped.into_iter().zip(&cancelled).enumerate() {
            if at % 5 == 0 {
                tokio::time::sleep(SECOND / 7).await;
            }
            drop(call);
            signal.cancel();
        }
        for (call, signal) in cancelled {
            signal.cancel();
            call.await;
        }
        for call in left {
            call.await;
        }
    }
    wait_until(|| hub.running_calls() == 0 && hub.queued_calls() == 0).await;
}

#[test]
fn ten_thousand_calls_that_end_badly_leave_no_task_slot_queue_entry_or_memory() {
    let calls = soak(10_000, 100_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (started, busy) = (Arc::new(AtomicUsize::new(0)), GatedTool::new());
        let tools = [unreliable_tool("reads", &started).read_only(), unreliable_tool("writes", &started).idempotent()];
        let hub = builder().tools(tools).tool(busy.tool("full").max_concurrency(2 * SLOTS)).build().await.unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        // Records expire and are swept; what remains was leaked.
        let swept = || tokio::time::sleep(26 * 3600 * SECOND);
        // A larger round first: lists keep their capacity.
        run_stress(&hub, 1_000, 250).await;
        swept().await;
        // A map that fills up by chance grows once, a leak grows in every round.
        let mut growth = Vec::new();
        while growth.last().is_none_or(|bytes| *bytes >= calls as isize) {
            assert!(growth.len() < 3, "{growth:?} bytes leaked by {calls} calls each: a byte or more per call");
            let (bytes, alive) = (alloc::allocated_bytes(), tasks());
            run_stress(&hub, calls, 100).await;
            swept().await;
            growth.push(alloc::allocated_bytes() - bytes);
            assert_eq!(tasks(), alive, "tasks were leaked");
        }
        for name in ["reads", "writes"] {
            let stats = hub.tool_stats(name).unwrap();
            assert_eq!((stats.in_flight, stats.queued, stats.stuck), (0, 0, 0), "{name}");
            assert!(stats.retries > 0 && stats.errors["cancelled"] > 0 && stats.errors["timeout"] > 0, "{stats:?}");
        }

        // Every slot is free: the maximum of concurrent calls can run, per tool and in all.
        let all: Vec<_> = (0..2 * SLOTS).map(|_| hub.call("full", json!({})).start()).collect();
        wait_until(|| busy.running() == 2 * SLOTS).await;
        assert_eq!(hub.queued_calls(), 0);
        busy.release(2 * SLOTS);
        for call in all {
            call.await.assert_success();
        }
        let successor = GatedTool::new();
        let tools = ["reads", "writes"].map(|name| successor.tool(name).max_concurrency(SLOTS));
        hub.apply(tools.into_iter().fold(HubChange::tools_only(), HubChange::put)).await.unwrap();
        let all: Vec<_> = (0..2 * SLOTS).map(|n| hub.call(["reads", "writes"][n % 2], json!({})).start()).collect();
        wait_until(|| successor.running() == 2 * SLOTS).await;
        assert_eq!(hub.queued_calls(), 0, "the slots of each tool are free as well");
        successor.release(2 * SLOTS);
        for call in all {
            let outcome = call.await;
            outcome.assert_success();
            assert!(hub.call_record(&Tenant::default(), outcome.id).await.unwrap().unwrap().outcome.is_some());
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_threads_no_slot_is_given_twice_or_lost() {
    let rounds = soak(10, 200);
    let (names, busy) = (["a", "b", "c"], GatedTool::new());
    let crowd = |name| {
        let busy = busy.clone();
        tool(name, move |_: NoArguments, cx: CallContext| {
            let busy = busy.clone();
            async move { busy.run_briefly(&cx).await }
        })
    };
    let tools = names.map(|name| crowd(name).read_only().max_concurrency(2));
    let hub = ToolHub::builder().tools(tools).max_concurrency(5).build().await.unwrap();
    for round in 0..rounds {
        let calls: Vec<_> = (0..300)
            .map(|n| {
                let hub = hub.clone();
                tokio::spawn(async move {
                    let mut call = hub.call(names[n % 3], json!({})).into_future();
                    // Some poll a few times and are dropped; the others run to the end.
                    for _ in 0..n % 5 {
                        if poll!(&mut call).is_ready() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                    if n % 5 == 0 {
                        call.await.assert_success();
                    }
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!((hub.queued_calls(), hub.running_calls(), busy.running()), (0, 0, 0), "round {round}");
    }
    assert!(busy.max_running() <= 5, "{} ran concurrently", busy.max_running());
    let full = GatedTool::new();
    let tools = names.map(|name| full.tool(name).max_concurrency(2));
    hub.apply(tools.into_iter().fold(HubChange::tools_only(), HubChange::put)).await.unwrap();
    let all: Vec<_> = (0..5).map(|n| hub.call(names[n % 3], json!({})).start()).collect();
    wait_until(|| full.running() == 5).await;
    full.release(5);
    for call in all {
        call.await.assert_success();
    }
}
