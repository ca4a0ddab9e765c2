//! Run limits: repeated calls and too many calls in a run are refused.

use toolhub::{
    HubBuilder, RunLimits,
    clock::Timestamp,
    ids::{RunId, Tenant},
    prelude::*,
    testing::{AssertOutcome, ScriptedTool, TestClock, scripted},
};

fn run(n: i64) -> RunId {
    RunId::mint(Timestamp::from_millis(n))
}

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

async fn hub(limits: RunLimits) -> (ToolHub, ScriptedTool) {
    let ((tool, script), other) = (scripted("it", []), scripted("other", []).0);
    (builder().run_limits(limits).tools([tool, other]).build().await.unwrap(), script)
}

#[tokio::test(start_paused = true)]
async fn a_run_may_make_the_same_call_so_often_and_no_more() {
    let (hub, script) = hub(RunLimits { same_call: 3, calls: 0 }).await;
    let (run, other) = (run(1), run(2));
    for _ in 0..3 {
        hub.call("it", json!({"a": 1, "b": 2})).run(run).await.assert_success();
    }
    for _ in 0..2 {
        let refused = hub.call("it", json!({"b": 2, "a": 1})).run(run).thread("t9").await;
        let text = refused.assert_effect(Effect::None).assert_error(ErrorKind::Forbidden);
        assert!(text.contains("`it`") && text.contains("3 times") && text.contains("Stop"), "{text}");
        assert!(!refused.error.unwrap().counts);
    }
    assert_eq!(script.recorded_arguments().len(), 3);
    // Other arguments, another tool, another run, and no run at all are other calls.
    hub.call("it", json!({"a": 1})).run(run).await.assert_success();
    hub.call("other", json!({"a": 1, "b": 2})).run(run).await.assert_success();
    hub.call("it", json!({"a": 1, "b": 2})).run(other).await.assert_success();
    for _ in 0..10 {
        hub.call("it", json!({"a": 1, "b": 2})).thread("t1").await.assert_success();
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_may_make_so_many_calls_in_all() {
    let (hub, script) = hub(RunLimits { same_call: 0, calls: 5 }).await;
    let (run, other) = (run(1), run(2));
    for n in 0..5 {
        hub.call("it", json!({"n": n})).run(run).await.assert_success();
    }
    let text = hub.call("other", json!({})).run(run).await.assert_error(ErrorKind::Forbidden);
    assert!(text.contains("5 tool calls") && text.contains("answer with what you have"), "{text}");
    hub.call("it", json!({})).run(other).await.assert_success();
    for n in 0..10 {
        hub.call("it", json!({"n": n})).await.assert_success();
    }
    assert_eq!(script.recorded_arguments().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn the_default_limits_are_eight_repeats_and_five_hundred_calls() {
    let (hub, _) = hub(RunLimits::default()).await;
    let run = run(1);
    for n in 1..=10 {
        assert_eq!(hub.call("it", json!({})).run(run).await.is_success(), n <= 8, "{n}");
    }
    for n in 9..=510 {
        assert_eq!(hub.call("it", json!({"n": n})).run(run).await.is_success(), n <= 500, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_third_identical_mistake_says_to_stop_and_different_ones_do_not() {
    const STOP: &str = "This is the third time with the same invalid arguments. Stop";
    let schema = json!({"type": "object", "properties": {"qty": {"type": "integer"}}});
    let (tool, script) = scripted("it", []);
    let hub = builder().tool(tool.parameters(schema)).build().await.unwrap();
    let stranger = Tenant::new("stranger").unwrap();
    // Each is counted separately: a run, another run in the same thread, a thread, the same thread of another tenant.
    let (one, two) = (run(1), run(2));
    let call = |caller: usize, arguments: Value| {
        let request = hub.call("it", arguments).thread("t1");
        match caller {
            0 => request.run(one),
            1 => request.run(two),
            2 => request,
            _ => request.tenant(stranger.clone()),
        }
    };
    for caller in 0..4 {
        for n in 0..10 {
            let text =
                call(caller, json!({"qty": format!("{n} or so")})).await.assert_error(ErrorKind::ArgumentsInvalid);
            assert!(!text.contains("Stop"), "{text}");
        }
        for time in 1..=4 {
            let text = call(caller, json!({"qty": "many"})).await.assert_error(ErrorKind::ArgumentsInvalid);
            assert!(text.contains("qty"), "it still names the problem: {text}");
            assert_eq!(text.contains(STOP), time == 3, "time {time}: {text}");
            assert_eq!(text.contains("Stop"), time >= 3, "time {time}: {text}");
        }
        call(caller, json!({"qty": 1})).await.assert_success();
    }
    for _ in 0..5 {
        let text = hub.call("it", json!({"qty": "many"})).await.assert_error(ErrorKind::ArgumentsInvalid);
        assert!(!text.contains("Stop"), "without a run or thread the caller is unknown: {text}");
    }
    assert_eq!(script.recorded_arguments().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_refused_for_their_arguments_do_not_use_up_a_run() {
    let schema = json!({"type": "object", "properties": {"qty": {"type": "integer"}}});
    let (tool, _) = scripted("it", []);
    let builder = builder().run_limits(RunLimits { same_call: 1, calls: 1 });
    let hub = builder.tool(tool.parameters(schema)).build().await.unwrap();
    let run = run(1);
    for _ in 0..5 {
        hub.call("it", json!({"qty": "x"})).run(run).await.assert_error(ErrorKind::ArgumentsInvalid);
        hub.call("unknown", json!({})).run(run).await.assert_error(ErrorKind::ToolNotFound);
    }
    hub.call("it", json!({"qty": 1})).run(run).await.assert_success();
    hub.call("it", json!({"qty": 2})).run(run).await.assert_error(ErrorKind::Forbidden);
}
