//! State failures: timeouts, panics, failing stores, sessions that expire in the middle of a call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolhub::{
    AfterDecision, BoxFuture, ConflictResolution, ContextId, HistoryEvent, Hook, HookedCall, ManagerType,
    StateManagerConfig,
    backend::{Backend, Memory},
    dynamic_stateful,
    ids::StateName,
    prelude::*,
    testing::{AssertOutcome, TestClock},
};

use crate::{call_endings::silence_scripted_panics, faulty_store::FaultyStore};

#[derive(Default, Serialize, Deserialize)]
struct Count {
    n: u64,
}
impl ToolState for Count {
    const NAME: &'static str = "count";
}

async fn add(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
    count.n += 1;
    Ok(count.n)
}

fn id(text: &str) -> ContextId {
    text.parse().unwrap()
}

async fn data(hub: &ToolHub, context: &str) -> Option<Value> {
    let entry = hub.state().get_state(&Tenant::default(), &id(context), StateKind::Business).await.unwrap();
    entry.map(|entry| entry.data)
}

async fn hub_on(store: Arc<dyn Backend>, tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().shared_store(store).tools(tools).build().await.unwrap()
}

#[tokio::test]
async fn a_tool_that_conflicts_with_itself_at_every_run_ends_when_its_time_is_up() {
    let meets_itself = async |_: NoArguments, mut count: State<Count>, cx: CallContext| {
        count.n += 1;
        let by_hand = cx.state(&StateName::new("count")?)?;
        by_hand.set(StateKind::Business, json!({"n": 1}), None).await?;
        Ok::<_, ToolError>(())
    };
    let rerun = tool("again", meets_itself).rerunnable().on_conflict(ConflictResolution::Retry);
    let hub = hub_on(Arc::new(Memory::new()), [rerun.timeout(Duration::from_millis(100))]).await;
    let call = hub.call("again", json!({})).thread("t");
    let outcome = tokio::time::timeout(Duration::from_secs(20), call).await.expect("it ends");
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_got_its_turn_has_done_nothing_and_says_nothing_about_its_tool() {
    let began = Arc::new(tokio::sync::Notify::new());
    let tell = began.clone();
    let slow = move |_: NoArguments, mut count: State<Count>| {
        let tell = tell.clone();
        async move {
            count.n += 1;
            tell.notify_one();
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, ToolError>(count.n)
        }
    };
    let tools = [tool("slow", slow), tool("add", add).timeout(Duration::from_secs(1))];
    let hub = hub_on(Arc::new(Memory::new()), tools).await;
    let slow = hub.call("slow", json!({})).thread("t").start();
    began.notified().await;
    for _ in 0..5 {
        let outcome = hub.call("add", json!({})).thread("t").await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::Timeout);
    }
    let left = hub.call("add", json!({})).thread("t").start();
    tokio::task::yield_now().await;
    left.cancel();
    left.await.assert_effect(Effect::None).assert_error(ErrorKind::Cancelled);
    slow.await.assert_success();
    assert_eq!(hub.call("add", json!({})).thread("t").await.assert_success(), &json!(2));
}

struct WithholdingHook;
impl Hook for WithholdingHook {
    fn after<'a>(
        &'a self,
        _: &'a HookedCall<'a>,
        _: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        Box::pin(async { Ok(AfterDecision::Block("not for you".into())) })
    }
}

#[tokio::test]
async fn a_refused_commit_is_told_even_where_the_result_is_withheld() {
    let meets_itself = async |_: NoArguments, mut count: State<Count>, cx: CallContext| {
        count.n += 1;
        let by_hand = cx.state(&StateName::new("count")?)?;
        by_hand.set(StateKind::Business, json!({"n": 7}), None).await?;
        Ok::<_, ToolError>(())
    };
    let hub = ToolHub::builder().tool(tool("add", meets_itself)).hook("add", WithholdingHook).build().await.unwrap();
    let outcome = hub.call("add", json!({})).thread("t").await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::Forbidden);
    let operator = outcome.error.unwrap().operator;
    assert!(operator.contains("not for you") && operator.contains("a concurrent write"), "{operator}");
}

#[tokio::test]
async fn a_counter_of_calls_at_its_end_stops_no_call() {
    let hub = hub_on(Arc::new(Memory::new()), [tool("add", add)]).await;
    let used = json!({"calls": u64::MAX});
    hub.state().set_state(&Tenant::default(), &id("t/count"), StateKind::Session, used, None).await.unwrap();
    for _ in 0..2 {
        hub.call("add", json!({})).thread("t").await.assert_success();
    }
}

