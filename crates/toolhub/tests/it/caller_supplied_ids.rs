//! Calls with ids minted by their callers: executed once, whatever happens.

use std::{sync::Arc, time::Duration};

use toolhub::{
    HubBuilder, Retry,
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, RowKey, Table, Write},
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, ScriptedTool, TestClock, scripted},
};

const SHORT_DELAY: Duration = Duration::from_millis(10);

fn builder(store: &Arc<Memory>, tool: ToolBuilder) -> HubBuilder {
    ToolHub::builder().clock(TestClock::new()).shared_store(store.clone()).tool(tool)
}

async fn hub(steps: Vec<ScriptStep>, change: impl FnOnce(ToolBuilder) -> ToolBuilder) -> (ToolHub, ScriptedTool) {
    let (tool, script) = scripted("it", steps);
    (builder(&Arc::default(), change(tool)).build().await.unwrap(), script)
}

#[tokio::test(start_paused = true)]
async fn a_call_keeps_the_id_it_was_given_and_is_made_once() {
    for (change, effect) in
        [(ToolBuilder::read_only as fn(ToolBuilder) -> ToolBuilder, Effect::None), (|tool| tool, Effect::Done)]
    {
        for thread in [Some("t1"), None] {
            let (hub, script) = hub(Vec::new(), change).await;
            let mut events = EventRecorder::new(&hub);
            let id = CallId::mint(hub.now());
            let call = || match thread {
                Some(thread) => hub.call("it", json!({})).thread(thread).with_id(id),
                None => hub.call("it", json!({})).with_id(id),
            };
            assert_eq!(call().id(), id);
            let first = call().await;
            first.assert_effect(effect).assert_success();
            assert_eq!(first.id, id);
            for again in [call(), call().detached()] {
                let refused = again.await;
                let text = refused.assert_effect(Effect::None).assert_error(ErrorKind::IdempotencyKeyReused);
                assert!(text.contains("not made again"), "{text}");
            }
            assert_eq!(script.recorded_arguments().len(), 1);
            let record = hub.call_record(&Tenant::default(), id).await.unwrap().unwrap();
            assert_eq!(record.outcome, Some(first));
            assert_eq!(events.end_count(id), 1, "it has one end");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_or_waits_is_not_made_beside_itself() {
    let (hub, script) = hub(vec![ScriptStep::Wait(Duration::from_secs(1))], |tool| tool).await;
    let id = CallId::mint(hub.now());
    let running = hub.call("it", json!({})).thread("t1").with_id(id).start();
    tokio::time::sleep(SHORT_DELAY).await;
    let mut events = EventRecorder::new(&hub);
    for _ in 0..2 {
        let refused = hub.call("it", json!({})).thread("t1").with_id(id).await;
        refused.assert_effect(Effect::None).assert_error(ErrorKind::IdempotencyInProgress);
    }
    assert_eq!(events.end_count(id), 0, "the running call has not ended");
    assert_eq!(hub.running_calls(), 1);
    assert!(hub.call_record(&Tenant::default(), id).await.unwrap().is_some());
    running.await.assert_success();
    assert_eq!((script.recorded_arguments().len(), hub.running_calls()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn two_at_the_same_moment_are_one_also_on_two_hubs() {
    let store = Arc::default();
    let ((one, first_script), (two, second_script)) = (scripted("it", []), scripted("it", []));
    let (one, two) = (builder(&store, one).build().await.unwrap(), builder(&store, two).build().await.unwrap());
    for _ in 0..20 {
        let id = CallId::mint(one.now());
        let call = |hub: &ToolHub| hub.call("it", json!({})).thread("t1").with_id(id).detached().start();
        let ends = tokio::join!(call(&one), call(&two), call(&one));
        let ends = [ends.0, ends.1, ends.2];
        assert_eq!(ends.iter().filter(|end| end.is_success()).count(), 1, "{ends:?}");
        for refused in ends.iter().filter_map(Outcome::error_kind) {
            assert!(matches!(refused, ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyKeyReused), "{refused}");
        }
    }
    assert_eq!(first_script.recorded_arguments().len() + second_script.recorded_arguments().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_turned_away_may_be_made_again() {
    let schema = json!({"type": "object", "properties": {"qty": {"type": "integer"}}});
    let (hub, script) = hub(Vec::new(), |tool| tool.parameters(schema)).await;
    let id = CallId::mint(hub.now());
    let call = |qty: Value| hub.call("it", json!({"qty": qty})).thread("t1").with_id(id).detached();
    call(json!("many")).await.assert_error(ErrorKind::ArgumentsInvalid);
    assert_eq!(hub.call_record(&Tenant::default(), id).await.unwrap(), None);
    call(json!(1)).await.assert_success();
    assert_eq!(script.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_says_how_often_a_call_is_tried_again() {
    let down = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "503"));
    let check = async |change: fn(ToolBuilder) -> ToolBuilder, retries: Option<u32>, attempts: u32| {
        let (hub, script) =
            hub(vec![down(); 20], |tool| change(tool.retry(Retry { jitter: false, ..Retry::default() }))).await;
        let call = hub.call("it", json!({})).timeout(Duration::from_secs(25));
        let outcome = match retries {
            Some(again) => call.retries(again).await,
            None => call.await,
        };
        outcome.assert_error(ErrorKind::UpstreamError);
        assert_eq!((outcome.attempts, script.recorded_arguments().len()), (attempts, attempts as usize), "{retries:?}");
    };
    check(ToolBuilder::read_only, None, 3).await;
    check(ToolBuilder::read_only, Some(0), 1).await;
    check(ToolBuilder::read_only, Some(1), 2).await;
    check(|tool| tool.idempotent().no_retry(), Some(2), 3).await;
    // Calls with effects are not repeated, whatever the caller asks for; and retries stay within the deadline.
    check(|tool| tool, Some(5), 1).await;
    check(ToolBuilder::read_only, Some(u32::MAX), 5).await;
}

#[tokio::test(start_paused = true)]
async fn other_crates_keep_their_records_in_the_store_of_the_hub() {
    let store: Arc<Memory> = Arc::default();
    let hub = builder(&store, scripted("it", []).0).build().await.unwrap();
    let partition = Partition::for_thread(Tenant::default(), ThreadId::new("t1").unwrap());
    let change = Change::Put { value: b"{}".as_slice().into(), schema: 1, expires: None };
    let (expect, durability) = (Expect::Absent, Durability::KillSafe);
    let write = Write { table: Table::Messages, id: "0001".into(), expect, change, durability };
    hub.store().commit(Batch::new(partition.clone()).with(write), hub.now()).await.unwrap();
    let key = [RowKey { partition, table: Table::Messages, id: "0001".into() }];
    let row = store.load(&key, hub.now()).await.unwrap().pop().flatten().unwrap();
    assert_eq!((row.version.number, row.created), (1, hub.now()));
}
