//! Detached calls with an idempotency key: however they are cut off or refused, one key has one effect.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use toolhub::{
    RateLimit,
    backend::{Batch, Memory, Table},
    prelude::*,
    testing::{AssertOutcome, ScriptStep, ScriptedTool, scripted},
};

use crate::{
    gated_tool::{GatedTool, wait_until},
    intercepted_store::{CommitAction, InterceptedStore},
};

const SECOND: Duration = Duration::from_secs(1);

fn writes_table(batch: &Batch, table: Table) -> bool {
    batch.writes.iter().any(|write| write.table == table)
}

fn pay() -> (ToolBuilder, ScriptedTool) {
    scripted("pay", [ScriptStep::Return(json!("paid"))])
}

/// A store whose process dies just before the claim on a key is written: nothing is written from then on.
fn store_crashing_before_claim() -> Arc<InterceptedStore> {
    let (store, dead) = (Arc::new(InterceptedStore::default()), AtomicBool::new(false));
    store.before_commits(move |batch| {
        let is_dead =
            dead.fetch_or(writes_table(batch, Table::Claims), Ordering::AcqRel) || writes_table(batch, Table::Claims);
        Box::pin(async move { if is_dead { CommitAction::Unavailable } else { CommitAction::Apply } })
    });
    store
}

/// The next process on the same records, after it has recovered what the last one left open.
async fn restart(memory: &Arc<Memory>) -> (ToolHub, ScriptedTool) {
    let (tool, script) = pay();
    let hub = ToolHub::builder().shared_store(memory.clone()).tool(tool).build().await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(hub.running_calls(), 0);
    (hub, script)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_died_before_it_had_its_key_takes_it_when_it_goes_on() {
    let store = store_crashing_before_claim();
    let hub = ToolHub::builder().shared_store(store.clone()).tool(pay().0).build().await.unwrap();
    let call = |hub: &ToolHub| hub.call("pay", json!({"sum": 5})).idempotency_key("k").detached().start();
    let cut_off = call(&hub);
    let id = cut_off.id();
    cut_off.await.assert_error(ErrorKind::StoreUnavailable);
    drop(hub);
    let (hub, script) = restart(&store.memory).await;
    assert_eq!(script.recorded_arguments().len(), 1, "it was recorded, and continues");
    let repeated = call(&hub).await;
    assert_eq!((repeated.id, repeated.replayed), (id, true));
    assert_eq!(script.recorded_arguments().len(), 1);
    let other = hub.call("pay", json!({"sum": 6})).idempotency_key("k").await;
    other.assert_error(ErrorKind::IdempotencyKeyReused);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_died_before_it_could_give_way_to_another_with_its_key_does_not_go_on() {
    let store: Arc<InterceptedStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).tool(pay().0).build().await.unwrap();
    let call = |hub: &ToolHub| hub.call("pay", json!({})).idempotency_key("k").detached().start();
    // The first checks the key before the second has claimed it, and dies when it finds it claimed.
    let (rival, dead) = (hub.clone(), Arc::new(AtomicBool::new(false)));
    let first_try = AtomicBool::new(true);
    store.before_commits(move |batch| {
        let claims = writes_table(batch, Table::Claims) && first_try.swap(false, Ordering::AcqRel);
        let (rival, dead) = (rival.clone(), dead.clone());
        Box::pin(async move {
            if claims {
                rival.call("pay", json!({})).idempotency_key("k").await.assert_success();
                dead.store(true, Ordering::Release);
            }
            if dead.load(Ordering::Acquire) { CommitAction::Unavailable } else { CommitAction::Apply }
        })
    });
    let cut_off = call(&hub);
    let id = cut_off.id();
    assert!(!cut_off.await.is_success());
    store.before_commits(|_| Box::pin(async { CommitAction::Unavailable }));
    drop(hub);
    let (hub, script) = restart(&store.memory).await;
    assert_eq!(script.recorded_arguments().len(), 0, "the other call owned the key");
    let repeated = call(&hub).await;
    assert!(repeated.replayed && repeated.is_success() && repeated.id != id);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_call_was_turned_away_before_its_turn_is_still_free() {
    let busy = GatedTool::new();
    let limited = pay().0.rate_limit(RateLimit::per_second(1));
    let full = busy.tool("full").max_concurrency(1).queue_timeout(Duration::ZERO);
    let hub = ToolHub::builder().tools([limited, full]).build().await.unwrap();
    let turned_away = |tool: &'static str| hub.call(tool, json!({})).idempotency_key("k").detached().start();
    hub.call("pay", json!({})).await.assert_success();
    let _held = hub.call("full", json!({})).detached().start();
    wait_until(|| busy.running() == 1).await;
    let cases = [("pay", ErrorKind::RateLimited), ("full", ErrorKind::Overloaded)];
    for (tool, kind) in cases {
        turned_away(tool).await.assert_error(kind);
        let repeated = turned_away(tool).await;
        repeated.assert_error(kind);
        assert!(!repeated.replayed, "{tool}");
    }
    tokio::time::sleep(2 * SECOND).await;
    busy.release(2);
    wait_until(|| busy.running() == 0).await;
    for (tool, _) in cases {
        let executed = turned_away(tool).await;
        executed.assert_success();
        assert!(!executed.replayed && turned_away(tool).await.replayed, "{tool}");
    }
}
