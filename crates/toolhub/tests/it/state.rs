//! Stateful tools: state is loaded, injected and committed with a version check.

use std::sync::Arc;

use toolhub::{
    backend::{Backend, Batch, Change, Durability, Expect, Memory, Partition, RowKey, Table, WatchEvent, Write},
    clock::Timestamp,
    ids::{Tenant, ThreadId},
    prelude::*,
    testing::AssertOutcome,
};

use crate::shop_tools::{AddItem, Cart, add_to_cart, shop_hub, show_cart};

fn item(sku: &str) -> Value {
    json!({"sku": sku, "qty": 1})
}

#[tokio::test]
async fn state_is_kept_per_thread_and_per_tenant() {
    let hub = shop_hub().await;
    hub.call("add_to_cart", item("tea")).thread("t1").await.assert_success();
    hub.call("add_to_cart", item("cake")).thread("t1").await.assert_success();
    let cart = |thread: &'static str, tenant: &'static str| {
        let hub = hub.clone();
        async move {
            let call = hub.call("show_cart", json!({})).thread(thread).tenant(Tenant::new(tenant).unwrap());
            call.await.assert_success().clone()
        }
    };
    assert_eq!(cart("t1", "main").await, json!([["tea", 1], ["cake", 1]]));
    assert_eq!(cart("t2", "main").await, json!([]));
    assert_eq!(cart("t1", "other").await, json!([]));
}

#[tokio::test]
async fn a_failed_call_leaves_the_state_as_it_was() {
    let hub = shop_hub().await;
    hub.call("add_to_cart", item("tea")).thread("t1").await.assert_success();
    hub.call("add_to_cart", item("poison")).thread("t1").await.assert_error(ErrorKind::ToolError);
    assert_eq!(hub.call("show_cart", json!({})).thread("t1").await.assert_success(), &json!([["tea", 1]]));
}

#[tokio::test]
async fn a_blocking_function_has_a_state_that_is_committed_only_if_it_returns_in_time() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let add = move |item: AddItem, mut cart: State<Cart>, cx: CallContext| {
        cart.lines.push((item.sku.clone(), item.qty));
        match item.sku.as_str() {
            "poison" => Err(ToolError::new("not sold")),
            "late" => {
                released.lock().unwrap().recv().unwrap();
                assert!(cx.is_cancelled());
                Ok(cart.lines.len())
            }
            _ => Ok(cart.lines.len()),
        }
    };
    let timeout = std::time::Duration::from_millis(300);
    let hub = ToolHub::builder()
        .tool(blocking("add", add).timeout(timeout))
        .tool(tool("show_cart", show_cart))
        .build()
        .await
        .unwrap();
    assert_eq!(hub.call("add", item("tea")).thread("t").await.assert_success(), &json!(1));
    hub.call("add", item("poison")).thread("t").await.assert_error(ErrorKind::ToolError);
    hub.call("add", item("late")).thread("t").await.assert_error(ErrorKind::Timeout);
    release.send(()).unwrap();
    assert_eq!(hub.call("add", item("cake")).thread("t").await.assert_success(), &json!(2));
    assert_eq!(hub.call("show_cart", json!({})).thread("t").await.output, json!([["tea", 1], ["cake", 1]]));
}

