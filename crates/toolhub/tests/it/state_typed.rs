//! Typed state: schema versions, history, snapshots, sizes, explicit saves, cleanup.

use std::{sync::Arc, time::Duration};

use toolhub::{
    BusinessStateConfig, ContextId, HistoryEvent, JsonReply, SessionState, StateCleanup, StateManagerConfig,
    backend::Memory,
    dynamic_stateful,
    prelude::*,
    testing::{AssertOutcome, TestClock},
};

use crate::shop_tools::{Cart, add_to_cart, shop_hub, show_cart};

fn id(text: &str) -> ContextId {
    text.parse().unwrap()
}

fn item(sku: &str) -> Value {
    json!({"sku": sku, "qty": 1})
}

async fn business_state(hub: &ToolHub, context: &str) -> Option<Value> {
    let entry = hub.state().get_state(&Tenant::default(), &id(context), StateKind::Business).await.unwrap();
    entry.map(|entry| entry.data)
}

#[tokio::test]
async fn a_stored_value_of_an_older_layout_is_migrated_and_kept_if_that_fails() {
    #[derive(Default, Serialize, Deserialize)]
    struct Name {
        first: String,
        last: String,
    }
    impl ToolState for Name {
        const NAME: &'static str = "name";
        const VERSION: u32 = 2;
        fn migrate(from: u32, data: Value) -> Result<Self, String> {
            let whole = data["name"].as_str().ok_or_else(|| format!("layout {from} without a name"))?;
            let (first, last) = whole.split_once(' ').ok_or("a name has two parts")?;
            Ok(Self { first: first.into(), last: last.into() })
        }
    }
    async fn last(_: NoArguments, name: State<Name>) -> Result<String, ToolError> {
        Ok(name.last.clone())
    }
    async fn marry(_: NoArguments, mut name: State<Name>) -> Result<(), ToolError> {
        name.last = "King".into();
        Ok(())
    }
    let hub = ToolHub::builder().tool(tool("last", last).read_only()).tool(tool("marry", marry)).build().await.unwrap();
    let (state, tenant) = (hub.state(), Tenant::default());
    let old = json!({"name": "Ada Byron"});
    state.set_state(&tenant, &id("t/name"), StateKind::Business, old.clone(), None).await.unwrap();
    assert_eq!(hub.call("last", json!({})).thread("t").await.assert_success(), &json!("Byron"));
    assert_eq!(business_state(&hub, "t/name").await, Some(old), "reading changes nothing");
    hub.call("marry", json!({})).thread("t").await.assert_success();
    assert_eq!(business_state(&hub, "t/name").await, Some(json!({"first": "Ada", "last": "King"})));
    assert_eq!(hub.call("last", json!({})).thread("t").await.assert_success(), &json!("King"));

    let odd = json!({"name": "Plato"});
    state.set_state(&tenant, &id("u/name"), StateKind::Business, odd.clone(), None).await.unwrap();
    let outcome = hub.call("marry", json!({})).thread("u").await;
    outcome.assert_effect(Effect::None).assert_error(ErrorKind::StateUnreadable);
    assert!(outcome.error.unwrap().operator.contains("a name has two parts"));
    assert_eq!(business_state(&hub, "u/name").await, Some(odd));
}

#[tokio::test]
async fn calls_are_told_in_the_history_of_the_states_they_use() {
    let hub = shop_hub().await;
    let secret = json!({"sku": "tea", "qty": 1});
    hub.call("add_to_cart", secret).thread("t").await.assert_success();
    hub.call("show_cart", json!({})).thread("t").await.assert_success();
    hub.call("add_to_cart", item("poison")).thread("t").await.assert_error(ErrorKind::ToolError);
    let history = hub.state().history(&Tenant::default(), &id("t/cart"), 100).await.unwrap();
    let what: Vec<Value> = history.iter().map(|entry| serde_json::to_value(&entry.event).unwrap()).collect();
    let expected = [
        json!({"type": "execution_start", "parameters": {"sku": "tea", "qty": 1}}),
        json!({"type": "update", "updates": {"lines": [["tea", 1]]}, "version": 1}),
        json!({"type": "execution_success", "resultType": "number"}),
        json!({"type": "execution_start", "parameters": {"sku": "poison", "qty": 1}}),
        json!({"type": "execution_error", "error": "the shop does not sell poison", "errorType": "tool_error"}),
    ];
    assert_eq!(what, expected);
}

