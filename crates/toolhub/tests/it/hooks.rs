//! Hooks around calls: what they may do, and that they fail closed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use toolhub::{
    AfterDecision, BeforeDecision, BoxFuture, ConflictResolution, Hook, HookedCall, HubBuilder, Rule,
    backend::Memory,
    events::EventKind,
    ids::{Caller, Tenant},
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, ScriptedTool, TestClock, scripted},
};

use crate::shop_tools::{add_to_cart, show_cart};

type OnBefore = dyn Fn(&HookedCall<'_>) -> Result<BeforeDecision, ToolError> + Send + Sync;
type OnAfter = dyn Fn(&HookedCall<'_>, Result<&Value, &ToolError>) -> Result<AfterDecision, ToolError> + Send + Sync;

/// A hook with the answer given by the test.
struct FnHook {
    before: Box<OnBefore>,
    after: Box<OnAfter>,
}

fn before_hook(say: impl Fn(&HookedCall<'_>) -> Result<BeforeDecision, ToolError> + Send + Sync + 'static) -> FnHook {
    FnHook { before: Box::new(say), after: Box::new(|_, _| Ok(AfterDecision::Pass)) }
}

fn after_hook(
    say: impl Fn(&HookedCall<'_>, Result<&Value, &ToolError>) -> Result<AfterDecision, ToolError> + Send + Sync + 'static,
) -> FnHook {
    FnHook { before: Box::new(|_| Ok(BeforeDecision::Pass)), after: Box::new(say) }
}

impl Hook for FnHook {
    fn before<'a>(&'a self, call: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        Box::pin(async move { (self.before)(call) })
    }

    fn after<'a>(
        &'a self,
        call: &'a HookedCall<'a>,
        result: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        Box::pin(async move { (self.after)(call, result) })
    }
}

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

/// A tool that returns `{"secret": 42}`, with one hook.
async fn hub(hook: impl Hook) -> (ToolHub, ScriptedTool) {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}});
    let (tool, script) = scripted("it", [ScriptStep::Return(json!({"secret": 42}))]);
    (builder().tool(tool.parameters(schema)).hook("it", hook).build().await.unwrap(), script)
}

