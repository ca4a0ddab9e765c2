//! Result cache: results are reused only where they would be the same.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use toolhub::{
    HubBuilder, HubChange, Policy, RateLimit,
    ids::Tenant,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, ScriptedTool, TestClock, scripted},
};

use crate::{
    gated_tool::{GatedTool, wait_until},
    shop_tools::{add_to_cart, show_cart},
};

const MINUTE: Duration = Duration::from_secs(60);

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

/// A read-only tool that counts its executions from 1, cached for a minute.
fn counting_tool(name: &str) -> (ToolBuilder, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = runs.clone();
    let count = move |_: BTreeMap<String, Value>| {
        let run = runs.fetch_add(1, SeqCst) + 1;
        async move { Ok::<_, ToolError>(run) }
    };
    (tool(name, count).read_only().cache(MINUTE), seen)
}

async fn hub() -> (ToolHub, Arc<AtomicUsize>) {
    let (tool, runs) = counting_tool("it");
    (builder().tool(tool).build().await.unwrap(), runs)
}

#[track_caller]
fn check(outcome: &Outcome, answer: u64, cached: bool) {
    assert_eq!((outcome.assert_success(), outcome.cached), (&json!(answer), cached));
    assert_eq!(outcome.attempts, u32::from(!cached));
    assert!(!outcome.replayed);
    outcome.assert_effect(Effect::None);
}

