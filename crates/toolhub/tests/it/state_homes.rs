//! Who keeps which state: the hub's own store, another one for all of them, or another one for a tool's.

use std::sync::Arc;

use toolhub::{
    BusinessStateConfig, ContextFilter, HubBuilder, ManagerType, StateCleanup,
    StateKind::Business,
    StateManagerConfig,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    prelude::*,
    testing::AssertOutcome,
};

use crate::{
    shop::{add_to_cart, show_cart},
    state_manager::main,
};

#[derive(Default, Serialize, Deserialize)]
struct Notes(Vec<String>);
impl ToolState for Notes {
    const NAME: &'static str = "notes";
}

async fn note(_: NoArguments, mut notes: State<Notes>) -> Result<usize, ToolError> {
    notes.0.push("noted".into());
    Ok(notes.0.len())
}

fn tea() -> Value {
    json!({"sku": "tea", "qty": 1})
}

/// A hub whose persistent manager is this store, and whose own is that.
fn builder(disk: &Arc<Memory>, own: &Arc<Memory>) -> HubBuilder {
    let disk: Arc<dyn Backend> = disk.clone();
    ToolHub::builder().shared_store(own.clone()).managers(move |manager, _: &BusinessStateConfig| {
        assert_eq!(manager.manager_type, Some(ManagerType::Persistent));
        Ok::<_, String>(disk.clone())
    })
}

async fn rows(store: &Memory, table: Table) -> Vec<String> {
    let page = store.scan(Scan::of(table, Scope::All).limit(1_000), Timestamp::from_millis(0)).await.unwrap();
    page.rows.into_iter().map(|(key, _)| key.id.into()).collect()
}

#[tokio::test]
async fn all_states_may_lie_in_another_store_than_the_calls() {
    let (disk, own) = (Arc::default(), Arc::default());
    let config = StateManagerConfig { manager_type: Some(ManagerType::Persistent), ..Default::default() };
    let hub = || builder(&disk, &own).state_manager(config.clone()).tool(tool("note", note));
    let first = hub().build().await.unwrap();
    for count in 1..=3 {
        assert_eq!(first.call("note", json!({})).thread("t").await.assert_success(), &json!(count));
    }
    assert_eq!(rows(&disk, Table::State).await, ["notes/business", "notes/session"]);
    assert_eq!(rows(&own, Table::State).await, [""; 0]);
    assert_eq!((rows(&own, Table::Calls).await.len(), rows(&disk, Table::Calls).await.len()), (3, 0));
    drop(first);
    let second = hub().build().await.unwrap();
    assert_eq!(second.call("note", json!({})).thread("t").await.assert_success(), &json!(4));
    let history = second.state().history(&main(), &"t/notes".parse().unwrap(), 99).await.unwrap();
    assert_eq!(history.len(), 12, "it is complete: a start, a write and a success for each call");
}

