//! Concurrent writers of one state: serialised inside a hub, and conflicts between two hubs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use toolhub_testkit::soak;

use crate::call_endings::silence_scripted_panics;
use toolhub::{
    BusinessStateConfig, ConflictResolution, StateManager, StateManagerConfig, backend::Memory, prelude::*,
    testing::AssertOutcome,
};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Count {
    count: u64,
    #[serde(default)]
    other: u64,
}
impl ToolState for Count {
    const NAME: &'static str = "count";
}

async fn add_one(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
    count.count += 1;
    // Gives other tasks a chance to run in between.
    tokio::task::yield_now().await;
    Ok(count.count)
}

async fn update_one(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
    let seen = count.update(|count| {
        count.count += 1;
        count.count
    });
    tokio::task::yield_now().await;
    Ok(seen)
}

async fn show(_: NoArguments, count: State<Count>) -> Result<u64, ToolError> {
    Ok(count.count)
}

async fn hub_on(store: &Arc<Memory>, tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    let hub = ToolHub::builder().shared_store(store.clone()).max_queued_per_tool(10_000).max_queued(10_000);
    hub.tools(tools).tool(tool("show", show).read_only()).build().await.unwrap()
}

async fn current_count(hub: &ToolHub) -> u64 {
    hub.call("show", json!({})).thread("t").await.assert_success().as_u64().unwrap()
}

