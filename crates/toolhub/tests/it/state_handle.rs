//! The JSON handle of a running tool to its state.

use std::sync::Arc;

use toolhub::{
    BusinessStateConfig, HistoryEvent, StateEntry,
    StateKind::{Business, Cache, Connection, Session},
    StateManagerConfig,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    prelude::*,
    testing::AssertOutcome,
};

use crate::{
    shop_tools::Cart,
    state_manager::{cart, data, default_manager, default_tenant, hub_on},
};

fn name(text: &str) -> StateName {
    StateName::new(text).unwrap()
}

/// Writes to a mailbox in every possible way, and fails if asked to.
#[derive(Deserialize, JsonSchema)]
struct Fill {
    fail: bool,
}

async fn fill(fill: Fill, cx: CallContext) -> Result<String, ToolError> {
    let state = cx.state(&name("mailbox"))?;
    assert!(!state.connection().await?.active, "there is no connection yet");
    let now = cx.now();
    state.set(Connection, json!({"active": true, "lastUsed": now}), None).await?;
    assert_eq!(state.update(Connection, json!({"errorCount": 2})).await?, 2);
    let connection = state.connection().await?;
    assert_eq!((connection.active, connection.error_count, connection.last_used), (true, 2, Some(now)));
    assert_eq!(state.session().await?, None);
    state.set(Session, json!({"calls": 1}), None).await?;
    assert_eq!(state.session().await?.map(|session| session.calls), Some(1));
    state.set(Cache, json!({}), Some(std::time::Duration::from_secs(9))).await?;
    assert_eq!(state.set(Business, json!({"unread": 3}), None).await?, 1);
    assert_eq!(state.update(Business, json!({"read": 4})).await?, 2);
    state.note(json!({"folder": "inbox", "password": "hush"})).await?;
    if fill.fail {
        return Err(ToolError::new("no"));
    }
    Ok(state.id().to_string())
}

async fn peek(_: NoArguments, cx: CallContext) -> Result<Option<StateEntry>, ToolError> {
    Ok(cx.state(&name("mailbox"))?.get(Business).await?)
}

async fn forget(_: NoArguments, cx: CallContext) -> Result<bool, ToolError> {
    Ok(cx.state(&name("mailbox"))?.clear().await?)
}

async fn mailbox_hub(config: StateManagerConfig) -> ToolHub {
    let tools = [tool("fill", fill), tool("peek", peek), tool("forget", forget)];
    ToolHub::builder().state_manager(config).tools(tools).build().await.unwrap()
}

#[tokio::test]
async fn a_running_tool_reads_and_changes_the_states_of_its_own_thread() {
    let hub = mailbox_hub(StateManagerConfig::default()).await;
    let filled = hub.call("fill", json!({"fail": false})).thread("t1").await;
    assert_eq!(filled.assert_success(), &json!("t1/mailbox"));
    let seen = hub.call("peek", json!({})).thread("t1").await;
    assert_eq!(seen.assert_success()["data"], json!({"unread": 3, "read": 4}));
    assert_eq!(hub.call("peek", json!({})).thread("t2").await.assert_success(), &json!(null));
    let other = Tenant::new("other").unwrap();
    assert_eq!(hub.call("peek", json!({})).tenant(other).thread("t1").await.assert_success(), &json!(null));

    let history = hub.state().history(&default_tenant(), &"t1/mailbox".parse().unwrap(), 99).await.unwrap();
    let note = HistoryEvent::Note { what: json!({"folder": "inbox", "password": "[redacted]"}) };
    assert_eq!(history.last().map(|entry| &entry.event), Some(&note));
    assert_eq!(hub.call("forget", json!({})).thread("t1").await.assert_success(), &json!(true));
    assert_eq!(hub.call("peek", json!({})).thread("t1").await.assert_success(), &json!(null));
    assert_eq!(hub.call("forget", json!({})).thread("t1").await.assert_success(), &json!(false));
}

#[tokio::test]
async fn what_a_tool_changes_by_hand_stays_when_its_call_fails() {
    let hub = mailbox_hub(StateManagerConfig::default()).await;
    hub.call("fill", json!({"fail": true})).thread("t1").await.assert_error(ErrorKind::ToolError);
    let seen = hub.call("peek", json!({})).thread("t1").await;
    assert_eq!(seen.assert_success()["version"], 2);
}