#[tokio::test]
async fn calls_are_counted_in_the_session_state_of_the_context() {
    let hub = shop_hub().await;
    for sku in ["tea", "cake", "poison"] {
        hub.call("add_to_cart", item(sku)).thread("t").await;
    }
    let entry = hub.state().get_state(&Tenant::default(), &id("t/cart"), StateKind::Session).await.unwrap().unwrap();
    let session: SessionState = serde_json::from_value(entry.data).unwrap();
    assert_eq!(session.calls, 3);
}

#[tokio::test]
async fn what_a_tool_wrote_can_be_rolled_back() {
    let hub = shop_hub().await;
    for sku in ["tea", "cake"] {
        hub.call("add_to_cart", item(sku)).thread("t").await.assert_success();
    }
    let (state, tenant) = (hub.state(), Tenant::default());
    let versions = state.versions(&tenant, &id("t/cart")).await.unwrap();
    assert_eq!(versions.iter().map(|snapshot| snapshot.version).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(state.rollback(&tenant, &id("t/cart"), 1).await.unwrap(), 3);
    assert_eq!(hub.call("show_cart", json!({})).thread("t").await.assert_success(), &json!([["tea", 1]]));
    // And the tool continues from there.
    hub.call("add_to_cart", item("pie")).thread("t").await.assert_success();
    assert_eq!(business_state(&hub, "t/cart").await, Some(json!({"lines": [["tea", 1], ["pie", 1]]})));
}

#[tokio::test]
async fn a_state_that_grows_too_large_is_not_committed_and_the_call_says_so() {
    let hub = ToolHub::builder()
        .business_state(BusinessStateConfig { max_state_size: 40, ..Default::default() })
        .tool(tool("add_to_cart", add_to_cart))
        .build()
        .await
        .unwrap();
    hub.call("add_to_cart", item("tea")).thread("t").await.assert_success();
    let outcome = hub.call("add_to_cart", item(&"x".repeat(40))).thread("t").await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::StateTooLarge);
    assert_eq!(business_state(&hub, "t/cart").await, Some(json!({"lines": [["tea", 1]]})));
    let history = hub.state().history(&Tenant::default(), &id("t/cart"), 100).await.unwrap();
    let errors: Vec<_> = (history.iter())
        .filter_map(|entry| {
            if let HistoryEvent::ExecutionError { error_type, .. } = &entry.event {
                Some(error_type.as_str())
            } else {
                None
            }
        })
        .collect();
    assert_eq!((history.len(), errors), (5, vec!["state_too_large"]));
}

#[tokio::test]
async fn without_auto_save_only_an_explicit_save_is_committed() {
    #[derive(Deserialize, JsonSchema)]
    struct Save {
        save: bool,
    }
    async fn shop(how: Save, mut cart: State<Cart>) -> Result<(), ToolError> {
        cart.lines.push(("saved".into(), 1));
        if how.save {
            cart.save()?;
        }
        cart.lines.push(("lost".into(), 1));
        Ok(())
    }
    let hub = ToolHub::builder()
        .business_state(BusinessStateConfig { auto_save: false, ..Default::default() })
        .tool(tool("shop", shop))
        .build()
        .await
        .unwrap();
    hub.call("shop", json!({"save": false})).thread("t").await.assert_success();
    assert_eq!(business_state(&hub, "t/cart").await, None);
    hub.call("shop", json!({"save": true})).thread("t").await.assert_success();
    assert_eq!(business_state(&hub, "t/cart").await, Some(json!({"lines": [["saved", 1]]})));
}

#[tokio::test]
async fn a_tools_state_may_be_shared_by_all_threads_of_a_tenant() {
    let hub = ToolHub::builder()
        .state_manager(StateManagerConfig { session_isolation: false, ..Default::default() })
        .tool(tool("add_to_cart", add_to_cart))
        .tool(tool("show_cart", show_cart).read_only())
        .build()
        .await
        .unwrap();
    hub.call("add_to_cart", item("tea")).thread("a").await.assert_success();
    hub.call("add_to_cart", item("cake")).thread("b").await.assert_success();
    let seen = hub.call("show_cart", json!({})).thread("c").await;
    assert_eq!(seen.assert_success(), &json!([["tea", 1], ["cake", 1]]));
    assert_eq!(business_state(&hub, "~/cart").await, Some(json!({"lines": [["tea", 1], ["cake", 1]]})));
    let other = hub.call("show_cart", json!({})).thread("a").tenant(Tenant::new("other").unwrap()).await;
    assert_eq!(other.assert_success(), &json!([]));
}