#[tokio::test]
async fn state_changed_meanwhile_is_a_conflict_that_keeps_the_result() {
    let store = Arc::new(Memory::new());
    let meddler = store.clone();
    let meddle = move |item: AddItem, mut cart: State<Cart>| {
        let store = meddler.clone();
        async move {
            cart.lines.push((item.sku, item.qty));
            put_cart(&*store, "t1", br#"{"lines":[["theirs",9]]}"#).await;
            Ok::<_, ToolError>("bought")
        }
    };
    let hub = ToolHub::builder()
        .shared_store(store)
        .tool(tool("meddle", meddle))
        .tool(tool("show_cart", show_cart))
        .build()
        .await
        .unwrap();
    let outcome = hub.call("meddle", item("mine")).thread("t1").await;
    let text = outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
    assert!(text.contains("do not repeat the call") && text.contains("bought"), "{text}");
    assert_eq!(outcome.output, json!("bought"));
    assert_eq!(hub.call("show_cart", json!({})).thread("t1").await.assert_success(), &json!([["theirs", 9]]));
    let record = hub.call_record(&Tenant::default(), outcome.id).await.unwrap().expect("it was recorded");
    assert_eq!(record.outcome.unwrap().error_kind(), Some(ErrorKind::StateConflict));
}

async fn put_cart(store: &dyn Backend, thread: &str, json: &[u8]) {
    let batch = Batch::new(Partition::for_thread(Tenant::default(), ThreadId::new(thread).unwrap()));
    let write = Write {
        table: Table::State,
        id: "cart/business".into(),
        expect: Expect::Any,
        change: Change::Put { value: json.into(), schema: 1, expires: None },
        durability: Durability::KillSafe,
    };
    store.commit(batch.with(write), Timestamp::from_millis(0)).await.unwrap();
}

#[tokio::test]
async fn stored_state_that_cannot_be_read_is_refused_loudly_and_stays() {
    let store = Arc::new(Memory::new());
    put_cart(&*store, "t1", br#"{"lines": 7}"#).await;
    let hub =
        ToolHub::builder().shared_store(store.clone()).tool(tool("add_to_cart", add_to_cart)).build().await.unwrap();
    let outcome = hub.call("add_to_cart", item("tea")).thread("t1").await;
    outcome.assert_effect(Effect::None).assert_error(ErrorKind::StateUnreadable);
    let partition = Partition::for_thread(Tenant::default(), ThreadId::new("t1").unwrap());
    let keys = [RowKey { partition, table: Table::State, id: "cart/business".into() }];
    let row = store.load(&keys, Timestamp::from_millis(0)).await.unwrap().pop().flatten().unwrap();
    assert_eq!(&*row.value, br#"{"lines": 7}"#);
}

#[tokio::test]
async fn a_tool_that_only_looks_at_its_state_writes_nothing() {
    use futures_util::{FutureExt, StreamExt};
    let store = Arc::new(Memory::new());
    let mut changes = store.watch(Table::State);
    let hub = ToolHub::builder()
        .shared_store(store.clone())
        .tool(tool("show_cart", show_cart).read_only())
        .tool(tool("look_at_cart", show_cart))
        .tool(tool("add_to_cart", add_to_cart))
        .build()
        .await
        .unwrap();
    hub.call("show_cart", json!({})).thread("t1").await.assert_success();
    assert_eq!(changes.next().now_or_never(), None);
    let mut written = async |name: &str| {
        hub.call(name, item("tea")).thread("t1").await.assert_success();
        let mut rows = Vec::new();
        while let Some(Some(WatchEvent::Row(key, version))) = changes.next().now_or_never() {
            rows.push((key.id.to_string(), version));
        }
        rows
    };
    // A call that might have changed it counts as a use of it, no more.
    assert_eq!(written("look_at_cart").await, [("cart/session".into(), Some(1))]);
    let both = [("cart/business".into(), Some(1)), ("cart/session".into(), Some(2))];
    assert_eq!(written("add_to_cart").await, both);
}

#[tokio::test]
async fn the_trait_form_changes_its_state_in_place() {
    struct Counter {
        step: u64,
    }
    #[derive(Default, Serialize, Deserialize)]
    struct Count(u64);
    impl ToolState for Count {
        const NAME: &'static str = "count";
    }
    impl StatefulTool for Counter {
        type Arguments = NoArguments;
        type State = Count;
        type Output = u64;
        async fn call(&self, _: NoArguments, count: &mut Count, cx: &CallContext) -> Result<u64, ToolError> {
            assert!(cx.thread().is_some());
            count.0 += self.step;
            Ok(count.0)
        }
    }
    let hub = ToolHub::builder().tool(stateful("count", Counter { step: 5 })).build().await.unwrap();
    hub.call("count", json!({})).thread("t1").await.assert_success();
    assert_eq!(hub.call("count", json!({})).thread("t1").await.assert_success(), &json!(10));
    assert_eq!(hub.call("count", json!({})).thread("t2").await.assert_success(), &json!(5));
}

#[tokio::test]
async fn state_still_held_by_a_background_task_is_not_saved_in_silence() {
    async fn careless(_: NoArguments, mut cart: State<Cart>) -> Result<&'static str, ToolError> {
        cart.lines.push(("lost".into(), 1));
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            drop(cart);
        });
        Ok("done")
    }
    let hub = ToolHub::builder().tool(tool("careless", careless)).build().await.unwrap();
    let outcome = hub.call("careless", json!({})).thread("t1").await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
    assert!(outcome.error.unwrap().operator.contains("still held the state `cart`"));
}

