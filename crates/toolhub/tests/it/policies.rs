//! Policies of tools: how they combine, and the statistics that show their effect.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::poll;
use toolhub::{
    BeforeDecision, BoxFuture, BuildError, CallHandle, Hook, HookedCall, HubBuilder, Policy, RateLimit, Retry, Rule,
    ToolName,
    ids::{Caller, Tenant, ThreadId},
    prelude::*,
    status::Language,
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};

use crate::{
    faulty_store::FaultyStore,
    gated_tool::{GatedTool, wait_until},
};

const SECOND: Duration = Duration::from_secs(1);

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

fn timeout(seconds: u32) -> Policy {
    Policy { timeout: Some(seconds * SECOND), ..Policy::default() }
}

async fn explain(hub: &ToolHub, tool: &str) -> toolhub::Explanation {
    hub.explain(tool, &Tenant::default(), &ThreadId::new("t1").unwrap()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_setting_weighs_most_then_the_later_name_then_the_default() {
    let named = [("shop_*", timeout(7)), ("shop_b*", timeout(8)), ("shop_buy", timeout(9)), ("*_bulk", timeout(10))];
    let hang = |name| scripted(name, [ScriptStep::Hang]).0.read_only().no_retry();
    let tools = [
        hang("other"),
        hang("shop_show"),
        hang("shop_bag"),
        hang("shop_buy"),
        hang("shop_bulk"),
        hang("shop_own").timeout(4 * SECOND),
    ];
    let builder = builder().default_policy(timeout(6)).tools(tools);
    let hub = named.into_iter().fold(builder, |builder, (name, policy)| builder.policy(name, policy));
    let hub = hub.build().await.unwrap();
    for (tool, seconds) in
        [("other", 6), ("shop_show", 7), ("shop_bag", 8), ("shop_buy", 9), ("shop_bulk", 10), ("shop_own", 4)]
    {
        let explained = explain(&hub, tool).await;
        assert_eq!(explained.policy.timeout, seconds * SECOND, "{tool}");
        let outcome = hub.call(tool, json!({})).await;
        outcome.assert_error(ErrorKind::Timeout);
        assert_eq!(outcome.duration, seconds * SECOND, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_says_and_another_does_not_is_put_together() {
    let slots = Policy { max_concurrency: Some(3), queue_timeout: Some(9 * SECOND), ..Policy::default() };
    let rates = Policy { rate_limits: Some(vec![RateLimit::per_minute(30)]), ..timeout(11) };
    let retry = Retry { attempts: 5, ..Retry::default() };
    let tool = scripted("it", []).0.retry(retry.clone()).attempt_timeout(2 * SECOND).queue_timeout(8 * SECOND);
    let hub = builder().default_policy(slots).policy("i?", rates).tool(tool).build().await.unwrap();
    hub.call("it", json!({})).await.assert_success();

    let explained = explain(&hub, "it").await;
    let policy = &explained.policy;
    assert_eq!((policy.timeout, policy.attempt_timeout), (11 * SECOND, Some(2 * SECOND)));
    assert_eq!((policy.max_concurrency, policy.queue_timeout), (Some(3), 8 * SECOND));
    assert_eq!((&policy.retry, &policy.rate_limits[..]), (&retry, &[RateLimit::per_minute(30)][..]));
    assert_eq!((explained.rates[0].remaining, explained.rates[0].resets_in), (29, 2 * SECOND));

    let data = serde_json::to_value(&explained).unwrap();
    assert_eq!(data["policy"]["timeoutMs"], 11_000);
    assert_eq!(data["policy"]["maxConcurrency"], 3);
    assert_eq!(data["policy"]["retry"]["attempts"], 5);
    assert_eq!(data["rates"][0]["remaining"], 29);
    let english = ["timeout 11s", "attempt timeout 2s", "up to 5 attempts", "at most 3 concurrent", "30 per 60s"];
    let chinese = ["超时 11s", "单次超时 2s", "最多尝试 5 次", "最多同时 3 次", "每 60s 最多 30 次"];
    for (language, words) in [(Language::English, english), (Language::Chinese, chinese)] {
        let text = explained.text(language);
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {text}");
        }
    }
}

struct UnusedHook;
impl Hook for UnusedHook {
    fn before<'a>(&'a self, _: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        Box::pin(async { unreachable!("no hub has this hook") })
    }
}

#[tokio::test(start_paused = true)]
async fn everything_that_cannot_hold_is_named_when_the_hub_is_built_all_at_once() {
    let no_slots = Policy { max_concurrency: Some(0), ..Policy::default() };
    let no_attempts = Policy { retry: Some(Retry { attempts: 0, ..Retry::default() }), ..Policy::default() };
    let rates = vec![RateLimit::per_minute(0), RateLimit::per_second(1).burst(0)];
    let no_rate = Policy { rate_limits: Some(rates), max_concurrency: Some(0), ..Policy::default() };
    let built = builder()
        .default_policy(no_slots)
        .policy("pay_*", no_attempts)
        .policy("shop_*", no_rate)
        .policy("", Policy::default())
        .rule(Rule::deny(""))
        .rule(Rule::ask("order").when("/amount", "(unclosed"))
        .rule(Rule::allow("order").when("amount", "^1$"))
        .hook("", UnusedHook)
        .hook("", UnusedHook)
        .max_concurrency(0)
        .tool(scripted("it", []).0)
        .build()
        .await;
    let Err(error @ BuildError::Policy(_)) = built else { panic!("expected an error, got {:?}", built.map(drop)) };
    let text = error.to_string();
    for word in [
        "all tools",
        "`pay_*`",
        "`attempts` is 0",
        "`shop_*`",
        "at least one request",
        "the burst of a rate limit must be at least one",
        "the policy for `` is invalid: a name pattern must not be empty",
        "the rule `deny \"\"`",
        "(unclosed",
        "`amount` is not a JSON pointer",
        "the policy for `max_concurrency`",
    ] {
        assert!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
    assert_eq!(text.matches("`max_concurrency` is 0").count(), 2, "{text}");
    assert_eq!(text.matches("the hook on ``").count(), 2, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_limits_are_checked_too() {
    let it = || scripted("it", []).0;
    for (tool, word) in [
        (it().max_concurrency(0), "max_concurrency"),
        (it().rate_limit(RateLimit::per_minute(0)), "at least one request"),
        (it().rate_limit(RateLimit::new(1, Duration::ZERO)), "period"),
        (it().retry(Retry { attempts: 0, ..Retry::default() }), "attempts"),
    ] {
        let refused = builder().tool(tool).build().await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("`it`") && refused.contains(word), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_always_denied_is_not_offered_and_the_rule_is_named() {
    let names = ["free", "never", "sometimes", "not_for_guests"];
    let hub = builder()
        .tools(names.map(|name| scripted(name, []).0))
        .rule(Rule::allow("*"))
        .rule(Rule::deny("nev*").reason("too dangerous"))
        .rule(Rule::deny("sometimes").when("/n", "^13$"))
        .rule(Rule::deny("not_for_guests").caller("guest*"))
        .build()
        .await
        .unwrap();
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let offered = ["free", "not_for_guests", "sometimes"].map(|name| ToolName::new(name).unwrap());
    assert_eq!(hub.available_tools(StatusScope::Thread(&tenant, &thread)).await.unwrap(), offered);
    let offer = hub.offer(&tenant, &thread).await.unwrap();
    assert_eq!(offer.names(), offered);
    assert_eq!(offer.export(Format::Anthropic).len(), 3);
    assert!(!hub.should_rebind(&offer).await.unwrap());

    let never = explain(&hub, "never").await;
    assert_eq!((never.offered, never.denied_by.as_deref()), (false, Some("deny nev*")));
    let text = never.text(Language::English);
    assert!(text.starts_with("`never` is not offered: a rule forbids it (deny nev*)."), "{text}");
    let sometimes = explain(&hub, "sometimes").await;
    assert_eq!((sometimes.offered, sometimes.denied_by), (true, None));
    assert_eq!(sometimes.rules, ["deny sometimes when /n ~ ^13$", "allow *", "allow by default"]);

    let refused = hub.call("never", json!({})).thread("t1").await;
    refused.assert_effect(Effect::None).assert_error(ErrorKind::Forbidden);
    assert!(refused.error.unwrap().operator.contains("too dangerous"));
    hub.call("sometimes", json!({"n": 12})).await.assert_success();
    hub.call("sometimes", json!({"n": 13})).await.assert_error(ErrorKind::Forbidden);
    let guest = Caller::new("guest-7").unwrap();
    hub.call("not_for_guests", json!({})).caller(guest).await.assert_error(ErrorKind::Forbidden);
    hub.call("not_for_guests", json!({})).await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn calls_errors_and_times_of_a_tool_are_counted_and_refusals_apart() {
    let down = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "503"));
    let wait = |millis| ScriptStep::Wait(Duration::from_millis(millis));
    let steps = vec![
        wait(100),
        ScriptStep::Return(json!(1)),
        wait(300),
        ScriptStep::Return(json!(1)),
        down(),
        ScriptStep::Return(json!(1)),
        ScriptStep::Fail(ToolError::refused("no")),
        ScriptStep::Hang,
    ];
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let (it, _) = scripted("it", steps);
    let retry = Retry { jitter: false, ..Retry::default() };
    let it = it.read_only().retry(retry).parameters(schema).timeout(5 * SECOND).rate_limit(RateLimit::per_hour(5));
    let hub = builder().tool(it).tool(scripted("other", []).0).build().await.unwrap();
    assert_eq!(hub.tool_stats("nobody"), None);
    let before = hub.tool_stats("it").unwrap();
    assert_eq!((before.calls, before.errors.len(), before.latency.count), (0, 0, 0));
    hub.call("it", json!({"n": "x"})).await.assert_error(ErrorKind::ArgumentsInvalid);
    for kind in [None, None, None, Some(ErrorKind::ToolRefused), Some(ErrorKind::Timeout), Some(ErrorKind::RateLimited)]
    {
        assert_eq!(hub.call("it", json!({})).await.error_kind(), kind);
    }
    let stats = hub.tool_stats("it").unwrap();
    assert_eq!((stats.calls, stats.latency.count, stats.retries, stats.rate_limited), (5, 5, 1, 1));
    assert_eq!(stats.errors, [("timeout", 1), ("tool_error", 1)].into());
    assert_eq!(stats.refusals, [("arguments_invalid", 1), ("rate_limited", 1)].into());
    assert_eq!((stats.in_flight, stats.queued, stats.stuck), (0, 0, 0));
    // 0, 100, 300, 1,000 and 5,000 ms.
    let latency = &stats.latency;
    assert_eq!((latency.mean, latency.max), (Duration::from_millis(1_280), 5 * SECOND));
    let near = |quantile: Duration, millis: u64| {
        let exact = Duration::from_millis(millis);
        assert!(quantile.abs_diff(exact) <= exact / 8, "{quantile:?} is not about {exact:?}");
    };
    near(latency.p50, 300);
    near(latency.p95, 5_000);
    near(latency.p99, 5_000);
    let all = hub.stats();
    assert_eq!(
        all.iter().map(|stats| (stats.tool.as_str(), stats.calls)).collect::<Vec<_>>(),
        [("it", 5), ("other", 0)]
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_run_and_calls_that_wait_are_counted_while_they_do() {
    let busy = GatedTool::new();
    let hub = builder().tool(busy.tool("it").max_concurrency(2)).build().await.unwrap();
    let mut calls: Vec<CallHandle> = (0..5).map(|_| hub.call("it", json!({})).start()).collect();
    let seen = || {
        let stats = hub.tool_stats("it").unwrap();
        (stats.calls, stats.in_flight, stats.queued)
    };
    wait_until(|| seen() == (0, 2, 3)).await;
    busy.release(1);
    wait_until(|| seen() == (1, 2, 2)).await;
    // One waiting call and one running call are cancelled.
    drop(calls.pop());
    wait_until(|| seen() == (1, 2, 1)).await;
    hub.cancel_call(&Tenant::default(), calls[1].id()).await.unwrap();
    wait_until(|| seen() == (2, 2, 0)).await;
    busy.release(2);
    for call in calls {
        call.await;
    }
    assert_eq!(seen(), (4, 0, 0));
    let stats = hub.tool_stats("it").unwrap();
    assert_eq!((stats.errors, stats.refusals), ([("cancelled", 1)].into(), [("cancelled", 1)].into()));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_goes_away_is_counted_wherever_it_runs() {
    for read_only in [true, false] {
        let busy = GatedTool::new();
        let tool = busy.tool("it").max_concurrency(1);
        let hub = builder().tool(if read_only { tool.read_only() } else { tool }).build().await.unwrap();
        let seen = || {
            let stats = hub.tool_stats("it").unwrap();
            // A call that never started is a refusal.
            let cancelled =
                [&stats.errors, &stats.refusals].map(|counts| counts.get("cancelled").copied().unwrap_or_default());
            (stats.calls, cancelled, stats.in_flight)
        };
        let (mut runs, mut waits) = (hub.call("it", json!({})).into_future(), hub.call("it", json!({})).into_future());
        assert!(poll!(&mut runs).is_pending());
        wait_until(|| busy.running() == 1).await;
        assert!(poll!(&mut waits).is_pending());
        wait_until(|| hub.queued_calls() == 1).await;
        drop(waits);
        wait_until(|| seen() == (0, [0, 1], 1)).await;
        drop(runs);
        wait_until(|| seen() == (1, [1, 1], 0)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_point_is_counted_once() {
    for polls in 1..20 {
        let (tool, _) =
            scripted("it", [ScriptStep::Wait(Duration::ZERO), ScriptStep::Fail(ToolError::new("it broke"))]);
        let hub = builder().store(FaultyStore::default()).tool(tool.read_only()).build().await.unwrap();
        let mut call = hub.call("it", json!({})).thread("t1").into_future();
        for _ in 0..polls {
            if poll!(&mut call).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(call);
        let stats = hub.tool_stats("it").unwrap();
        assert_eq!((stats.calls, stats.errors.values().sum()), (1, 1), "{polls} polls: {:?}", stats.errors);
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_nobody_waits_for_is_counted_as_stuck_for_its_tool() {
    let go = Arc::new(AtomicBool::new(false));
    let may_go = go.clone();
    let work = move |_: NoArguments| -> Result<(), ToolError> {
        while !may_go.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    };
    let hub = builder().tool(blocking("it", work)).tool(scripted("other", []).0).build().await.unwrap();
    let call = hub.call("it", json!({})).start();
    let stats = |name| hub.tool_stats(name).unwrap();
    wait_until(|| stats("it").in_flight == 1).await;
    call.cancel();
    call.await.assert_effect(Effect::Unknown).assert_error(ErrorKind::Cancelled);
    assert_eq!((stats("it").stuck, stats("it").in_flight, stats("other").stuck), (1, 0, 0));
    go.store(true, Ordering::Release);
    wait_until(|| stats("it").stuck == 0).await;
}