#[tokio::test]
async fn a_time_to_live_begins_anew_with_each_call_that_writes() {
    let clock = TestClock::new();
    let hub = ToolHub::builder()
        .clock(clock.clone())
        .state_manager(StateManagerConfig { ttl: Some(Duration::from_secs(60)), ..Default::default() })
        .tool(tool("add_to_cart", add_to_cart))
        .tool(tool("show_cart", show_cart).read_only())
        .build()
        .await
        .unwrap();
    hub.call("add_to_cart", item("tea")).thread("t").await.assert_success();
    clock.jump(50_000);
    hub.call("add_to_cart", item("cake")).thread("t").await.assert_success();
    clock.jump(50_000);
    let seen = hub.call("show_cart", json!({})).thread("t").await;
    assert_eq!(seen.assert_success(), &json!([["tea", 1], ["cake", 1]]));
    clock.jump(10_000);
    assert_eq!(hub.call("show_cart", json!({})).thread("t").await.assert_success(), &json!([]));
    // A recreated state begins at version 1, without the snapshots of the expired one.
    hub.call("add_to_cart", item("pie")).thread("t").await.assert_success();
    let versions = hub.state().versions(&Tenant::default(), &id("t/cart")).await.unwrap();
    assert_eq!(versions.iter().map(|snapshot| snapshot.version).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn a_state_goes_after_its_call_with_its_thread_or_never() {
    let store = Arc::new(Memory::new());
    let with = |name: &str, when| tool(name, add_to_cart).state_cleanup(when);
    for (name, when, after_call, after_thread) in [
        ("after_call", StateCleanup::AfterCall, false, false),
        ("thread_end", StateCleanup::ThreadEnd, true, false),
        ("never", StateCleanup::Never, true, true),
    ] {
        let hub = ToolHub::builder().shared_store(store.clone()).tool(with(name, when)).build().await.unwrap();
        let (thread, context) = (ThreadId::new(name).unwrap(), format!("{name}/cart"));
        for _ in 0..2 {
            hub.call(name, item("tea")).thread(name).await.assert_success();
            assert_eq!(business_state(&hub, &context).await.is_some(), after_call, "{name}");
        }
        let info = hub.state().get_context_info(&Tenant::default(), &id(&context)).await;
        assert_eq!(info.is_ok_and(|info| info.is_some()), after_call, "{name}: nothing else is left either");
        assert!(hub.delete_thread(&Tenant::default(), &thread).await.unwrap());
        assert_eq!(business_state(&hub, &context).await.is_some(), after_thread, "{name}");
    }
}

#[tokio::test]
async fn a_state_that_goes_after_its_call_goes_after_one_that_failed_too() {
    async fn fail(_: NoArguments, mut cart: State<Cart>) -> Result<(), ToolError> {
        cart.lines.clear();
        Err(ToolError::new("out of stock"))
    }
    let tool = tool("fail", fail).state_cleanup(StateCleanup::AfterCall);
    let hub = ToolHub::builder().tool(tool).build().await.unwrap();
    let left = json!({"lines": [["tea", 1]]});
    hub.state().set_state(&Tenant::default(), &id("t/cart"), StateKind::Business, left, None).await.unwrap();
    hub.call("fail", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    assert_eq!(business_state(&hub, "t/cart").await, None);
}

#[tokio::test]
async fn what_is_said_about_a_state_that_is_not_there_is_refused() {
    let hub = ToolHub::builder().build().await.unwrap();
    async fn nothing(_: NoArguments) -> Result<(), ToolError> {
        Ok(())
    }
    for wrong in [tool("x", nothing).rerunnable(), tool("x", nothing).state_cleanup(StateCleanup::Never)] {
        let error = hub.register(wrong).unwrap_err().to_string();
        assert!(error.contains("it has no state"), "{error}");
    }
    let error = hub.register(tool("x", show_cart).state_parameter_name("cart")).unwrap_err().to_string();
    assert!(error.contains("only a JSON tool"), "{error}");
}

#[tokio::test]
async fn opening_a_session_makes_the_context_of_a_tools_state() {
    let hub = shop_hub().await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    hub.open_session("add_to_cart", &tenant, &thread).await.unwrap();
    let info = hub.state().get_context_info(&tenant, &id("t/cart")).await.unwrap().expect("it is there");
    assert_eq!(info.kinds.keys().copied().collect::<Vec<_>>(), [StateKind::Session]);
    hub.open_session("add_to_cart", &tenant, &thread).await.unwrap();
    hub.call("add_to_cart", item("tea")).thread("t").await.assert_success();
    assert_eq!(business_state(&hub, "t/cart").await, Some(json!({"lines": [["tea", 1]]})));
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_limits_of_its_state_and_every_writer_keeps_to_them() {
    let clock = TestClock::new();
    let add = tool("add_to_cart", add_to_cart)
        .state_ttl(Duration::from_secs(60))
        .max_state_size(60)
        .max_versions(2)
        .max_history_size(3);
    let other = dynamic_stateful("other", "other", json!({"type": "object"}), async |_: Value, _: CallContext| {
        Ok(JsonReply::with_state(json!("ok"), json!({"text": "x".repeat(100)})))
    });
    let hub = ToolHub::builder()
        .clock(clock.clone())
        .tool(add)
        .tool(tool("show_cart", show_cart).read_only())
        .tool(other)
        .build()
        .await
        .unwrap();
    let (state, tenant) = (hub.state(), Tenant::default());
    for sku in ["a", "b", "c"] {
        hub.call("add_to_cart", item(sku)).thread("t").await.assert_success();
    }
    assert_eq!(state.versions(&tenant, &id("t/cart")).await.unwrap().len(), 2);
    assert_eq!(state.history(&tenant, &id("t/cart"), 100).await.unwrap().len(), 3);
    let entry = state.get_state(&tenant, &id("t/cart"), StateKind::Business).await.unwrap().unwrap();
    assert_eq!(entry.expires, Some(entry.updated + Duration::from_secs(60)));
    // The size limit applies to the tool, and to writes that come from elsewhere.
    let too_large = hub.call("add_to_cart", json!({"sku": "x".repeat(60), "qty": 1})).thread("t").await;
    too_large.assert_error(ErrorKind::StateTooLarge);
    let data = json!({"lines": [["x".repeat(60), 1]]});
    assert!(state.set_state(&tenant, &id("t/cart"), StateKind::Business, data, None).await.is_err());
    // Another state has the hub's limits.
    hub.call("other", json!({})).thread("t").await.assert_success();
    let entry = state.get_state(&tenant, &id("t/other"), StateKind::Business).await.unwrap().unwrap();
    assert_eq!(entry.expires, None);
    clock.advance(Duration::from_secs(61)).await;
    assert_eq!(hub.call("show_cart", json!({})).thread("t").await.assert_success(), &json!([]));
}

#[tokio::test]
async fn a_tool_that_saves_explicitly_commits_nothing_else() {
    async fn add_and_save(item: crate::shop_tools::AddItem, mut cart: State<Cart>) -> Result<(), ToolError> {
        cart.lines.push((item.sku, item.qty));
        cart.save()?;
        cart.lines.push(("unsaved".into(), 1));
        Ok(())
    }
    let hub = ToolHub::builder()
        .tool(tool("saves", add_and_save).auto_save(false))
        .tool(tool("forgets", add_to_cart).auto_save(false))
        .tool(tool("show_cart", show_cart).read_only())
        .build()
        .await
        .unwrap();
    hub.call("forgets", item("a")).thread("t").await.assert_success();
    hub.call("saves", item("b")).thread("t").await.assert_success();
    assert_eq!(hub.call("show_cart", json!({})).thread("t").await.assert_success(), &json!([["b", 1]]));
}

#[tokio::test]
async fn tools_that_share_a_state_cannot_limit_it_differently() {
    let limited = |name: &str, versions| tool(name, add_to_cart).max_versions(versions);
    let built = ToolHub::builder().tool(limited("a", 2)).tool(limited("b", 3)).build().await;
    let error = built.unwrap_err().to_string();
    assert!(error.contains("another tool with the state `cart` has a different `max_versions`"), "{error}");
    let hub = ToolHub::builder().tool(limited("a", 2)).tool(tool("c", add_to_cart)).build().await.unwrap();
    assert!(hub.register(limited("b", 3)).is_err());
    let zero = ToolHub::builder().tool(tool("a", add_to_cart).state_ttl(Duration::ZERO)).build().await;
    assert!(zero.unwrap_err().to_string().contains("`ttl` of less than a millisecond"));
}
