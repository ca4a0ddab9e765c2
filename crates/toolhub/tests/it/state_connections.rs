//! Connection states: kept around every execution of stateful tools, and while an instance lives.

use toolhub::{
    ConnectionState, ManagerType, StateManagerConfig,
    prelude::*,
    testing::{AssertOutcome, TestClock},
};

use crate::{
    gated_tool::{GatedTool, wait_until},
    shop_tools::{AddItem, Cart, add_to_cart},
};

async fn connection(hub: &ToolHub, context: &str) -> Option<ConnectionState> {
    let entry = hub.state().get_state(&Tenant::default(), &context.parse().unwrap(), StateKind::Connection).await;
    entry.unwrap().map(|entry| serde_json::from_value(entry.data).unwrap())
}

#[tokio::test]
async fn a_connection_is_active_while_its_tool_runs_and_counts_the_errors() {
    async fn look(_: NoArguments, _: State<Cart>, cx: CallContext) -> Result<bool, ToolError> {
        Ok(cx.state(&StateName::new(Cart::NAME)?)?.connection().await?.active)
    }
    let hub = ToolHub::builder().tool(tool("look", look)).tool(tool("add", add_to_cart)).build().await.unwrap();
    assert_eq!(hub.call("look", json!({})).thread("t").await.assert_success(), &json!(true));
    let idle = connection(&hub, "t/cart").await.unwrap();
    assert_eq!((idle.active, idle.error_count, idle.last_error), (false, 0, None));
    assert!(idle.last_used.is_some());
    for _ in 0..2 {
        hub.call("add", json!({"sku": "poison", "qty": 1})).thread("t").await.assert_error(ErrorKind::ToolError);
    }
    let failed = connection(&hub, "t/cart").await.unwrap();
    assert_eq!((failed.active, failed.error_count), (false, 2));
    assert_eq!(failed.last_error.as_deref(), Some("the shop does not sell poison"));
    assert_eq!(connection(&hub, "other/cart").await, None);
}

#[tokio::test]
async fn a_connection_stays_active_until_the_last_of_its_calls_has_ended() {
    let gate = GatedTool::new();
    let opened = gate.clone();
    let wait = move |_: NoArguments, _: State<Cart>, cx: CallContext| {
        let gate = opened.clone();
        async move { gate.wait_at_gate(&cx).await }
    };
    let hub = ToolHub::builder().tool(tool("wait", wait).read_only()).build().await.unwrap();
    let calls = [(); 2].map(|()| hub.call("wait", json!({})).thread("t").start());
    wait_until(|| gate.running() == 2).await;
    let active = async || connection(&hub, "t/cart").await.unwrap().active;
    assert!(active().await);
    // A cancelled call releases it as well.
    let [first, second] = calls;
    first.cancel();
    first.await.assert_error(ErrorKind::Cancelled);
    assert!(active().await);
    gate.release(1);
    second.await.assert_success();
    assert!(!active().await);
}

#[tokio::test]
async fn what_a_writer_says_of_a_connection_holds_while_no_call_uses_it() {
    async fn connect(item: AddItem, _: State<Cart>, cx: CallContext) -> Result<(), ToolError> {
        let state = cx.state(&StateName::new(Cart::NAME)?)?;
        state.set(StateKind::Connection, json!({"active": item.sku == "open", "host": "example.com"}), None).await?;
        Ok(())
    }
    let hub = ToolHub::builder().tool(tool("connect", connect)).build().await.unwrap();
    for (sku, active) in [("open", true), ("close", false)] {
        hub.call("connect", json!({"sku": sku, "qty": 1})).thread("t").await.assert_success();
        let context = "t/cart".parse().unwrap();
        let entry = hub.state().get_state(&Tenant::default(), &context, StateKind::Connection).await.unwrap().unwrap();
        assert_eq!((&entry.data["active"], &entry.data["host"]), (&json!(active), &json!("example.com")));
        assert!(entry.data["lastUsed"].is_string() || entry.data["lastUsed"].is_number(), "{}", entry.data);
    }
}

#[tokio::test]
async fn a_change_to_a_connection_during_a_call_does_not_keep_it_active() {
    let gate = GatedTool::new();
    let opened = gate.clone();
    let wait = move |_: NoArguments, _: State<Cart>, cx: CallContext| {
        let gate = opened.clone();
        async move { gate.wait_at_gate(&cx).await }
    };
    let hub = ToolHub::builder().tool(tool("wait", wait)).build().await.unwrap();
    let running = hub.call("wait", json!({})).thread("t").start();
    wait_until(|| gate.running() == 1).await;
    let (tenant, context) = (Tenant::default(), "t/cart".parse().unwrap());
    let change = json!({"host": "example.com"});
    hub.state().update_state(&tenant, &context, StateKind::Connection, change).await.unwrap();
    assert!(connection(&hub, "t/cart").await.unwrap().active, "a call holds it");
    gate.release(1);
    running.await.assert_success();
    let entry = hub.state().get_state(&tenant, &context, StateKind::Connection).await.unwrap().unwrap();
    assert_eq!((&entry.data["active"], &entry.data["host"]), (&json!(false), &json!("example.com")));
}

