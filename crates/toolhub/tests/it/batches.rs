//! The calls of one batch: which run together, which wait, and that each has one outcome.

use std::{
    future::IntoFuture,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::poll;
use tokio::sync::Barrier;
use toolhub::{
    Answer, ApprovalOutcome, ApprovalState, CallRequest, HubBuilder, Status,
    ids::{Caller, Tenant},
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, TestClock, scripted},
};

use crate::{
    gated_tool::{GatedTool, wait_until},
    shop_tools::{add_to_cart, show_cart},
};

const SECOND: Duration = Duration::from_secs(1);

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

/// What tools did, in order.
#[derive(Clone, Default)]
struct ExecutionLog(Arc<Mutex<Vec<String>>>);

impl ExecutionLog {
    /// A tool that takes a second.
    fn tool(&self, name: &'static str) -> ToolBuilder {
        let diary = self.clone();
        tool(name, move |_: NoArguments| {
            let diary = diary.clone();
            async move {
                diary.write(format!("{name} begins"));
                tokio::time::sleep(SECOND).await;
                diary.write(format!("{name} ends"));
                Ok::<_, ToolError>(name)
            }
        })
    }

    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn calls<'hub>(hub: &'hub ToolHub, names: &[&str]) -> Vec<CallRequest<'hub>> {
    names.iter().map(|name| hub.call(*name, json!({})).thread("t1")).collect()
}

async fn wait_for_question(hub: &ToolHub) -> toolhub::ids::ApprovalId {
    loop {
        let open = hub.approvals(&Tenant::default(), Some(ApprovalState::Pending)).await.unwrap();
        if let [approval] = &open[..] {
            return approval.id;
        }
        tokio::task::yield_now().await;
    }
}