/// Calls the tool `each` times in 64 tasks, round robin over the hubs; returns how many calls succeeded. All others
/// must have ended as `state_conflict`.
async fn call_in_64_tasks(hubs: &[ToolHub], tool: &'static str, each: u64) -> u64 {
    let good = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let (hub, good) = (hubs[task % hubs.len()].clone(), good.clone());
        tasks.spawn(async move {
            for _ in 0..each {
                let outcome = hub.call(tool, json!({})).thread("t").await;
                match outcome.error_kind() {
                    None => drop(good.fetch_add(1, Ordering::Relaxed)),
                    Some(kind) => assert_eq!(kind, ErrorKind::StateConflict, "{outcome:?}"),
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    good.load(Ordering::Relaxed)
}

/// A busy machine must not decide how a call ends.
fn with_long_timeout(tool: ToolBuilder) -> ToolBuilder {
    tool.timeout(Duration::from_secs(3_600))
}

fn increments_per_task() -> u64 {
    soak(50, 2_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_of_many_tasks_on_one_hub_are_exact() {
    let hubs = [hub_on(&Arc::default(), [with_long_timeout(tool("add", add_one))]).await];
    let each = increments_per_task();
    assert_eq!(call_in_64_tasks(&hubs, "add", each).await, 64 * each, "inside one hub there is no conflict");
    assert_eq!(current_count(&hubs[0]).await, 64 * each);
}

async fn two_hubs(tool: impl Fn() -> ToolBuilder) -> [ToolHub; 2] {
    let store = Arc::default();
    [hub_on(&store, [with_long_timeout(tool())]).await, hub_on(&store, [with_long_timeout(tool())]).await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_hubs_increments_by_closures_are_exact() {
    let hubs = two_hubs(|| tool("add", update_one).on_conflict(ConflictResolution::Retry)).await;
    let each = increments_per_task();
    assert_eq!(call_in_64_tasks(&hubs, "add", each).await, 64 * each);
    assert_eq!(current_count(&hubs[0]).await, 64 * each);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_hubs_increments_by_a_tool_that_may_run_again_are_exact() {
    let hubs = two_hubs(|| tool("add", add_one).rerunnable().on_conflict(ConflictResolution::Retry)).await;
    let each = increments_per_task();
    assert_eq!(call_in_64_tasks(&hubs, "add", each).await, 64 * each);
    assert_eq!(current_count(&hubs[1]).await, 64 * each);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_reject_every_refused_commit_is_told_and_the_count_equals_the_successes() {
    let hubs = two_hubs(|| tool("add", add_one)).await;
    let good = call_in_64_tasks(&hubs, "add", increments_per_task()).await;
    assert!(good > 0);
    assert_eq!(current_count(&hubs[0]).await, good);
}

/// A tool that adds one, and another writer that writes once while it runs.
fn racing_tool(
    other: StateManager,
    theirs: Value,
) -> impl Fn(NoArguments, State<Count>) -> BoxFuture<'static, Result<u64, ToolError>> {
    let (state, first) = (other, Arc::new(AtomicU64::new(0)));
    move |_, mut count| {
        let (state, first, theirs) = (state.clone(), first.clone(), theirs.clone());
        Box::pin(async move {
            count.count += 1;
            if first.fetch_add(1, Ordering::SeqCst) == 0 {
                let id = "t/count".parse().unwrap();
                state.set_state(&Tenant::default(), &id, StateKind::Business, theirs, None).await.unwrap();
            }
            Ok(count.count)
        })
    }
}

async fn race(theirs: Value, with: impl Fn(ToolBuilder) -> ToolBuilder) -> (Outcome, Value) {
    let store = Arc::new(Memory::new());
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap();
    let hub = hub_on(&store, [with(tool("add", racing_tool(other.state(), theirs)))]).await;
    let outcome = hub.call("add", json!({})).thread("t").await;
    let id = "t/count".parse().unwrap();
    let entry = hub.state().get_state(&Tenant::default(), &id, StateKind::Business).await.unwrap();
    (outcome, entry.unwrap().data)
}

#[tokio::test]
async fn a_tool_that_may_run_again_is_run_again_after_a_conflict() {
    let rerunnable = |tool: ToolBuilder| tool.rerunnable().on_conflict(ConflictResolution::Retry);
    let (outcome, data) = race(json!({"count": 10}), rerunnable).await;
    assert_eq!(outcome.assert_success(), &json!(11));
    assert_eq!(outcome.attempts, 2);
    assert_eq!(data, json!({"count": 11, "other": 0}));
    // A tool that is not declared rerunnable is not.
    let (outcome, data) = race(json!({"count": 10}), |tool| tool.on_conflict(ConflictResolution::Retry)).await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
    assert!(outcome.error.unwrap().operator.contains("rerunnable"));
    assert_eq!(data, json!({"count": 10}));
}

#[tokio::test]
async fn the_last_write_wins_where_the_owner_says_so() {
    let (outcome, data) = race(json!({"count": 10}), |tool| tool.on_conflict(ConflictResolution::LastWriteWins)).await;
    outcome.assert_success();
    assert_eq!(data, json!({"count": 1, "other": 0}));
}

#[tokio::test]
async fn two_changes_of_different_members_are_merged() {
    let merge = |tool: ToolBuilder| tool.on_conflict(ConflictResolution::Merge);
    let (outcome, data) = race(json!({"count": 0, "other": 7}), merge).await;
    outcome.assert_success();
    assert_eq!(data, json!({"count": 1, "other": 7}));
    let (outcome, data) = race(json!({"count": 10, "other": 7}), merge).await;
    outcome.assert_error(ErrorKind::StateConflict);
    assert!(outcome.error.unwrap().operator.contains("/count"));
    assert_eq!(data, json!({"count": 10, "other": 7}));
}

#[tokio::test]
async fn a_type_may_say_itself_how_two_changes_go_together() {
    #[derive(Default, Serialize, Deserialize)]
    struct Sum {
        sum: i64,
    }
    impl ToolState for Sum {
        const NAME: &'static str = "sum";
        fn merge(base: Self, mine: Self, theirs: Self) -> Result<Self, String> {
            Ok(Self { sum: mine.sum + theirs.sum - base.sum })
        }
    }
    let store = Arc::new(Memory::new());
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap().state();
    let add = move |_: NoArguments, mut sum: State<Sum>| {
        let other = other.clone();
        async move {
            sum.sum += 5;
            let (tenant, id) = (Tenant::default(), "t/sum".parse().unwrap());
            other.set_state(&tenant, &id, StateKind::Business, json!({"sum": 100}), None).await.unwrap();
            Ok::<_, ToolError>(())
        }
    };
    let hub = hub_on(&store, [tool("add", add).on_conflict(ConflictResolution::Merge)]).await;
    hub.call("add", json!({})).thread("t").await.assert_success();
    let (tenant, id) = (Tenant::default(), "t/sum".parse().unwrap());
    let entry = hub.state().get_state(&tenant, &id, StateKind::Business).await.unwrap().unwrap();
    assert_eq!((entry.data, entry.version), (json!({"sum": 105}), 2));
}

#[tokio::test]
async fn what_the_owner_says_about_conflicts_holds_for_all_tools() {
    let store = Arc::new(Memory::new());
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap();
    let resolution = Some(ConflictResolution::Merge);
    let hub = ToolHub::builder()
        .shared_store(store)
        .business_state(BusinessStateConfig { conflict_resolution: resolution, ..Default::default() })
        .tool(tool("add", racing_tool(other.state(), json!({"count": 0, "other": 3}))))
        .build()
        .await
        .unwrap();
    hub.call("add", json!({})).thread("t").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_call_inside_a_call_on_the_same_state_is_a_conflict_and_no_deadlock() {
    let hub: Arc<std::sync::OnceLock<ToolHub>> = Arc::default();
    let inner = hub.clone();
    let outer = move |_: NoArguments, mut count: State<Count>| {
        let hub = inner.clone();
        async move {
            count.count += 1;
            let seen = hub.get().unwrap().call("show", json!({})).thread("t").await;
            assert_eq!(seen.assert_success(), &json!(0), "a reader sees committed state, and does not wait");
            let elsewhere = hub.get().unwrap().call("add", json!({})).thread("u").await;
            elsewhere.assert_success();
            let nested = hub.get().unwrap().call("add", json!({})).thread("t").await;
            Ok::<_, ToolError>(nested.error_kind().unwrap().to_string())
        }
    };
    let built = hub_on(&Arc::default(), [tool("outer", outer), tool("add", add_one)]).await;
    let built = hub.get_or_init(|| built);
    let outcome = built.call("outer", json!({})).thread("t").await;
    assert_eq!(outcome.assert_success(), &json!("state_conflict"));
    assert_eq!(current_count(built).await, 1);
    // The conflict of the inner call does not count against the tool.
    built.call("add", json!({})).thread("t").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_state_waits_no_longer_than_its_own_time() {
    let (began, ran) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicU64::new(0)));
    let (tell, count_runs) = (began.clone(), ran.clone());
    let slow = move |_: NoArguments, mut count: State<Count>| {
        let tell = tell.clone();
        async move {
            count.count += 1;
            tell.notify_one();
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, ToolError>(count.count)
        }
    };
    let quick = move |_: NoArguments, mut count: State<Count>| {
        let ran = count_runs.clone();
        async move {
            ran.fetch_add(1, Ordering::SeqCst);
            count.count += 1;
            Ok::<_, ToolError>(count.count)
        }
    };
    let hub = hub_on(&Arc::default(), [tool("slow", slow), tool("quick", quick)]).await;
    let first = tokio::spawn({
        let hub = hub.clone();
        async move { hub.call("slow", json!({})).thread("t").await }
    });
    began.notified().await;
    let late = hub.call("quick", json!({})).thread("t").timeout(Duration::from_secs(5)).await;
    late.assert_error(ErrorKind::Timeout);
    assert_eq!(ran.load(Ordering::SeqCst), 0, "it has not started");
    let patient = hub.call("quick", json!({})).thread("t").await;
    assert_eq!(patient.assert_success(), &json!(2));
    first.await.unwrap().assert_success();
}

#[tokio::test(start_paused = true)]
async fn tools_that_take_two_states_out_in_opposite_order_do_not_wait_for_each_other() {
    #[derive(Default, Serialize, Deserialize)]
    struct Other(u64);
    impl ToolState for Other {
        const NAME: &'static str = "another";
    }
    async fn one(_: NoArguments, mut count: State<Count>, mut other: State<Other>) -> Result<(), ToolError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        (count.count, other.0) = (count.count + 1, other.0 + 1);
        Ok(())
    }
    async fn two(_: NoArguments, mut other: State<Other>, mut count: State<Count>) -> Result<(), ToolError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        (count.count, other.0) = (count.count + 1, other.0 + 1);
        Ok(())
    }
    let hub = hub_on(&Arc::default(), [tool("one", one), tool("two", two)]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for round in 0..40 {
        let hub = hub.clone();
        tasks.spawn(async move {
            let name = if round % 2 == 0 { "one" } else { "two" };
            hub.call(name, json!({})).thread("t").await.assert_success();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(current_count(&hub).await, 40);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_or_was_cut_off_lets_the_next_one_write() {
    async fn fails(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
        count.count += 100;
        Err(ToolError::new("no"))
    }
    async fn panics(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
        count.count += 100;
        panic!("oh");
    }
    async fn hangs(_: NoArguments, mut count: State<Count>) -> Result<u64, ToolError> {
        count.count += 100;
        std::future::pending().await
    }
    let tools = [tool("fails", fails), tool("panics", panics), tool("hangs", hangs), tool("add", add_one)];
    let hub = hub_on(&Arc::default(), tools).await;
    for bad in ["fails", "panics", "hangs"] {
        assert!(!hub.call(bad, json!({})).thread("t").timeout(Duration::from_secs(1)).await.is_success());
        hub.call("add", json!({})).thread("t").await.assert_success();
    }
    assert_eq!(current_count(&hub).await, 3);
}

#[tokio::test]
async fn a_panic_while_changes_are_put_together_is_a_conflict_that_keeps_the_result() {
    silence_scripted_panics();
    #[derive(Default, Serialize, Deserialize)]
    struct PanickingMerge(u64);
    impl ToolState for PanickingMerge {
        const NAME: &'static str = "fragile";
        fn merge(_: Self, _: Self, _: Self) -> Result<Self, String> {
            panic!("scripted panic");
        }
    }
    let store = Arc::new(Memory::new());
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap().state();
    let change = move |by_closure: bool| {
        let other = other.clone();
        move |_: NoArguments, mut state: State<PanickingMerge>| {
            let other = other.clone();
            async move {
                if by_closure {
                    state.update(|state| {
                        assert!(state.0 < 5, "scripted panic");
                        state.0 += 1;
                    });
                } else {
                    state.0 += 1;
                }
                let (tenant, id) = (Tenant::default(), "t/fragile".parse().unwrap());
                let row = other.get_state(&tenant, &id, StateKind::Business).await.unwrap();
                assert!(row.is_none());
                other
                    .import(&tenant, r#"{"context":"t/fragile","business":{"version":1,"schema":1,"data":9}}"#)
                    .await
                    .unwrap();
                Ok::<_, ToolError>("done")
            }
        }
    };
    let tools = [
        tool("merged", change(false)).on_conflict(ConflictResolution::Merge),
        tool("again", change(true)).on_conflict(ConflictResolution::Retry),
    ];
    let hub = hub_on(&store, tools).await;
    for name in ["merged", "again"] {
        let outcome = hub.call(name, json!({})).thread("t").await;
        outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
        assert_eq!(outcome.output, json!("done"));
        assert!(outcome.error.as_ref().unwrap().operator.contains("scripted panic"), "{outcome:?}");
        let record = hub.call_record(&Tenant::default(), outcome.id).await.unwrap().unwrap();
        assert!(record.outcome.is_some(), "the call has an outcome");
        let id = "t/fragile".parse().unwrap();
        hub.state().cleanup_context(&Tenant::default(), &id).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_committed_already_is_not_done_again_when_a_second_state_meets_a_conflict() {
    #[derive(Default, Serialize, Deserialize)]
    struct Second {
        n: u64,
    }
    impl ToolState for Second {
        const NAME: &'static str = "second";
    }
    let store = Arc::new(Memory::new());
    let shared = || StateManagerConfig { session_isolation: false, ..StateManagerConfig::default() };
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap().state();
    let both = move |_: NoArguments, mut count: State<Count>, mut second: State<Second>| {
        let other = other.clone();
        async move {
            (count.count, second.n) = (count.count + 1, second.n + 1);
            let (tenant, id) = (Tenant::default(), "~/second".parse().unwrap());
            other.set_state(&tenant, &id, StateKind::Business, json!({"n": 7}), None).await.unwrap();
            Ok::<_, ToolError>(())
        }
    };
    let hub = ToolHub::builder()
        .shared_store(store)
        .state_manager(shared())
        .tool(tool("both", both).rerunnable().on_conflict(ConflictResolution::Retry))
        .build()
        .await
        .unwrap();
    hub.call("both", json!({})).thread("t").await.assert_error(ErrorKind::StateConflict);
    let (state, tenant) = (hub.state(), Tenant::default());
    let count = state.get_state(&tenant, &"~/count".parse().unwrap(), StateKind::Business).await.unwrap().unwrap();
    assert_eq!(count.data["count"], 1, "written once, by the only run");
}

#[tokio::test]
async fn what_was_saved_on_purpose_is_made_again_from_its_closures() {
    let store = Arc::new(Memory::new());
    let other = ToolHub::builder().shared_store(store.clone()).build().await.unwrap().state();
    let add = move |_: NoArguments, mut count: State<Count>| {
        let other = other.clone();
        async move {
            count.update(|count| count.count += 1);
            count.save()?;
            count.update(|count| count.count += 100);
            let (tenant, id) = (Tenant::default(), "t/count".parse().unwrap());
            other.set_state(&tenant, &id, StateKind::Business, json!({"count": 10}), None).await.unwrap();
            Ok::<_, ToolError>(())
        }
    };
    let hub = ToolHub::builder()
        .shared_store(store)
        .business_state(BusinessStateConfig { auto_save: false, ..Default::default() })
        .tool(tool("add", add).on_conflict(ConflictResolution::Retry))
        .tool(tool("show", show).read_only())
        .build()
        .await
        .unwrap();
    hub.call("add", json!({})).thread("t").await.assert_success();
    assert_eq!(current_count(&hub).await, 11);
}