#[tokio::test(start_paused = true)]
async fn with_sessions_a_connection_is_readable_before_in_and_not_after_a_session() {
    async fn ping(_: NoArguments, _: State<Cart>) -> Result<(), ToolError> {
        Err(ToolError::new("no answer"))
    }
    let minute = std::time::Duration::from_secs(60);
    let config =
        StateManagerConfig { manager_type: Some(ManagerType::Session), session_timeout: minute, ..Default::default() };
    let hub = ToolHub::builder().state_manager(config).clock(TestClock::new()).tool(tool("ping", ping).read_only());
    let hub = hub.build().await.unwrap();
    hub.call("ping", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    assert_eq!(connection(&hub, "t/cart").await.unwrap().error_count, 1, "there is no session yet");
    let (tenant, other) = (Tenant::default(), "t/other".parse().unwrap());
    hub.state().set_state(&tenant, &other, StateKind::Business, json!({"n": 1}), None).await.unwrap();
    hub.call("ping", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    assert_eq!(connection(&hub, "t/cart").await.unwrap().error_count, 2);
    tokio::time::sleep(3 * minute).await;
    assert_eq!(connection(&hub, "t/cart").await, None, "the session has ended");
    hub.call("ping", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    assert_eq!(connection(&hub, "t/cart").await.unwrap().error_count, 1);
}

#[tokio::test]
async fn a_connection_is_active_for_as_long_as_its_instance_lives() {
    struct Line;
    impl Instance for Line {
        type Arguments = AddItem;
        type Output = ();
        async fn call(&mut self, item: AddItem, _: &CallContext) -> Result<(), ToolError> {
            assert_ne!(item.sku, "poison", "the line is cut");
            Ok(())
        }
    }
    let hub = ToolHub::builder().tool(instance("line", async |_: CallContext| Ok(Line))).build().await.unwrap();
    let call = async |sku: &str| hub.call("line", json!({"sku": sku, "qty": 1})).thread("t").await;
    call("tea").await.assert_success();
    let open = connection(&hub, "t/line").await.unwrap();
    assert_eq!((open.active, open.session_active, open.error_count), (true, true, 0));
    call("poison").await.assert_error(ErrorKind::Crashed);
    let cut = connection(&hub, "t/line").await.unwrap();
    assert_eq!((cut.active, cut.session_active, cut.error_count), (false, false, 1));
    call("tea").await.assert_success();
    assert!(connection(&hub, "t/line").await.unwrap().active);
    hub.unregister("line").await.unwrap();
    let closed = connection(&hub, "t/line").await.unwrap();
    assert_eq!((closed.active, closed.session_active, closed.error_count), (false, false, 1));
}

#[tokio::test]
async fn members_that_others_add_to_the_session_state_stay() {
    let hub = ToolHub::builder().tool(tool("add", add_to_cart)).build().await.unwrap();
    let (state, tenant, context) = (hub.state(), Tenant::default(), "t/cart".parse().unwrap());
    let call = async || hub.call("add", json!({"sku": "tea", "qty": 1})).thread("t").await.assert_success().clone();
    call().await;
    let before = state.get_state(&tenant, &context, StateKind::Session).await.unwrap().unwrap().data;
    state.update_state(&tenant, &context, StateKind::Session, json!({"user": "ann"})).await.unwrap();
    call().await;
    let session = state.get_state(&tenant, &context, StateKind::Session).await.unwrap().unwrap().data;
    assert_eq!((&session["user"], &session["calls"]), (&json!("ann"), &json!(2)));
    assert_eq!(session["created"], before["created"]);
    assert!(session["lastActivity"].as_str() >= before["lastActivity"].as_str());
    // A session state without the time of its creation gets one.
    let other = "u/cart".parse().unwrap();
    state.set_state(&tenant, &other, StateKind::Session, json!({"user": "bob"}), None).await.unwrap();
    hub.call("add", json!({"sku": "tea", "qty": 1})).thread("u").await.assert_success();
    let session = state.get_state(&tenant, &other, StateKind::Session).await.unwrap().unwrap().data;
    assert_eq!((&session["user"], &session["created"]), (&json!("bob"), &session["lastActivity"]));
}