#[tokio::test]
async fn a_state_the_tool_has_given_away_is_told_in_the_history_as_a_failure() {
    let gives_away = async |_: NoArguments, mut count: State<Count>| {
        count.n += 1;
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            count.n += 1;
        });
        Ok::<_, ToolError>("gone")
    };
    let hub = hub_on(Arc::new(Memory::new()), [tool("away", gives_away), tool("add", add)]).await;
    let outcome = hub.call("away", json!({})).thread("t").await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
    assert_eq!(outcome.output, "gone", "its effect is not undone");
    assert_eq!(data(&hub, "t/count").await, None);
    let history = hub.state().history(&Tenant::default(), &id("t/count"), 9).await.unwrap();
    let error = |entry: &toolhub::HistoryEntry| matches!(entry.event, HistoryEvent::ExecutionError { .. });
    assert_eq!((history.len(), history.iter().filter(|entry| error(entry)).count()), (2, 1), "{history:?}");
    assert_eq!(hub.call("add", json!({})).thread("t").await.assert_success(), &json!(1));
}

#[tokio::test]
async fn whatever_of_a_type_panics_the_call_ends_and_the_next_one_has_its_turn() {
    silence_scripted_panics();
    static PANIC_AT: AtomicU64 = AtomicU64::new(0);
    fn panic_at(place: u64) {
        assert!(PANIC_AT.load(Ordering::SeqCst) != place, "scripted: in {place}");
    }
    struct PanickingState(u64);
    impl Default for PanickingState {
        fn default() -> Self {
            panic_at(1);
            Self(0)
        }
    }
    impl Serialize for PanickingState {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            panic_at(2);
            self.0.serialize(to)
        }
    }
    impl<'de> Deserialize<'de> for PanickingState {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            panic_at(3);
            u64::deserialize(from).map(Self)
        }
    }
    impl Drop for PanickingState {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic_at(4);
            }
        }
    }
    impl ToolState for PanickingState {
        const NAME: &'static str = "fragile";
    }
    async fn step(_: NoArguments, mut state: State<PanickingState>) -> Result<u64, ToolError> {
        state.0 += 1;
        Ok(state.0)
    }
    async fn fail(_: NoArguments, mut state: State<PanickingState>) -> Result<u64, ToolError> {
        state.0 += 1;
        Err(ToolError::new("no"))
    }
    for name in ["step", "fail"] {
        for place in 1..=4 {
            let hub = hub_on(Arc::new(Memory::new()), [tool("step", step), tool("fail", fail)]).await;
            if place > 1 {
                hub.call("step", json!({})).thread("t").await.assert_success();
            }
            PANIC_AT.store(place, Ordering::SeqCst);
            let outcome = hub.call(name, json!({})).thread("t").await;
            PANIC_AT.store(0, Ordering::SeqCst);
            let record = hub.call_record(&Tenant::default(), outcome.id).await.unwrap().unwrap();
            assert_eq!(record.outcome.map(|it| it.error_kind()), Some(outcome.error_kind()), "{name} {place}");
            assert!(
                [None, Some(ErrorKind::Crashed), Some(ErrorKind::ToolError)].contains(&outcome.error_kind()),
                "{name} {place}: {outcome:?}"
            );
            hub.call("step", json!({})).thread("t").await.assert_success();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_a_caller_leaves_the_next_call_has_its_turn_and_nothing_is_half_done() {
    for pauses in 0..60 {
        let hub = hub_on(Arc::new(FaultyStore::default()), [tool("add", add)]).await;
        {
            let mut call = std::pin::pin!(hub.call("add", json!({})).thread("t").into_future());
            let mut left = pauses;
            std::future::poll_fn(|cx| {
                if left == 0 || call.as_mut().poll(cx).is_ready() {
                    return std::task::Poll::Ready(());
                }
                left -= 1;
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
        }
        let second = hub.call("add", json!({})).thread("t").await;
        let n = second.assert_success().as_u64().unwrap();
        assert!((1..=2).contains(&n), "{pauses}: {n}");
        assert_eq!(data(&hub, "t/count").await, Some(json!({"n": n})), "{pauses}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_store_fails_at_the_commit_the_result_is_kept_and_the_next_call_goes_on() {
    for (which, wrote) in [("gone", false), ("hangs", false), ("loses_answers", true)] {
        let store = Arc::new(FaultyStore::default());
        let breaks = store.clone();
        let work = move |_: NoArguments, mut count: State<Count>| {
            let store = breaks.clone();
            async move {
                count.n += 1;
                let flag = match which {
                    "gone" => &store.unavailable,
                    "hangs" => &store.hangs,
                    _ => &store.loses_acks,
                };
                flag.store(true, Ordering::Release);
                Ok::<_, ToolError>("done")
            }
        };
        let hub = hub_on(store.clone(), [tool("work", work), tool("add", add)]).await;
        let outcome = hub.call("work", json!({})).thread("t").await;
        outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StoreUnavailable);
        assert_eq!(outcome.output, "done");
        for flag in [&store.unavailable, &store.hangs, &store.loses_acks] {
            flag.store(false, Ordering::Release);
        }
        let next = hub.call("add", json!({})).thread("t").await;
        assert_eq!(next.assert_success(), &json!(1 + u64::from(wrote)), "{which}");
    }
}

#[tokio::test]
async fn what_was_gone_with_its_session_does_not_come_back_when_a_call_ends() {
    let clock = TestClock::new();
    let config = StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() };
    let jumps = clock.clone();
    let long = move |_: NoArguments, mut count: State<Count>, cx: CallContext| {
        let clock = jumps.clone();
        async move {
            count.n += 1;
            clock.jump(61 * 60_000);
            let other = cx.state(&StateName::new("other")?)?;
            assert!(other.get(StateKind::Business).await?.is_none(), "its session has expired");
            Ok::<_, ToolError>(())
        }
    };
    let hub = ToolHub::builder()
        .clock(clock.clone())
        .state_manager(config)
        .tool(tool("long", long))
        .tool(tool("add", add))
        .build()
        .await
        .unwrap();
    hub.call("add", json!({})).thread("t").await.assert_success();
    let (state, tenant) = (hub.state(), Tenant::default());
    state.set_state(&tenant, &id("t/other"), StateKind::Business, json!({"a": 1}), None).await.unwrap();
    hub.call("long", json!({})).thread("t").await.assert_error(ErrorKind::StateConflict);
    assert_eq!(data(&hub, "t/other").await, None, "it had expired, and stays deleted");
    assert_eq!(hub.call("add", json!({})).thread("t").await.assert_success(), &json!(1));
}

#[tokio::test]
async fn a_state_that_expires_during_a_call_is_said_to_have_done_so() {
    let clock = TestClock::new();
    let jumps = clock.clone();
    let long = move |_: NoArguments, mut count: State<Count>| {
        let clock = jumps.clone();
        async move {
            count.n += 1;
            clock.jump(61_000);
            Ok::<_, ToolError>(())
        }
    };
    let hub = ToolHub::builder()
        .clock(clock.clone())
        .state_manager(StateManagerConfig { ttl: Some(Duration::from_secs(60)), ..Default::default() })
        .tool(tool("long", long))
        .tool(tool("add", add))
        .build()
        .await
        .unwrap();
    hub.call("add", json!({})).thread("t").await.assert_success();
    let outcome = hub.call("long", json!({})).thread("t").await;
    outcome.assert_error(ErrorKind::StateConflict);
    let operator = outcome.error.unwrap().operator;
    assert!(operator.contains("expired") && !operator.contains("a concurrent write"), "{operator}");
}

#[tokio::test]
async fn two_layouts_of_a_state_are_not_merged_as_json() {
    let store = Arc::new(Memory::new());
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap().state();
    let mine = move |_: Value, _: CallContext| {
        let other = other.clone();
        async move {
            let theirs = r#"{"context":"t/notes","business":{"version":2,"schema":2,"data":{"lines":["a"]}}}"#;
            other.import(&Tenant::default(), theirs).await.unwrap();
            Ok(toolhub::JsonReply::with_state(json!(1), json!({"text": "a", "n": 1})))
        }
    };
    let notes = dynamic_stateful("notes", "notes", json!({"type": "object"}), mine);
    let hub = hub_on(store, [notes.on_conflict(ConflictResolution::Merge)]).await;
    let (state, tenant) = (hub.state(), Tenant::default());
    state.set_state(&tenant, &id("t/notes"), StateKind::Business, json!({"text": "a"}), None).await.unwrap();
    let outcome = hub.call("notes", json!({})).thread("t").await;
    outcome.assert_error(ErrorKind::StateConflict);
    assert!(outcome.error.unwrap().operator.contains("layout"));
    assert_eq!(data(&hub, "t/notes").await, Some(json!({"lines": ["a"]})));
}

#[tokio::test(start_paused = true)]
async fn a_step_of_calls_inside_a_call_on_the_same_state_is_no_deadlock() {
    let hub: Arc<std::sync::OnceLock<ToolHub>> = Arc::default();
    let inner = hub.clone();
    let outer = move |_: NoArguments, mut count: State<Count>| {
        let hub = inner.clone();
        async move {
            count.n += 1;
            let hub = hub.get().unwrap();
            let calls = ["t", "u"].map(|thread| hub.call("add", json!({})).thread(thread));
            let all = hub.batch(calls).await;
            Ok::<_, ToolError>(all.iter().map(|it| it.error_kind().map(|kind| kind.to_string())).collect::<Vec<_>>())
        }
    };
    let built = hub_on(Arc::new(Memory::new()), [tool("outer", outer), tool("add", add)]).await;
    let outcome = hub.get_or_init(|| built).call("outer", json!({})).thread("t").await;
    assert_eq!(outcome.assert_success(), &json!(["state_conflict", null]));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_does_not_begin_when_the_one_it_waited_for_is_cancelled_too() {
    let began = Arc::new(tokio::sync::Notify::new());
    let tell = began.clone();
    let slow = move |_: NoArguments, mut count: State<Count>| {
        let tell = tell.clone();
        async move {
            count.n += 1;
            tell.notify_one();
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, ToolError>(count.n)
        }
    };
    let hub = hub_on(Arc::new(Memory::new()), [tool("slow", slow), tool("add", add)]).await;
    let slow = hub.call("slow", json!({})).thread("t").start();
    began.notified().await;
    let waiting: Vec<_> = (0..5).map(|_| hub.call("add", json!({})).thread("t").start()).collect();
    tokio::task::yield_now().await;
    hub.shutdown(Duration::from_secs(1)).await;
    for call in waiting {
        let outcome = call.await;
        outcome.assert_effect(Effect::None);
        assert!(!outcome.is_success());
    }
    assert!(!slow.await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_state_does_not_come_has_done_nothing() {
    struct UnreachableTool;
    impl StatefulTool for UnreachableTool {
        type Arguments = NoArguments;
        type State = Count;
        type Output = ();
        async fn call(&self, _: NoArguments, _: &mut Count, _: &CallContext) -> Result<(), ToolError> {
            panic!("it must not run without its state");
        }
    }
    let json =
        async |_: Value, _: CallContext| -> Result<Value, ToolError> { panic!("it must not run without its state") };
    let store = Arc::new(FaultyStore::default());
    let tools = [
        tool("function", add),
        stateful("object", UnreachableTool),
        dynamic_stateful("json", "count", json!({"type": "object"}), json),
        toolhub::legacy_stateful("legacy", |_, _| -> Value { panic!("it must not run without its state") }),
    ];
    let hub =
        ToolHub::builder().shared_store(store.clone()).tools(tools.map(ToolBuilder::no_retry)).build().await.unwrap();
    for name in ["function", "object", "json", "legacy"] {
        for _ in 0..4 {
            store.hangs_on_state_loads.store(true, Ordering::Release);
            let outcome = hub.call(name, json!({})).thread("t").timeout(Duration::from_secs(1)).await;
            store.hangs_on_state_loads.store(false, Ordering::Release);
            outcome.assert_effect(Effect::None).assert_error(ErrorKind::Timeout);
        }
    }
    assert_eq!(hub.call("function", json!({})).thread("t").await.assert_success(), &json!(1));
}

#[tokio::test]
async fn a_long_error_is_told_by_its_beginning() {
    let fails = async |_: NoArguments, _: State<Count>| Err::<(), _>(ToolError::new("x".repeat(1_000_000)));
    let hub = hub_on(Arc::new(Memory::new()), [tool("fails", fails)]).await;
    hub.call("fails", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    let history = hub.state().history(&Tenant::default(), &id("t/count"), 9).await.unwrap();
    assert!(serde_json::to_string(&history).unwrap().len() < 20_000);
}
