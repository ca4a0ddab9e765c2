//! Cancelling a call, and reporting the result of an external one, on another node than the one that runs it.

use std::{sync::Arc, time::Duration};

use toolhub::{
    Cancellation, ReportError,
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, scripted},
};

use crate::shared_memory::SharedMemory;

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