async fn call(hub: &ToolHub) -> Outcome {
    hub.call("it", json!({"n": 1})).thread("t1").await
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_lets_everything_pass_changes_nothing() {
    struct NoopHook;
    impl Hook for NoopHook {}
    let (hub, script) = hub(NoopHook).await;
    assert_eq!(call(&hub).await.assert_success(), &json!({"secret": 42}));
    assert_eq!(script.recorded_arguments(), [json!({"n": 1})]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_stop_a_call_and_the_model_reads_its_words() {
    let (hub, script) = hub(before_hook(|_| Ok(BeforeDecision::Block("not on a sunday".into())))).await;
    let outcome = call(&hub).await;
    let text = outcome.assert_effect(Effect::None).assert_error(ErrorKind::Forbidden);
    assert_eq!(text, "not on a sunday");
    assert!(script.recorded_arguments().is_empty());
    assert_eq!(outcome.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_rewrite_the_arguments_and_they_are_checked_like_any_others() {
    let (hub, script) = hub(before_hook(|_| Ok(BeforeDecision::Rewrite(json!({"n": 9}))))).await;
    call(&hub).await.assert_success();
    hub.call("it", json!({"n": "not even a number"})).await.assert_success();
    assert_eq!(script.recorded_arguments(), [json!({"n": 9}), json!({"n": 9})]);

    let (hub, script) = self::hub(before_hook(|_| Ok(BeforeDecision::Rewrite(json!({"n": 10}))))).await;
    let text = call(&hub).await.assert_error(ErrorKind::ArgumentsInvalid);
    assert!(text.contains('n') && text.contains('9'), "{text}");
    assert!(script.recorded_arguments().is_empty());

    // A hook cannot bypass a rule that denies the call.
    let (tool, script) = scripted("it", []);
    let rewrites = before_hook(|_| Ok(BeforeDecision::Rewrite(json!({"n": 13}))));
    let hub = builder().tool(tool).hook("*", rewrites).rule(Rule::deny("it").when("/n", "^13$")).build().await.unwrap();
    call(&hub).await.assert_error(ErrorKind::Forbidden);
    assert!(script.recorded_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_says_stands_beside_the_result() {
    let adds_text = FnHook {
        before: Box::new(|_| Ok(BeforeDecision::AddNote("asked politely".into()))),
        after: Box::new(|_, _| Ok(AfterDecision::AddNote("answered politely".into()))),
    };
    let (hub, _) = hub(adds_text).await;
    let outcome = call(&hub).await;
    assert_eq!(outcome.assert_success(), &json!({"secret": 42}), "the output itself is unchanged");
    assert_eq!(outcome.model_text(), "{\"secret\":42}\nasked politely\nanswered politely");
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_replace_the_result_and_nobody_sees_the_old_one() {
    let replaces = FnHook {
        before: Box::new(|_| Ok(BeforeDecision::AddNote("asked politely".into()))),
        after: Box::new(|_, _| Ok(AfterDecision::Rewrite(json!("***")))),
    };
    let (hub, _) = hub(replaces).await;
    let mut events = EventRecorder::new(&hub);
    let outcome = call(&hub).await;
    assert_eq!(outcome.assert_success(), &json!("***"));
    assert_eq!(outcome.model_text(), "***\nasked politely", "text added before the call is kept");
    let record = hub.call_record(&Tenant::default(), outcome.id).await.unwrap().unwrap();
    for text in [format!("{record:?}"), format!("{:?}", events.events()), format!("{outcome:?}")] {
        assert!(!text.contains("secret") && !text.contains("42}"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_withhold_the_result_and_what_was_done_stays_done() {
    let hub = builder()
        .tool(tool("add_to_cart", add_to_cart))
        .tool(tool("show_cart", show_cart).read_only())
        .hook("add_*", after_hook(|_, _| Ok(AfterDecision::Block("the cart is private".into()))))
        .build()
        .await
        .unwrap();
    let mut events = EventRecorder::new(&hub);
    let outcome = hub.call("add_to_cart", json!({"sku": "latte", "qty": 77})).thread("t1").await;
    let text = outcome.assert_effect(Effect::Done).assert_error(ErrorKind::Forbidden);
    assert_eq!(text, "the cart is private\nThe tool itself had finished before; do not repeat the call.");
    assert_eq!((&outcome.output, outcome.content.is_empty()), (&Value::Null, true));
    assert!(!outcome.error.as_ref().unwrap().retryable);
    let record = hub.call_record(&Tenant::default(), outcome.id).await.unwrap().unwrap();
    assert_eq!(record.outcome.as_ref().map(|outcome| &outcome.output), Some(&Value::Null));
    let shown = hub.call("show_cart", json!({})).thread("t1").await;
    assert_eq!(shown.assert_success(), &json!([["latte", 77]]), "its state is committed");
    let counted = events.events().iter().any(|event| matches!(event.kind, EventKind::ToolFailed { counts: true, .. }));
    assert!(!counted, "it does not count against the tool");
}

#[tokio::test(start_paused = true)]
async fn a_failure_can_be_withheld_like_a_result() {
    let (tool, _) = scripted("it", [ScriptStep::Fail(ToolError::new("no row for password 42"))]);
    let hook = after_hook(|_, result| {
        Ok(if result.is_err() { AfterDecision::Block("it failed".into()) } else { AfterDecision::Pass })
    });
    let hub = builder().tool(tool).hook("it", hook).build().await.unwrap();
    let outcome = call(&hub).await;
    let text = outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::Forbidden);
    assert!(text.starts_with("it failed") && !text.contains("42"), "{text}");
    call(&hub).await.assert_success();
}

/// A state that cannot be serialized.
#[derive(Default, Deserialize)]
struct UnserializableState;
impl Serialize for UnserializableState {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("scripted"))
    }
}
impl ToolState for UnserializableState {
    const NAME: &'static str = "unwritable";
}

#[tokio::test(start_paused = true)]
async fn a_withheld_result_stays_withheld_when_the_state_cannot_be_kept() {
    async fn tell(_: NoArguments, mut state: State<UnserializableState>) -> Result<&'static str, ToolError> {
        *state = UnserializableState;
        Ok("secret")
    }
    let hook = after_hook(|_, _| Ok(AfterDecision::Block("no".into())));
    let hub = builder().tool(tool("it", tell)).hook("it", hook).build().await.unwrap();
    let outcome = hub.call("it", json!({})).thread("t1").await;
    assert!(outcome.error.is_some());
    assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
}

/// The ways in which a hook can fail.
#[derive(Clone, Copy, Debug)]
enum HookFailure {
    Errs,
    Panics,
    PanicsAtOnce,
    Hangs,
}

struct FailingHook {
    failure: HookFailure,
    before: bool,
}

impl FailingHook {
    fn fail<'a, T: 'a>(&self) -> BoxFuture<'a, Result<T, ToolError>> {
        let how = self.failure;
        assert!(!matches!(how, HookFailure::PanicsAtOnce), "scripted {how:?}");
        Box::pin(async move {
            match how {
                HookFailure::Errs => Err(ToolError::new("the guard has lost its key")),
                HookFailure::Panics | HookFailure::PanicsAtOnce => panic!("scripted {how:?}"),
                HookFailure::Hangs => std::future::pending().await,
            }
        })
    }
}

impl Hook for FailingHook {
    fn before<'a>(&'a self, _: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        if self.before { self.fail() } else { Box::pin(async { Ok(BeforeDecision::Pass) }) }
    }

    fn after<'a>(
        &'a self,
        _: &'a HookedCall<'a>,
        _: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        if self.before { Box::pin(async { Ok(AfterDecision::Pass) }) } else { self.fail() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_errs_panics_or_hangs_fails_closed() {
    crate::call_endings::silence_scripted_panics();
    for how in [HookFailure::Errs, HookFailure::Panics, HookFailure::PanicsAtOnce, HookFailure::Hangs] {
        for before in [true, false] {
            let (hub, script) = hub(FailingHook { failure: how, before }).await;
            let began = tokio::time::Instant::now();
            let outcome = call(&hub).await;
            let text = outcome.assert_error(ErrorKind::Forbidden);
            assert_eq!(outcome.effect, if before { Effect::None } else { Effect::Done }, "{how:?}");
            assert_eq!(script.recorded_arguments().len(), usize::from(!before), "{how:?}");
            assert!(!format!("{outcome:?}").contains("secret\""), "{outcome:?}");
            for inside in ["guard", "scripted"] {
                assert!(!text.contains(inside), "the cause is for operators only: {text}");
            }
            assert!(began.elapsed() <= Duration::from_secs(10), "{how:?} took {:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_wait_for_a_hook() {
    let (hub, script) = hub(FailingHook { failure: HookFailure::Hangs, before: true }).await;
    let began = tokio::time::Instant::now();
    let call = hub.call("it", json!({})).start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    call.cancel();
    call.await.assert_effect(Effect::None).assert_error(ErrorKind::Cancelled);
    assert_eq!((began.elapsed(), script.recorded_arguments().len()), (Duration::from_secs(1), 0));
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_for_the_tools_it_names() {
    let names = ["pay", "pay_back", "show"];
    for (glob, blocked) in
        [("pay", vec!["pay"]), ("pay*", vec!["pay", "pay_back"]), ("*", names.to_vec()), ("x*", vec![])]
    {
        let tools = names.map(|name| scripted(name, []).0);
        let block = before_hook(|call| Ok(BeforeDecision::Block(format!("no {}", call.tool.name))));
        let hub = builder().tools(tools).hook(glob, block).build().await.unwrap();
        let mut refused = Vec::new();
        for name in names {
            let outcome = hub.call(name, json!({})).await;
            if outcome.error_kind() == Some(ErrorKind::Forbidden) {
                assert_eq!(outcome.model_text(), format!("no {name}"));
                refused.push(name);
            }
        }
        assert_eq!(refused, blocked, "{glob}");
        hub.register(scripted("pay_more", []).0).unwrap();
        let later = hub.call("pay_more", json!({})).await;
        assert_eq!(later.is_success(), !["pay*", "*"].contains(&glob), "hooks also apply to tools registered later");
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_the_order_they_were_given_each_on_what_the_one_before_left() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = |name: &'static str| {
        let (seen, log) = (seen.clone(), seen.clone());
        FnHook {
            before: Box::new(move |call| {
                seen.lock().unwrap().push(format!("before {name} {}", call.arguments));
                Ok(BeforeDecision::Rewrite(json!({name: call.arguments})))
            }),
            after: Box::new(move |_, result| {
                let output = result.map_err(Clone::clone)?;
                log.lock().unwrap().push(format!("after {name} {output}"));
                Ok(AfterDecision::Rewrite(json!([output, name])))
            }),
        }
    };
    let (tool, script) = scripted("it", [ScriptStep::Return(json!(0))]);
    let hub = builder().tool(tool).hook("*", hook("a")).hook("i*", hook("b")).build().await.unwrap();
    let outcome = hub.call("it", json!({})).await;
    assert_eq!(outcome.assert_success(), &json!([[0, "a"], "b"]));
    assert_eq!(script.recorded_arguments(), [json!({"b": {"a": {}}})]);
    let expected = ["before a {}", "before b {\"a\":{}}", "after a 0", "after b [0,\"a\"]"];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_first_hook_that_blocks_has_the_last_word() {
    for (first, second, log) in [(true, false, 1), (false, true, 2), (true, true, 1)] {
        let attempts = Arc::new(Mutex::new(0));
        let hook = |blocks: bool| {
            let attempts = attempts.clone();
            before_hook(move |_| {
                *attempts.lock().unwrap() += 1;
                Ok(if blocks { BeforeDecision::Block("no".into()) } else { BeforeDecision::Pass })
            })
        };
        let (tool, script) = scripted("it", []);
        let hub = builder().tool(tool).hook("*", hook(first)).hook("*", hook(second)).build().await.unwrap();
        call(&hub).await.assert_error(ErrorKind::Forbidden);
        assert_eq!((*attempts.lock().unwrap(), script.recorded_arguments().len()), (log, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_sees_who_calls_and_looks_at_a_cached_answer_too() {
    let hook = after_hook(|call, _| {
        Ok(if call.caller.as_str() == "guest" {
            AfterDecision::Block("not for guests".into())
        } else {
            AfterDecision::Pass
        })
    });
    let (tool, script) = scripted("it", [ScriptStep::Return(json!("secret"))]);
    let tool = tool.read_only().cache(Duration::from_secs(60));
    let hub = builder().tool(tool).hook("it", hook).build().await.unwrap();
    let call = async |caller: &'static str| hub.call("it", json!({})).caller(Caller::new(caller).unwrap()).await;
    call("owner").await.assert_success();
    let cached = call("owner").await;
    assert_eq!((cached.cached, cached.assert_success()), (true, &json!("secret")));
    let guest = call("guest").await;
    guest.assert_error(ErrorKind::Forbidden);
    assert!(!format!("{guest:?}").contains("secret"), "{guest:?}");
    assert_eq!(script.recorded_arguments().len(), 1);
    let stats = hub.tool_stats("it").unwrap();
    assert_eq!((stats.calls, stats.cache_hits, stats.errors), (3, 2, [("forbidden", 1)].into()));
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_says_about_one_call_is_not_said_to_another() {
    let adds_text = FnHook {
        before: Box::new(|call| Ok(BeforeDecision::AddNote(format!("welcome, {}", call.caller)))),
        after: Box::new(|call, _| Ok(AfterDecision::AddNote(format!("goodbye, {}", call.caller)))),
    };
    let (tool, script) = scripted("it", [ScriptStep::Return(json!("here"))]);
    let hub =
        builder().tool(tool.read_only().cache(Duration::from_secs(60))).hook("it", adds_text).build().await.unwrap();
    for caller in ["ann", "bob"] {
        let outcome = hub.call("it", json!({})).caller(Caller::new(caller).unwrap()).await;
        assert_eq!(outcome.model_text(), format!("here\nwelcome, {caller}\ngoodbye, {caller}"));
    }
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test]
async fn a_tool_that_runs_again_after_a_conflict_is_seen_each_time() {
    #[derive(Default, Serialize, Deserialize)]
    struct Count(u64);
    impl ToolState for Count {
        const NAME: &'static str = "count";
    }
    let store = Arc::new(Memory::new());
    let others = ToolHub::builder().shared_store(store.clone()).tool(tool("others", add)).build().await.unwrap();
    async fn add(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
        count.0 += 1;
        Ok(count.0)
    }
    let rerun = move |_: NoArguments, mut count: State<Count>| {
        let others = others.clone();
        async move {
            if count.0 == 0 {
                others.call("others", json!({})).thread("t").await.assert_success();
            }
            count.0 += 1;
            Ok::<_, ToolError>(count.0)
        }
    };
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let hook = after_hook({
        let seen = seen.clone();
        move |_, result| {
            seen.lock().unwrap().push(result.unwrap().clone());
            Ok(AfterDecision::Pass)
        }
    });
    let rerun = tool("again", rerun).rerunnable().on_conflict(ConflictResolution::Retry);
    let hub = ToolHub::builder().shared_store(store).tool(rerun).hook("again", hook).build().await.unwrap();
    assert_eq!(hub.call("again", json!({})).thread("t").await.assert_success(), &json!(2));
    assert_eq!(*seen.lock().unwrap(), [json!(1), json!(2)]);
}