async fn resolve(hub: &ToolHub, id: toolhub::ids::ApprovalId, outcome: ApprovalOutcome) {
    let answer = Answer::new(outcome, Caller::new("boss").unwrap());
    hub.resolve_approval(&Tenant::default(), id, answer).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn results_come_in_the_order_of_the_calls_however_long_each_takes() {
    for read_only in [true, false] {
        let work = |wait: Wait| async move {
            tokio::time::sleep(wait.seconds * SECOND).await;
            Ok::<_, ToolError>(wait.seconds)
        };
        let tool = if read_only { tool("it", work).read_only() } else { tool("it", work) };
        let hub = builder().tool(tool).build().await.unwrap();
        let waits = [5, 1, 4, 2, 3];
        let began = tokio::time::Instant::now();
        let batch = hub.batch(waits.map(|seconds| hub.call("it", json!({"seconds": seconds})))).await;
        let outputs: Vec<_> = batch.iter().map(|outcome| outcome.assert_success().clone()).collect();
        assert_eq!(outputs, waits.map(|seconds| json!(seconds)));
        assert_eq!(began.elapsed(), if read_only { 5 } else { 15 } * SECOND);
    }
    let hub = builder().build().await.unwrap();
    assert!(hub.batch([]).await.is_empty());
}

/// Wait this many seconds.
#[derive(Deserialize, JsonSchema)]
struct Wait {
    seconds: u32,
}

#[tokio::test(start_paused = true)]
async fn consecutive_safe_calls_run_together() {
    // None of them ends before all have started.
    let barrier = Arc::new(Barrier::new(4));
    let meet = move |_: NoArguments| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            Ok::<_, ToolError>(())
        }
    };
    let hub = builder()
        .tool(tool("reads", meet.clone()).read_only())
        .tool(tool("safe", meet).parallel_safe())
        .build()
        .await
        .unwrap();
    for outcome in hub.batch(calls(&hub, &["reads", "safe", "safe", "reads"])).await {
        outcome.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_call_runs_alone_and_in_order() {
    let diary = ExecutionLog::default();
    let tools = [diary.tool("a").read_only(), diary.tool("b").read_only(), diary.tool("w"), diary.tool("x")];
    let hub = builder().tools(tools).build().await.unwrap();
    let began = tokio::time::Instant::now();
    for outcome in hub.batch(calls(&hub, &["a", "b", "w", "x", "a", "b"])).await {
        outcome.assert_success();
    }
    let lines = diary.lines();
    let alone = ["w begins", "w ends", "x begins", "x ends"];
    assert_eq!(lines[4..8], alone);
    for both in [&lines[..4], &lines[8..]] {
        assert!(both[..2].iter().all(|line| line.ends_with("begins")), "{lines:?}");
    }
    assert_eq!(began.elapsed(), 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_dependent_waits_for_its_base_and_is_refused_if_that_failed() {
    for fails in [false, true] {
        let steps = if fails {
            vec![ScriptStep::Wait(SECOND), ScriptStep::Fail(ToolError::new("no"))]
        } else {
            vec![ScriptStep::Wait(SECOND)]
        };
        let (next, script) = scripted("next", []);
        let tools = [scripted("base", steps).0.read_only(), next.read_only().after("base"), scripted("free", []).0];
        let hub = builder().tools(tools.map(ToolBuilder::parallel_safe)).build().await.unwrap();
        let batch = hub.batch(calls(&hub, &["base", "next", "free"])).await;
        assert_eq!(batch[0].is_success(), !fails);
        batch[2].assert_success();
        assert_eq!(batch[2].duration + batch[2].queued, Duration::ZERO, "an independent call does not wait");
        if fails {
            let text = batch[1].assert_effect(Effect::None).assert_error(ErrorKind::DependencyNotMet);
            assert!(text.contains("base"), "{text}");
        } else {
            batch[1].assert_success();
        }
        assert_eq!(script.recorded_arguments().len(), usize::from(!fails));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dependent_before_its_base_is_not_held_for_it() {
    let tools = [scripted("base", []).0, scripted("next", []).0.after("base")];
    let hub = builder().tools(tools).build().await.unwrap();
    let batch = hub.batch(calls(&hub, &["next", "base"])).await;
    batch[0].assert_error(ErrorKind::DependencyNotMet);
    batch[1].assert_success();
}

#[tokio::test(start_paused = true)]
async fn while_a_person_is_asked_safe_calls_go_on_and_lone_ones_wait() {
    for (answer, first) in [(ApprovalOutcome::ProceedOnce, Status::Success), (ApprovalOutcome::Cancel, Status::Error)] {
        let diary = ExecutionLog::default();
        let tools = [
            diary.tool("ask").confirm(),
            diary.tool("read").read_only(),
            diary.tool("lone"),
            diary.tool("last").read_only(),
        ];
        let hub = builder().tools(tools).build().await.unwrap();
        let batch = hub.batch(calls(&hub, &["ask", "read", "lone", "last"])).into_future();
        let person = async {
            let approval = wait_for_question(&hub).await;
            tokio::time::sleep(60 * SECOND).await;
            let mut lines = diary.lines();
            lines.sort();
            assert_eq!(lines, ["last begins", "last ends", "read begins", "read ends"]);
            resolve(&hub, approval, answer).await;
        };
        let (batch, ()) = tokio::join!(batch, person);
        assert_eq!(batch[0].status, first);
        for outcome in &batch[1..] {
            outcome.assert_success();
        }
        let approved = ["ask begins", "ask ends", "lone begins", "lone ends"];
        let expected = if first == Status::Success { &approved[..] } else { &approved[2..] };
        assert_eq!(diary.lines()[4..], *expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_waits_for_the_safe_ones_that_went_past_it() {
    let diary = ExecutionLog::default();
    let tools = [diary.tool("ask").confirm(), diary.tool("read").read_only()];
    let hub = builder().tools(tools).build().await.unwrap();
    let batch = hub.batch(calls(&hub, &["ask", "read"])).into_future();
    let person = async {
        let approval = wait_for_question(&hub).await;
        wait_until(|| diary.lines() == ["read begins"]).await;
        resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
    };
    let (batch, ()) = tokio::join!(batch, person);
    assert_eq!(diary.lines(), ["read begins", "read ends", "ask begins", "ask ends"]);
    for outcome in batch {
        outcome.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_that_is_held_can_still_be_cancelled_or_dropped_with_its_batch() {
    for dropped in [true, false] {
        let (busy, (ask, script)) = (GatedTool::new(), scripted("ask", []));
        let hub = builder().tools([ask.confirm(), busy.tool("read").read_only()]).build().await.unwrap();
        let ids: Vec<_> = Vec::from_iter(calls(&hub, &["ask", "read"]));
        let asking = ids[0].id();
        let mut events = EventRecorder::new(&hub);
        let mut batch = hub.batch(ids).into_future();
        let started = async {
            let approval = wait_for_question(&hub).await;
            wait_until(|| busy.running() == 1).await;
            resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
            // The approval reaches the call, which is held back by the other.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut batch => panic!("nothing can end yet"),
            () = started => {}
        }
        if dropped {
            drop(batch);
        } else {
            assert_eq!(hub.cancel_call(&Tenant::default(), asking).await, Ok(toolhub::Cancellation::Requested));
            assert!(poll!(&mut batch).is_pending());
            wait_until(|| hub.running_calls() == 0).await;
            assert_eq!(events.end_count(asking), 1, "it does not wait for the other to end as well");
            busy.release(1);
            let ends = batch.await;
            ends[0].assert_effect(Effect::None).assert_error(ErrorKind::Cancelled);
            ends[1].assert_success();
        }
        wait_until(|| hub.running_calls() == 0 && busy.running() == 0).await;
        assert_eq!((events.end_count(asking), script.recorded_arguments().len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlives_its_batch_waits_for_nobody_once_it_is_approved() {
    for held in [true, false] {
        let (busy, (ask, script)) = (GatedTool::new(), scripted("ask", []));
        let hub = builder().tools([ask.confirm(), busy.tool("read").read_only()]).build().await.unwrap();
        let mut both = calls(&hub, &["ask", "read"]);
        let read = both.pop().unwrap();
        let ask = both.pop().unwrap().idempotency_key("k");
        let mut batch = hub.batch([ask, read]).into_future();
        let approval = async {
            let approval = wait_for_question(&hub).await;
            wait_until(|| busy.running() == 1).await;
            if held {
                resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
                tokio::time::sleep(SECOND).await;
            }
            approval
        };
        let approval = tokio::select! {
            _ = &mut batch => panic!("nothing can end yet"),
            approval = approval => approval,
        };
        // A caller with a key will retry: its call continues, although the order of the batch is no longer enforced.
        drop(batch);
        if !held {
            resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
        }
        wait_until(|| hub.running_calls() == 0).await;
        assert_eq!(script.recorded_arguments().len(), 1, "held {held}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_fails_alone() {
    let tools = [
        scripted("good", []).0.read_only(),
        scripted("slow", [ScriptStep::Hang]).0.read_only().timeout(SECOND).no_retry(),
        scripted("bad", [ScriptStep::Fail(ToolError::new("no"))]).0,
        scripted("lone", []).0,
    ];
    let hub = builder().tools(tools).build().await.unwrap();
    let batch = hub.batch(calls(&hub, &["good", "slow", "bad", "unknown", "lone", "good"])).await;
    let kinds: Vec<_> = batch.iter().map(Outcome::error_kind).collect();
    let (timeout, error, unknown) = (ErrorKind::Timeout, ErrorKind::ToolError, ErrorKind::ToolNotFound);
    assert_eq!(kinds, [None, Some(timeout), Some(error), Some(unknown), None, None]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_name_no_thread_share_one_where_any_needs_one() {
    let tools = [
        tool("add_to_cart", add_to_cart),
        tool("show_cart", show_cart).description("Show what is in the cart.").read_only(),
        scripted("plain", []).0.read_only(),
    ];
    let hub = builder().tools(tools).build().await.unwrap();
    let batch = hub
        .batch([
            hub.call("plain", json!({})),
            hub.call("add_to_cart", json!({"sku": "tea", "qty": 1})),
            hub.call("add_to_cart", json!({"sku": "milk", "qty": 1})).thread("t9"),
            hub.call("show_cart", json!({})),
        ])
        .await;
    assert_eq!(batch[3].assert_success(), &json!([["tea", 1]]));
    let threads: Vec<_> = batch.iter().map(|outcome| outcome.thread.clone().unwrap()).collect();
    assert!(threads[0] == threads[1] && threads[1] == threads[3] && threads[2].as_str() == "t9", "{threads:?}");
    let plain = hub.batch([hub.call("plain", json!({})), hub.call("plain", json!({}))]).await;
    assert!(plain.iter().all(|outcome| outcome.thread.is_none()), "no thread is minted if none is needed");
}

#[tokio::test(start_paused = true)]
async fn a_model_call_id_that_is_used_twice_is_refused_the_second_time() {
    let (tool, script) = scripted("it", []);
    let hub = builder().tool(tool).build().await.unwrap();
    let call = |id: &'static str| hub.call("it", json!({"id": id})).model_call(id);
    let batch = hub.batch([call("one"), call("two"), call("one"), hub.call("it", json!({}))]).await;
    let kinds: Vec<_> = batch.iter().map(Outcome::error_kind).collect();
    assert_eq!(kinds, [None, None, Some(ErrorKind::ArgumentsInvalid), None]);
    let ids: Vec<_> = batch.iter().map(|outcome| outcome.model_call.as_deref()).collect();
    assert_eq!(ids, [Some("one"), Some("two"), Some("one"), None]);
    assert!(batch[2].error.as_ref().unwrap().operator.contains("twice"));
    assert_eq!(script.recorded_arguments().len(), 3);
    hub.batch([call("one")]).await[0].assert_success();
}

#[tokio::test(start_paused = true)]
async fn dropping_a_batch_cancels_its_calls_and_begins_no_more() {
    for (first, begins) in [("reads", 3), ("writes", 1)] {
        let busy = GatedTool::new();
        let tools = [busy.tool("reads").read_only(), busy.tool("writes")];
        let hub = builder().tools(tools).build().await.unwrap();
        let mut events = EventRecorder::new(&hub);
        let mut batch = hub.batch(calls(&hub, &[first, first, first, "writes"])).into_future();
        assert!(poll!(&mut batch).is_pending());
        wait_until(|| busy.running() == begins).await;
        drop(batch);
        wait_until(|| busy.running() == 0 && hub.running_calls() == 0).await;
        busy.release(10);
        tokio::time::sleep(SECOND).await;
        assert_eq!(busy.started_threads().len(), begins, "{first}");
        let ends = events.names().iter().filter(|name| **name == "tool.execution.failed").count();
        assert_eq!(ends, begins, "each has one end");
    }
}
