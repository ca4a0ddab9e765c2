//! Cancelling a call, and reporting the result of an external one, on another node than the one that runs it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    Cancellation, ReportError,
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, scripted},
};

use crate::{faulty_store::FaultyStore, shared_memory::SharedMemory};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn tenant() -> Tenant {
    Tenant::default()
}

async fn node(store: &Arc<SharedMemory>) -> ToolHub {
    let tool = scripted("pay", [ScriptStep::Hang, ScriptStep::Hang]).0.timeout(10 * MINUTE);
    let asked = scripted("ask", []).0.confirm();
    ToolHub::builder().shared_store(store.connect()).tool(tool).tool(asked).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_cancelled_from_any_node() {
    let store = Arc::default();
    let (first, second) = (node(&store).await, node(&store).await);
    let running = first.call("pay", json!({})).thread("t").start();
    let without_thread = first.call("pay", json!({})).idempotency_key("k").start();
    tokio::time::sleep(SECOND).await;
    for call in [&running, &without_thread] {
        assert_eq!(second.cancel_call(&tenant(), call.id()).await.unwrap(), Cancellation::Requested);
    }
    let ids = [running.id(), without_thread.id()];
    for outcome in [running, without_thread] {
        tokio::time::timeout(SECOND, outcome).await.unwrap().assert_error(ErrorKind::Cancelled);
    }
    for call in ids {
        let again = second.cancel_call(&tenant(), call).await.unwrap();
        assert_eq!(again, Cancellation::AlreadyEnded(toolhub::Status::Cancelled));
    }
    let other = Tenant::new("other").unwrap();
    assert_eq!(second.cancel_call(&other, ids[0]).await.unwrap(), Cancellation::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_that_goes_on_elsewhere_is_cancelled_there() {
    let store = Arc::default();
    let (first, second) = (node(&store).await, node(&store).await);
    let call = first.call("ask", json!({})).thread("t").detached().start().id();
    tokio::time::sleep(SECOND).await;
    let shutdown = first.shutdown(SECOND);
    let cancelled = async {
        // While no node runs it.
        second.cancel_call(&tenant(), call).await.unwrap()
    };
    let (cancelled, ()) = tokio::join!(cancelled, shutdown);
    assert_eq!(cancelled, Cancellation::Requested);
    let ended = tokio::time::timeout(10 * SECOND, second.wait_for_call(&tenant(), call)).await.unwrap();
    ended.unwrap().unwrap().outcome.unwrap().assert_error(ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_an_external_call_is_taken_by_any_node_with_the_same_answers() {
    let store = Arc::default();
    let (first, second) = (node(&store).await, node(&store).await);
    let report = |call: CallId, value: Value| {
        let second = second.clone();
        async move { second.report_external_result(&tenant(), call, Ok(value)).await }
    };
    let external = first.call("pay", json!({})).thread("t").external(MINUTE).start();
    let inner = first.call("pay", json!({})).thread("t").start();
    let waiting = first.call("ask", json!({})).thread("t").external(MINUTE).detached().start();
    tokio::time::sleep(SECOND).await;
    assert_eq!(report(CallId::mint(first.now()), json!(0)).await, Err(ReportError::NotFound));
    assert_eq!(report(inner.id(), json!(0)).await, Err(ReportError::NotExternal));
    assert_eq!(report(waiting.id(), json!(0)).await, Err(ReportError::Early));
    let started = tokio::time::Instant::now();
    let [one, two] = [report(external.id(), json!(1)), report(external.id(), json!(2))];
    let mut answers = <[_; 2]>::from(tokio::join!(one, two));
    assert!(started.elapsed() <= SECOND, "{:?}", started.elapsed());
    answers.sort_by_key(Result::is_err);
    assert_eq!(answers, [Ok(()), Err(ReportError::Late)], "one of two results counts");
    let id = external.id();
    let output = external.await.assert_success().clone();
    assert!(output == json!(1) || output == json!(2));
    assert_eq!(report(id, json!(3)).await, Err(ReportError::Late));

    let failing = first.call("pay", json!({})).thread("t").external(MINUTE).start();
    tokio::time::sleep(SECOND).await;
    let failure = Err(ToolError::with_kind(ErrorKind::UpstreamError, "502"));
    second.report_external_result(&tenant(), failing.id(), failure).await.unwrap();
    failing.await.assert_error(ErrorKind::UpstreamError);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_of_another_node_is_noticed_at_once() {
    let store = Arc::default();
    let (first, second) = (node(&store).await, node(&store).await);
    for thread in [Some("t"), None] {
        let call = first.call("pay", json!({})).external(MINUTE).idempotency_key(thread.unwrap_or("k"));
        let call = match thread {
            Some(thread) => call.thread(thread),
            None => call,
        };
        let call = call.detached().start().id();
        tokio::time::sleep(SECOND).await;
        let waiting = async { (second.wait_for_call(&tenant(), call).await, tokio::time::Instant::now()) };
        let ending = async {
            // Between two looks of a node that has heard nothing for long.
            tokio::time::sleep(Duration::from_millis(30_300)).await;
            first.report_external_result(&tenant(), call, Ok(json!(1))).await.unwrap();
            tokio::time::Instant::now()
        };
        let ((record, noticed_at), ended_at) = tokio::join!(waiting, ending);
        record.unwrap().unwrap().outcome.unwrap().assert_success();
        assert!(noticed_at - ended_at < Duration::from_millis(10), "{:?}", noticed_at - ended_at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_another_node_took_is_acknowledged_although_answers_of_the_store_are_lost() {
    let store: Arc<SharedMemory> = Arc::default();
    let first = node(&store).await;
    let connection = Arc::new(FaultyStore { memory: store.memory.clone(), ..FaultyStore::default() });
    let second = ToolHub::builder().shared_store(store.record(connection.clone())).build().await.unwrap();
    for is_cut in [false, true] {
        let external = first.call("pay", json!({})).thread("t").external(MINUTE).start();
        tokio::time::sleep(SECOND).await;
        connection.loses_acks.store(true, Ordering::Release);
        let faults = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            connection.unavailable.store(is_cut, Ordering::Release);
            tokio::time::sleep(8 * SECOND).await;
            connection.unavailable.store(false, Ordering::Release);
        };
        let tenant = tenant();
        let reported = second.report_external_result(&tenant, external.id(), Ok(json!(7)));
        let (reported, ()) = tokio::join!(reported, faults);
        assert_eq!(reported, Ok(()));
        assert_eq!(*external.await.assert_success(), json!(7));
        connection.loses_acks.store(false, Ordering::Release);
    }
    // What was not asked is refused at once.
    let external = first.call("pay", json!({})).thread("t").external(MINUTE).start();
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, Ordering::Release);
    let began = tokio::time::Instant::now();
    let refused = second.report_external_result(&tenant(), external.id(), Ok(json!(8))).await;
    assert!(matches!(refused, Err(ReportError::Store(_))) && began.elapsed() < SECOND, "{refused:?}");
}