#[tokio::test]
async fn without_a_thread_there_is_no_state_unless_all_threads_share_it() {
    let hub = mailbox_hub(StateManagerConfig::default()).await;
    let refused = hub.call("peek", json!({})).await;
    refused.assert_error(ErrorKind::ToolError);
    assert!(refused.error.as_ref().unwrap().operator.contains("the call has no thread"), "{refused:?}");
    let hub = mailbox_hub(StateManagerConfig { session_isolation: false, ..Default::default() }).await;
    assert_eq!(hub.call("fill", json!({"fail": false})).thread("t1").await.assert_success(), &json!("~/mailbox"));
    assert_eq!(hub.call("peek", json!({})).await.assert_success()["version"], 2);
}

#[tokio::test]
async fn a_tool_that_changes_its_state_in_both_ways_is_told_of_the_conflict() {
    async fn twice(_: NoArguments, mut cart: State<Cart>, cx: CallContext) -> Result<(), ToolError> {
        cart.lines.push(("tea".into(), 1));
        cx.state(&name("cart"))?.set(Business, json!({"lines": []}), None).await?;
        Ok(())
    }
    let hub = ToolHub::builder().tool(tool("twice", twice)).build().await.unwrap();
    hub.call("twice", json!({})).thread("t1").await.assert_error(ErrorKind::StateConflict);
    assert_eq!(data(&hub.state(), Business).await, Some(json!({"lines": []})));
}

#[tokio::test]
async fn the_version_of_a_state_is_kept_in_one_place() {
    let store = Arc::new(Memory::new());
    let state = hub_on(store.clone(), BusinessStateConfig::default()).await.state();
    // A member of that name belongs to the tool.
    state.set_state(&default_tenant(), &cart(), Business, json!({"version": 99}), None).await.unwrap();
    assert_eq!(state.update_state(&default_tenant(), &cart(), Business, json!({"n": 1})).await, Ok(2));
    assert_eq!(state.rollback(&default_tenant(), &cart(), 1).await, Ok(3));
    let entry = state.get_state(&default_tenant(), &cart(), Business).await.unwrap().unwrap();
    assert_eq!((entry.version, entry.data), (3, json!({"version": 99})));
    let info = state.get_context_info(&default_tenant(), &cart()).await.unwrap().unwrap();
    assert_eq!(info.kinds[&Business].version, 3);
    assert_eq!(state.versions(&default_tenant(), &cart()).await.unwrap().last().unwrap().version, 3);
    let last = state.history(&default_tenant(), &cart(), 1).await.unwrap().remove(0).event;
    assert!(matches!(last, HistoryEvent::Update { version: 3, .. }), "{last:?}");
    let rows = store.scan(Scan::new(Table::State, Scope::All), Timestamp::from_millis(0)).await.unwrap().rows;
    let [(_, row)] = rows.as_slice() else { panic!("one row: {rows:?}") };
    assert_eq!((row.version.number, &*row.value), (3, br#"{"version":99}"#.as_slice()));
}

#[tokio::test]
async fn the_connections_of_a_deleted_thread_are_forgotten() {
    let hub = mailbox_hub(StateManagerConfig::default()).await;
    hub.call("fill", json!({"fail": false})).thread("t1").await.assert_success();
    hub.call("fill", json!({"fail": false})).thread("t2").await.assert_success();
    assert!(hub.delete_thread(&default_tenant(), &ThreadId::new("t1").unwrap()).await.unwrap());
    for (context, there) in [("t1/mailbox", false), ("t2/mailbox", true)] {
        let connection = hub.state().get_state(&default_tenant(), &context.parse().unwrap(), Connection).await.unwrap();
        assert_eq!(connection.is_some(), there, "{context}");
    }
}

#[tokio::test]
async fn as_many_snapshots_are_kept_as_asked_for() {
    for (max_versions, expected) in [(0, vec![]), (1, vec![4]), (3, vec![2, 3, 4])] {
        let config = BusinessStateConfig { max_versions, ..Default::default() };
        let state = hub_on(Arc::new(Memory::new()), config).await.state();
        for n in 1..=4 {
            state.set_state(&default_tenant(), &cart(), Business, json!({"n": n}), None).await.unwrap();
        }
        let versions: Vec<u64> =
            state.versions(&default_tenant(), &cart()).await.unwrap().iter().map(|old| old.version).collect();
        assert_eq!(versions, expected);
    }
    assert!(default_manager().await.versions(&default_tenant(), &cart()).await.unwrap().is_empty());
}