#[tokio::test]
async fn two_hubs_on_one_store_share_what_tools_remember() {
    let store = Arc::new(Memory::new());
    let hub = async || {
        ToolHub::builder().shared_store(store.clone()).tool(tool("add_to_cart", add_to_cart)).build().await.unwrap()
    };
    let (one, two) = (hub().await, hub().await);
    one.call("add_to_cart", item("tea")).thread("t1").await.assert_success();
    assert_eq!(two.call("add_to_cart", item("cake")).thread("t1").await.assert_success(), &json!(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_contention_every_refused_commit_is_reported_and_the_rest_is_exact() {
    let hub = shop_hub().await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let hub = hub.clone();
            tokio::spawn(async move {
                let mut won = 0;
                for _ in 0..50 {
                    let outcome = hub.call("add_to_cart", item("tea")).thread("t1").await;
                    match outcome.error_kind() {
                        None => won += 1,
                        Some(kind) => assert_eq!((kind, outcome.effect), (ErrorKind::StateConflict, Effect::Done)),
                    }
                }
                won
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += task.await.unwrap();
    }
    let cart = hub.call("show_cart", json!({})).thread("t1").await;
    assert_eq!(cart.assert_success().as_array().unwrap().len(), won);
    assert!(won > 0);
    assert_eq!(hub.running_calls(), 0);
}

#[tokio::test]
async fn looking_through_a_mutable_reference_is_no_change() {
    struct ReadCart;
    impl StatefulTool for ReadCart {
        type Arguments = NoArguments;
        type State = Cart;
        type Output = usize;
        async fn call(&self, _: NoArguments, cart: &mut Cart, _: &CallContext) -> Result<usize, ToolError> {
            tokio::task::yield_now().await;
            Ok(cart.lines.len())
        }
    }
    let hub = shop_hub().await;
    hub.register(stateful("look", ReadCart).read_only()).unwrap();
    hub.call("add_to_cart", item("tea")).thread("t1").await.assert_success();
    let looks: Vec<_> = (0..10).map(|_| hub.call("look", json!({})).thread("t1").start()).collect();
    for look in looks {
        assert_eq!(look.await.assert_success(), &json!(1));
    }
}

#[tokio::test]
async fn state_nested_too_deeply_to_be_read_again_is_not_written() {
    #[derive(Default, Serialize, Deserialize)]
    struct Deep(Value);
    impl ToolState for Deep {
        const NAME: &'static str = "deep";
    }
    async fn dig(_: NoArguments, mut deep: State<Deep>) -> Result<(), ToolError> {
        deep.0 = (0..200).fold(json!(1), |inner, _| json!([inner]));
        Ok(())
    }
    async fn read_deep(_: NoArguments, deep: State<Deep>) -> Result<Value, ToolError> {
        Ok(deep.0.clone())
    }
    let hub = ToolHub::builder().tool(tool("dig", dig)).tool(tool("look", read_deep)).build().await.unwrap();
    hub.call("dig", json!({})).thread("t1").await.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
    assert_eq!(hub.call("look", json!({})).thread("t1").await.assert_success(), &Value::Null);
}