#[tokio::test(start_paused = true)]
async fn the_same_arguments_in_any_order_are_answered_without_running_the_tool() {
    let (hub, runs) = hub().await;
    let texts = [r#"{"a": 1, "b": {"c": [1, 2], "d": null}}"#, r#"{"b": {"d": null, "c": [1, 2]}, "a": 1}"#];
    for (at, text) in texts.iter().cycle().take(6).enumerate() {
        let arguments: Value = serde_json::from_str(text).unwrap();
        check(&hub.call("it", arguments).thread(format!("t{at}")).await, 1, at > 0);
    }
    assert_eq!(runs.load(SeqCst), 1);
    let stats = hub.tool_stats("it").unwrap();
    assert_eq!((stats.calls, stats.cache_hits, stats.cache_misses), (6, 5, 1), "a cache hit is a call");
}

#[tokio::test(start_paused = true)]
async fn whatever_the_answer_depends_on_makes_it_another() {
    let (hub, _) = hub().await;
    check(&hub.call("it", json!({"a": 1, "b": 2})).await, 1, false);
    for (at, other) in
        [json!({"a": 1}), json!({"a": 1, "b": "2"}), json!({"a": 2, "b": 1}), json!({}), json!({"a": null})]
            .into_iter()
            .enumerate()
    {
        check(&hub.call("it", other).await, at as u64 + 2, false);
    }
    let stranger = Tenant::new("stranger").unwrap();
    check(&hub.call("it", json!({"a": 1, "b": 2})).tenant(stranger.clone()).await, 7, false);
    check(&hub.call("it", json!({"a": 1, "b": 2})).tenant(stranger).await, 7, true);
    check(&hub.call("it", json!({"a": 1, "b": 2})).await, 1, true);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_was_changed_or_replaced_is_asked_again() {
    let (hub, _) = hub().await;
    check(&hub.call("it", json!({})).await, 1, false);
    let (replacement, _) = counting_tool("it");
    hub.apply(HubChange::tools_only().put(replacement)).await.unwrap();
    check(&hub.call("it", json!({})).await, 1, false);
    check(&hub.call("it", json!({})).await, 1, true);
    hub.unregister("it").await;
    hub.register(counting_tool("it").0.description("Now it means something else.")).unwrap();
    check(&hub.call("it", json!({})).await, 1, false);
}

#[tokio::test(start_paused = true)]
async fn what_a_replaced_tool_answers_late_is_not_cached_for_its_successor() {
    let busy = GatedTool::new();
    let hub = builder().tool(busy.tool("it").read_only().cache(MINUTE)).build().await.unwrap();
    let late = hub.call("it", json!({})).start();
    wait_until(|| busy.running() == 1).await;
    let successor = GatedTool::new();
    hub.apply(HubChange::tools_only().put(successor.tool("it").read_only().cache(MINUTE))).await.unwrap();
    busy.release(1);
    late.await.assert_success();
    successor.release(1);
    let outcome = hub.call("it", json!({})).await;
    assert!(outcome.is_success() && !outcome.cached);
    assert_eq!(successor.started_threads().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_holds_to_the_millisecond() {
    let (hub, _) = hub().await;
    check(&hub.call("it", json!({})).await, 1, false);
    tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
    check(&hub.call("it", json!({})).await, 1, true);
    tokio::time::advance(Duration::from_millis(1)).await;
    check(&hub.call("it", json!({})).await, 2, false);
    tokio::time::advance(MINUTE / 2).await;
    check(&hub.call("it", json!({})).await, 2, true);
    tokio::time::advance(MINUTE / 2).await;
    check(&hub.call("it", json!({})).await, 3, false);
}

async fn scripted_hub(steps: Vec<ScriptStep>, change: fn(ToolBuilder) -> ToolBuilder) -> (ToolHub, ScriptedTool) {
    let (tool, script) = scripted("it", steps);
    (builder().tool(change(tool.read_only().cache(MINUTE).no_retry())).build().await.unwrap(), script)
}

#[tokio::test(start_paused = true)]
async fn a_cached_answer_needs_neither_a_token_nor_a_slot() {
    let (busy, (tool, _)) = (GatedTool::new(), counting_tool("it"));
    let tool = tool.rate_limit(RateLimit::per_hour(1));
    let hub = builder().tools([tool, busy.tool("busy")]).max_concurrency(1).build().await.unwrap();
    check(&hub.call("it", json!({})).await, 1, false);
    let running = hub.call("busy", json!({})).start();
    wait_until(|| busy.running() == 1).await;
    check(&hub.call("it", json!({})).await, 1, true);
    assert_eq!(hub.queued_calls(), 0);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_cached() {
    let failures =
        [ToolError::new("no"), ToolError::refused("no"), ToolError::with_kind(ErrorKind::UpstreamError, "500")];
    let steps = failures.map(ScriptStep::Fail).into_iter().chain([ScriptStep::Return(json!("well"))]).collect();
    let (hub, script) = scripted_hub(steps, |tool| tool).await;
    for _ in 0..3 {
        let outcome = hub.call("it", json!({})).await;
        assert!(outcome.error.is_some() && !outcome.cached);
    }
    for cached in [false, true, true] {
        let outcome = hub.call("it", json!({})).await;
        assert_eq!((outcome.assert_success(), outcome.cached), (&json!("well"), cached));
    }
    assert_eq!(script.recorded_arguments().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_cut_is_not_cached() {
    let long = "x".repeat(500);
    let (hub, script) = scripted_hub(vec![ScriptStep::Return(json!(long)); 2], |tool| tool.text_limit(100)).await;
    for _ in 0..2 {
        let outcome = hub.call("it", json!({})).await;
        assert!(!outcome.cached && outcome.model_text().contains("400 more characters"), "{}", outcome.model_text());
    }
    assert_eq!(script.recorded_arguments().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_tool_with_state_changes_as_soon_as_the_state_does() {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = runs.clone();
    let show = move |none: NoArguments, cart: State<crate::shop_tools::Cart>| {
        seen.fetch_add(1, SeqCst);
        show_cart(none, cart)
    };
    let hub = builder()
        .tool(tool("add_to_cart", add_to_cart))
        .tool(tool("show_cart", show).read_only().cache(60 * MINUTE))
        .build()
        .await
        .unwrap();
    let show = async |thread: &'static str, expected: Value, cached: bool| {
        let outcome = hub.call("show_cart", json!({})).thread(thread).await;
        assert_eq!((outcome.assert_success(), outcome.cached), (&expected, cached), "{thread}");
    };
    let add = async |sku: &str| hub.call("add_to_cart", json!({"sku": sku, "qty": 1})).thread("t1").await;
    show("t1", json!([]), false).await;
    show("t1", json!([]), true).await;
    show("t2", json!([]), false).await;
    add("tea").await.assert_success();
    show("t1", json!([["tea", 1]]), false).await;
    show("t1", json!([["tea", 1]]), true).await;
    show("t2", json!([]), true).await;
    add("poison").await.assert_error(ErrorKind::ToolError);
    show("t1", json!([["tea", 1]]), true).await;
    assert_eq!(runs.load(SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_tool_with_effects_cannot_be_registered_with_a_cache() {
    let hub = builder().build().await.unwrap();
    let (tool, _) = scripted("pay", []);
    let refused = hub.register(tool.cache(MINUTE)).unwrap_err().to_string();
    assert!(refused.contains("pay") && refused.contains("read_only"), "{refused}");
    assert!(hub.get("pay").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cache_policy_for_many_tools_applies_to_those_that_only_read() {
    let ((show, shown), (pay, paid)) = (scripted("shop_show", []), scripted("shop_pay", []));
    let (other, others) = scripted("other", []);
    let policy = Policy { cache: Some(MINUTE), ..Policy::default() };
    let tools = [show.read_only(), pay, other.read_only()];
    let hub = builder().tools(tools).policy("shop_*", policy).build().await.unwrap();
    for name in ["shop_show", "shop_pay", "other"] {
        for _ in 0..3 {
            hub.call(name, json!({})).await.assert_success();
        }
    }
    assert_eq!([shown, paid, others].map(|script| script.recorded_arguments().len()), [1, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_others_wait_for_runs_in_each_thread_and_leaves_its_evidence() {
    let (base, runs) = counting_tool("base");
    let hub = builder().tool(base).tool(scripted("next", []).0.after("base")).build().await.unwrap();
    check(&hub.call("base", json!({})).await, 1, false);
    check(&hub.call("base", json!({})).await, 1, true);
    for (at, thread) in ["t1", "t2"].into_iter().enumerate() {
        hub.call("next", json!({})).thread(thread).await.assert_error(ErrorKind::DependencyNotMet);
        check(&hub.call("base", json!({})).thread(thread).await, at as u64 + 2, false);
        hub.call("next", json!({})).thread(thread).await.assert_success();
    }
    assert_eq!(runs.load(SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_key_is_its_own_and_neither_takes_nor_leaves_an_answer() {
    let (hub, _) = hub().await;
    check(&hub.call("it", json!({})).await, 1, false);
    check(&hub.call("it", json!({})).idempotency_key("k1").await, 2, false);
    let replayed = hub.call("it", json!({})).idempotency_key("k1").await;
    assert_eq!((replayed.assert_success(), replayed.replayed, replayed.cached), (&json!(2), true, false));
    check(&hub.call("it", json!({})).await, 1, true);
}