#[tokio::test]
async fn one_tool_may_keep_its_state_elsewhere_and_all_that_share_it_find_it_there() {
    let (disk, own) = (Arc::default(), Arc::default());
    let hub = builder(&disk, &own)
        .tool(tool("add_to_cart", add_to_cart).manager_type(ManagerType::Persistent))
        .tool(tool("show_cart", show_cart).read_only())
        .tool(tool("note", note))
        .build()
        .await
        .unwrap();
    for thread in ["a", "b", "c"] {
        hub.call("add_to_cart", tea()).thread(thread).await.assert_success();
        hub.call("note", json!({})).thread(thread).await.assert_success();
        assert_eq!(hub.call("show_cart", json!({})).thread(thread).await.assert_success(), &json!([["tea", 1]]));
    }
    assert!(rows(&disk, Table::State).await.iter().all(|id| id.starts_with("cart/")));
    assert!(rows(&own, Table::State).await.iter().all(|id| id.starts_with("notes/")));

    let state = hub.state();
    for limit in 1..10 {
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let filter = ContextFilter { limit, ..Default::default() };
            let page = state.list_contexts(&main(), &filter, cursor.as_deref()).await.unwrap();
            found.extend(page.contexts.into_iter().map(|info| info.id.to_string()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["a/cart", "b/cart", "c/cart", "a/notes", "b/notes", "c/notes"], "pages of {limit}");
    }
    assert_eq!(state.stats(&main()).await.unwrap().contexts, 6);
    let text = state.export(&main(), None).await.unwrap();
    assert_eq!(text.lines().count(), 6);

    // Taken in by a hub that keeps everything in one place, and back.
    let plain = ToolHub::builder().build().await.unwrap();
    assert_eq!(plain.state().import(&main(), &text).await, Ok(6));
    assert_eq!(plain.state().export(&main(), None).await.unwrap(), text);
    assert_eq!(state.import(&main(), &text).await, Ok(6));
    let cart = "b/cart".parse().unwrap();
    assert_eq!(state.get_state(&main(), &cart, Business).await.unwrap().unwrap().version, 2);
    assert!(rows(&own, Table::State).await.iter().all(|id| id.starts_with("notes/")));
}

#[tokio::test]
async fn a_thread_takes_its_states_along_from_every_store_but_those_that_outlive_it() {
    let (disk, own) = (Arc::default(), Arc::default());
    let cart = tool("add_to_cart", add_to_cart).manager_type(ManagerType::Persistent);
    let notes = tool("note", note).manager_type(ManagerType::Persistent).state_cleanup(StateCleanup::Never);
    let hub = builder(&disk, &own).tool(cart).tool(notes).build().await.unwrap();
    for thread in ["a", "b"] {
        hub.call("add_to_cart", tea()).thread(thread).await.assert_success();
        hub.call("note", json!({})).thread(thread).await.assert_success();
    }
    assert!(hub.delete_thread(&main(), &ThreadId::new("a").unwrap()).await.unwrap());
    let state = hub.state();
    let is_there =
        async |context: &str| state.get_state(&main(), &context.parse().unwrap(), Business).await.unwrap().is_some();
    assert!(!is_there("a/cart").await && is_there("a/notes").await && is_there("b/cart").await);
    let left = rows(&disk, Table::History).await;
    assert_eq!(left.iter().filter(|id| id.starts_with("cart/")).count(), 3, "the history of the other thread stays");
}

#[tokio::test]
async fn a_failed_call_leaves_a_state_elsewhere_as_it_was_and_a_conflict_there_is_told() {
    async fn fail(_: NoArguments, mut notes: State<Notes>) -> Result<(), ToolError> {
        notes.0.clear();
        Err(ToolError::new("no ink"))
    }
    let (disk, own) = (Arc::default(), Arc::default());
    let other = builder(&disk, &own).tool(tool("note", note).manager_type(ManagerType::Persistent)).build().await;
    let other = other.unwrap();
    let slow = {
        let other = other.clone();
        move |_: NoArguments, mut notes: State<Notes>| {
            let other = other.clone();
            async move {
                other.call("note", json!({})).thread("t").await.assert_success();
                notes.0.push("late".into());
                Ok::<_, ToolError>(())
            }
        }
    };
    let tools = [tool("fail", fail), tool("slow", slow).manager_type(ManagerType::Persistent)];
    let hub = builder(&disk, &own).tools(tools).build().await.unwrap();
    other.call("note", json!({})).thread("t").await.assert_success();
    hub.call("fail", json!({})).thread("t").await.assert_error(ErrorKind::ToolError);
    let refused = hub.call("slow", json!({})).thread("t").await;
    refused.assert_effect(Effect::Done).assert_error(ErrorKind::StateConflict);
    let entry = hub.state().get_state(&main(), &"t/notes".parse().unwrap(), Business).await.unwrap().unwrap();
    assert_eq!(entry.data, json!(["noted", "noted"]));
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_way_out() {
    let (disk, own) = (Arc::default(), Arc::default());
    let persistent = || tool("note", note).manager_type(ManagerType::Persistent);
    let nothing_opens = ToolHub::builder().tool(persistent()).build().await.unwrap_err().to_string();
    assert!(nothing_opens.contains(".managers("), "{nothing_opens}");

    let hub = builder(&disk, &own).tool(persistent()).build().await.unwrap();
    let other = tool("other", note).manager_type(ManagerType::Memory);
    let refused = hub.register(other).unwrap_err().to_string();
    assert!(refused.contains("`notes`") && refused.contains("manager_type"), "{refused}");
    let session = hub.register(tool("other", add_to_cart).manager_type(ManagerType::Session)).unwrap_err().to_string();
    assert!(session.contains("whole threads"), "{session}");

    let sessions = StateManagerConfig { manager_type: Some(ManagerType::Session), ..Default::default() };
    let refused =
        builder(&disk, &own).state_manager(sessions).tool(persistent()).build().await.unwrap_err().to_string();
    assert!(refused.contains("sessions"), "{refused}");
    let stateless = tool("x", async |_: NoArguments| Ok::<_, ToolError>(())).manager_type(ManagerType::Memory);
    assert!(hub.register(stateless).unwrap_err().to_string().contains("it has no state"));
}
