//! One call through the whole pipeline: results, refusals, failures.

use std::time::Duration;

use toolhub::{
    Status,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, scripted},
};

use crate::shop_tools::{add, shop_hub};

#[tokio::test(start_paused = true)]
async fn a_call_returns_what_the_function_returned() {
    let hub = shop_hub().await;
    let outcome = hub.call("add", json!({"a": 1, "b": 2})).await;
    assert_eq!(outcome.assert_success(), &json!(3));
    assert_eq!((outcome.status, outcome.effect, outcome.attempts), (Status::Success, Effect::None, 1));
    assert_eq!(outcome.output_as::<i64>().unwrap(), 3);
    assert_eq!(outcome.model_text(), "3");
    assert_eq!(outcome.started_at.to_string(), "2024-01-01T12:00:00.000Z");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_refused_with_the_closest_names() {
    let hub = shop_hub().await;
    let outcome = hub.call("add_cart", json!({})).await;
    let text = outcome.assert_error(ErrorKind::ToolNotFound);
    assert_eq!(text, "There is no tool named `add_cart`. Did you mean `add_to_cart`?");
    assert_eq!(outcome.error.as_ref().unwrap().suggestions()[0], "add_to_cart");
    outcome.assert_effect(Effect::None);
    assert_eq!(outcome.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn wrong_arguments_are_refused_with_words_a_model_can_act_on() {
    let hub = shop_hub().await;
    let outcome = hub.call("add", json!({"a": "one", "bb": 2})).await;
    let text = outcome.assert_error(ErrorKind::ArgumentsInvalid);
    assert!(text.contains("a: expected an integer"), "{text}");
    assert!(text.contains("b: missing"), "{text}");
    assert_eq!(outcome.attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn no_arguments_may_be_written_as_null() {
    let hub = shop_hub().await;
    hub.call("show_cart", Value::Null).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_says_no_is_an_error_of_its_own_words_that_does_not_count() {
    let hub = shop_hub().await;
    let outcome = hub.call("add", json!({"a": i64::MAX, "b": 1})).await;
    assert_eq!(outcome.assert_error(ErrorKind::ToolRefused), "the sum is too large");
    let error = outcome.error.unwrap();
    assert_eq!(error.kind.name(), "tool_error");
    assert!(!error.counts);
}

#[tokio::test(start_paused = true)]
async fn an_error_from_a_question_mark_is_for_operators_only() {
    async fn leaky(_: NoArguments) -> Result<(), ToolError> {
        Err(std::io::Error::other("cannot open https://user:hunter2@internal"))?
    }
    let hub = ToolHub::builder().tool(tool("leaky", leaky)).build().await.unwrap();
    let outcome = hub.call("leaky", json!({})).await;
    let text = outcome.assert_error(ErrorKind::ToolError);
    assert!(!text.contains("hunter2"), "{text}");
    assert!(outcome.error.unwrap().operator.contains("internal"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_with_effects_says_that_nobody_knows_what_it_did() {
    let (wire, _) = scripted("wire", [ScriptStep::Fail(ToolError::new("the line broke"))]);
    let hub = ToolHub::builder().tool(wire).build().await.unwrap();
    let outcome = hub.call("wire", json!({"amount": 5})).await;
    let text = outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::ToolError);
    assert_eq!(text, "the line broke\nWhether the call took effect is not known; check before you repeat it.");
}

#[tokio::test(start_paused = true)]
async fn a_text_that_is_no_thread_id_is_refused() {
    let hub = shop_hub().await;
    let outcome = hub.call("show_cart", json!({})).thread(format!("no/{}", "slashes".repeat(1_000))).await;
    outcome.assert_error(ErrorKind::ArgumentsInvalid);
    let operator = outcome.error.unwrap().operator;
    assert!(operator.contains("no/slashes") && operator.len() < 300, "{operator}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_remembers_gets_a_thread_of_its_own_where_none_is_named() {
    let hub = shop_hub().await;
    let first = hub.call("add_to_cart", json!({"sku": "tea", "qty": 1})).await;
    let thread = first.thread.clone().expect("a thread was minted");
    let repeated = hub.call("show_cart", json!({})).thread(thread.as_str()).await;
    assert_eq!(repeated.assert_success(), &json!([["tea", 1]]));
    assert_eq!(hub.call("add", json!({"a": 1, "b": 1})).await.thread, None);
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_the_caller_as_a_stream_that_ends_with_the_call() {
    use futures_util::StreamExt;
    let steps = [
        ScriptStep::Progress("half".into()),
        ScriptStep::Wait(Duration::from_secs(1)),
        ScriptStep::Progress("all".into()),
    ];
    let (slow, _) = scripted("slow", steps);
    let hub = ToolHub::builder().tool(slow.read_only()).build().await.unwrap();
    let mut running = hub.call("slow", json!({})).start();
    let messages: Vec<_> = running.progress().map(|progress| progress.message).collect().await;
    assert_eq!(messages, ["half", "all"]);
    running.await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn progress_keeps_an_idle_tool_alive_but_never_beyond_its_absolute_time() {
    let beat = || [ScriptStep::Progress("still here".into()), ScriptStep::Wait(Duration::from_secs(3))];
    let build = |beats: usize| {
        let (tool, _) = scripted("slow", (0..beats).flat_map(|_| beat()));
        tool.idle_timeout(Duration::from_secs(4)).timeout(Duration::from_secs(20))
    };
    for (beats, ends_well) in [(5, true), (9, false)] {
        let hub = ToolHub::builder().tool(build(beats)).build().await.unwrap();
        let outcome = hub.call("slow", json!({})).await;
        assert_eq!(outcome.is_success(), ends_well, "{beats} beats: {outcome:#?}");
    }
    let (silent, _) = scripted("slow", [ScriptStep::Wait(Duration::from_secs(5))]);
    let hub = ToolHub::builder().tool(silent.idle_timeout(Duration::from_secs(4))).build().await.unwrap();
    let text = hub.call("slow", json!({})).await.assert_error(ErrorKind::Timeout);
    assert!(text.starts_with("the tool reported no progress for 4s"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_shorten_the_time_of_a_tool_but_not_lengthen_it() {
    for (wanted, expected) in [(1, 1), (99, 10)] {
        let (slow, _) = scripted("slow", [ScriptStep::Hang]);
        let hub = ToolHub::builder().tool(slow.timeout(Duration::from_secs(10))).build().await.unwrap();
        let outcome = hub.call("slow", json!({})).timeout(Duration::from_secs(wanted)).await;
        outcome.assert_error(ErrorKind::Timeout);
        assert_eq!(outcome.duration, Duration::from_secs(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn unbounded_durations_do_not_overflow() {
    let (tool, _) = scripted("slow", [ScriptStep::Wait(Duration::from_secs(3600))]);
    let tool = tool.timeout(Duration::MAX).idle_timeout(Duration::MAX);
    let hub = ToolHub::builder().tool(tool).call_retention(Duration::MAX).build().await.unwrap();
    hub.call("slow", json!({})).timeout(Duration::MAX).await.assert_success();
    let (tool, _) = scripted("slow", [ScriptStep::Wait(Duration::from_nanos(1))]);
    let hub = ToolHub::builder().tool(tool.timeout(Duration::ZERO)).build().await.unwrap();
    hub.call("slow", json!({})).await.assert_error(ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_call_from_a_pinned_offer_finds_what_was_offered_then() {
    let hub = shop_hub().await;
    let pinned = hub.tools();
    hub.unregister("add").await.expect("the tool was registered");
    hub.call("add", json!({"a": 1, "b": 2})).await.assert_error(ErrorKind::ToolNotFound);
    assert_eq!(hub.call("add", json!({"a": 1, "b": 2})).from_offer(&pinned).await.assert_success(), &json!(3));
    hub.register(tool("add", add)).unwrap();
    assert!(hub.tools().revision() > pinned.revision());
}

#[tokio::test(start_paused = true)]
async fn every_call_is_told_once_as_started_and_once_as_ended() {
    let hub = shop_hub().await;
    let mut recorder = EventRecorder::new(&hub);
    hub.call("add", json!({"a": 1, "b": 2})).await;
    hub.call("add_to_cart", json!({"sku": "poison", "qty": 1})).await;
    hub.call("add", json!({})).await;
    assert_eq!(
        recorder.names(),
        [
            "tool.execution.started",
            "tool.execution.completed",
            "tool.executed",
            "tool.execution.started",
            "call.progress",
            "tool.execution.failed",
            "tool.failed",
            "tool.execution.failed",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_attaches_stands_beside_its_output() {
    async fn draw(_: NoArguments, cx: CallContext) -> Result<String, ToolError> {
        cx.attach(Content::Image { data: "aGk=".into(), mime_type: "image/png".into() });
        Ok("a drawing".into())
    }
    let hub = ToolHub::builder().tool(tool("draw", draw).read_only()).build().await.unwrap();
    let outcome = hub.call("draw", json!({})).await;
    assert_eq!(outcome.content.len(), 2);
    assert_eq!(outcome.model_text(), "a drawing");
    let wire = serde_json::to_value(&outcome).unwrap();
    assert_eq!(wire["content"][1], json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}));
}

#[tokio::test(start_paused = true)]
async fn the_owners_things_are_given_to_tools_that_ask_for_them() {
    struct Greeting(&'static str);
    async fn greet(_: NoArguments, greeting: Shared<Greeting>) -> Result<&'static str, ToolError> {
        Ok(greeting.0.0)
    }
    let hub =
        ToolHub::builder().resource(Greeting("hello")).tool(tool("greet", greet).read_only()).build().await.unwrap();
    assert_eq!(hub.call("greet", json!({})).await.assert_success(), &json!("hello"));
    let bare = ToolHub::builder().tool(tool("greet", greet).read_only()).build().await.unwrap();
    let outcome = bare.call("greet", json!({})).await;
    outcome.assert_error(ErrorKind::Internal);
    assert!(outcome.error.unwrap().operator.contains(".resource("));
}

#[tokio::test(start_paused = true)]
async fn a_tool_knows_the_call_it_serves() {
    async fn who(_: NoArguments, cx: CallContext) -> Result<Value, ToolError> {
        assert!(!cx.is_cancelled());
        let until_deadline = cx.deadline().saturating_duration_since(tokio::time::Instant::now());
        assert!(until_deadline <= Duration::from_secs(9) && until_deadline > Duration::from_secs(1));
        Ok(json!({
            "call": cx.call_id(), "tool": cx.tool(), "thread": cx.thread(), "tenant": cx.tenant(), "caller": cx.caller(),
            "key": cx.idempotency_key(), "run": cx.run(), "left": cx.time_left().as_secs(), "now": cx.now(),
        }))
    }
    let clock = toolhub::testing::TestClock::new();
    let hub = ToolHub::builder().clock(clock).tool(tool("who", who)).build().await.unwrap();
    let run = toolhub::ids::RunId::mint(toolhub::clock::Timestamp::from_millis(7));
    let call = hub
        .call("who", json!({}))
        .thread("t1")
        .tenant(toolhub::ids::Tenant::new("acme").unwrap())
        .caller(toolhub::ids::Caller::new("ann").unwrap())
        .run(run)
        .idempotency_key("k")
        .model_call("toolu_1")
        .timeout(Duration::from_secs(9));
    let id = call.id();
    let outcome = call.await;
    let expected = json!({
        "call": id, "tool": "who", "thread": "t1", "tenant": "acme", "caller": "ann", "key": "k", "run": run, "left": 9,
        "now": "2024-01-01T12:00:00.000Z",
    });
    assert_eq!(outcome.assert_success(), &expected);
    assert_eq!((outcome.id, outcome.model_call.as_deref()), (id, Some("toolu_1")));
    let tenant = toolhub::ids::Tenant::new("acme").unwrap();
    let record = hub.call_record(&tenant, id).await.unwrap().expect("calls with effects are recorded");
    assert_eq!((record.run, record.status), (Some(run), Status::Success));
    assert_eq!(hub.call_record(&toolhub::ids::Tenant::default(), id).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn work_a_tool_gave_away_hears_that_nobody_waits_any_more() {
    let (notify, notified) = tokio::sync::oneshot::channel();
    let notify = std::sync::Mutex::new(Some(notify));
    let delegate = move |_: NoArguments, cx: CallContext| {
        let notify = notify.lock().unwrap().take();
        async move {
            tokio::spawn(async move {
                cx.cancelled().await;
                notify.map(|notify| notify.send(()))
            });
            std::future::pending::<Result<(), ToolError>>().await
        }
    };
    let hub = ToolHub::builder().tool(tool("delegate", delegate).read_only()).build().await.unwrap();
    hub.call("delegate", json!({})).await.assert_error(ErrorKind::Timeout);
    notified.await.expect("the tool saw the cancellation");
}

#[test]
fn the_states_of_a_call_have_their_known_names() {
    use Status::{AwaitingApproval, Cancelled, Error, Executing, Scheduled, Success, Validating};
    let words = [Validating, AwaitingApproval, Scheduled, Executing, Success, Error, Cancelled];
    let words = words.map(|status| serde_json::to_value(status).unwrap());
    assert_eq!(words, ["validating", "awaiting_approval", "scheduled", "executing", "success", "error", "cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_is_never_told_more_than_it_can_bear_not_even_by_an_error() {
    let (wordy, _) = scripted("wordy", [ScriptStep::Fail(ToolError::new("no ".repeat(100_000)))]);
    let hub = ToolHub::builder().tool(wordy.read_only()).build().await.unwrap();
    assert_eq!(hub.call("wordy", json!({})).await.model_text().chars().count(), 25_001);
    assert!(hub.call("x".repeat(1_000_000), json!({})).await.model_text().len() < 200);
}

#[tokio::test(start_paused = true)]
async fn a_tool_cannot_pretend_that_its_call_was_never_made() {
    let forbidden_kinds = [ErrorKind::ToolNotFound, ErrorKind::Cancelled, ErrorKind::Forbidden];
    for kind in forbidden_kinds {
        let (liar, _) = scripted("liar", [ScriptStep::Fail(ToolError::with_kind(kind, "it was not me"))]);
        let hub = ToolHub::builder().tool(liar).build().await.unwrap();
        hub.call("liar", json!({})).await.assert_effect(Effect::Unknown).assert_error(ErrorKind::ToolError);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_cannot_be_given_leaves_the_world_alone() {
    struct Permit;
    impl toolhub::FromCall for Permit {
        async fn from_call(_: &CallContext) -> Result<Self, ToolError> {
            Err(ToolError::new("no permit today"))
        }
    }
    async fn dig(_: NoArguments, _: Permit) -> Result<(), ToolError> {
        Ok(())
    }
    let hub = ToolHub::builder().tool(tool("dig", dig)).build().await.unwrap();
    let outcome = hub.call("dig", json!({})).await;
    assert_eq!(outcome.assert_effect(Effect::None).assert_error(ErrorKind::ToolError), "no permit today");
}

#[tokio::test(start_paused = true)]
async fn progress_ends_with_the_call_even_if_the_tool_keeps_its_context() {
    use futures_util::StreamExt;
    let context_slot = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = context_slot.clone();
    let hoard = move |_: NoArguments, cx: CallContext| {
        cx.progress("begun");
        *keep.lock().unwrap() = Some(cx);
        async { Ok::<_, ToolError>(()) }
    };
    let hub = ToolHub::builder().tool(tool("hoard", hoard)).build().await.unwrap();
    let mut running = hub.call("hoard", json!({})).start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let messages: Vec<_> = running.progress().map(|progress| progress.message).collect().await;
    assert_eq!(messages, ["begun"]);
    running.await.assert_success();
    let context = context_slot.lock().unwrap().take().unwrap();
    assert!(!context.is_cancelled(), "a successful call was not cancelled");
}

/// Makes another call when it is dropped.
struct CallOnDrop(ToolHub);

impl Drop for CallOnDrop {
    fn drop(&mut self) {
        drop(self.0.call("stubborn", json!({"last": true})).detached().start());
    }
}

#[derive(Deserialize, JsonSchema)]
struct Last {
    #[serde(default)]
    last: bool,
}

#[tokio::test(start_paused = true)]
async fn a_hub_goes_down_although_calls_are_made_while_it_cancels_the_others() {
    let hub = ToolHub::builder().build().await.unwrap();
    let maker = hub.clone();
    let stubborn = move |Last { last }: Last| {
        let repeated = (!last).then(|| CallOnDrop(maker.clone()));
        async move {
            let _again = repeated;
            std::future::pending::<Result<(), ToolError>>().await
        }
    };
    hub.register(tool("stubborn", stubborn).timeout(Duration::from_secs(3600))).unwrap();
    let running = hub.call("stubborn", json!({})).start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = tokio::time::Instant::now();
    hub.shutdown(Duration::ZERO).await;
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    assert_eq!(hub.running_calls(), 0);
    running.await.assert_error(ErrorKind::Cancelled);
    hub.clear().await;
}
