//! Nodes of different versions and configs on one store.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    NodeInfo, NodeState,
    backend::{
        Backend, Batch, Change, Durability, Expect, Memory, Partition, PartitionKind, Row, RowKey, Scan, Scope,
        StoreError, Table, Write,
    },
    prelude::*,
    testing::{AssertOutcome, scripted},
};

use crate::{faulty_store::FaultyStore, log_capture, shared_memory::SharedMemory};

const SECOND: Duration = Duration::from_secs(1);

async fn node(store: &Arc<Memory>, name: &str, digest: &str) -> ToolHub {
    let info = NodeInfo::new(name).config_digest(digest);
    let tools = [scripted("pay", []).0, scripted("after", []).0.after("pay")];
    ToolHub::builder().shared_store(store.clone()).node(info).tools(tools).build().await.unwrap()
}

async fn rows(store: &Memory, table: Table, hub: &ToolHub) -> Vec<(RowKey, Row)> {
    store.scan(Scan::new(table, Scope::All), hub.now()).await.unwrap().rows
}

/// Writes a row as another version of Toolhub would.
async fn put(store: &Memory, key: &RowKey, value: Value, schema: u32, hub: &ToolHub) {
    let value = serde_json::to_vec(&value).unwrap().into();
    let write = Write {
        table: key.table,
        id: key.id.clone(),
        expect: Expect::Any,
        change: Change::Put { value, schema, expires: None },
        durability: Durability::KillSafe,
    };
    store.commit(Batch::new(key.partition.clone()).with(write), hub.now()).await.unwrap();
}

/// The row of a node, as JSON.
async fn node_row(store: &Memory, hub: &ToolHub) -> (RowKey, Value) {
    let rows = rows(store, Table::Nodes, hub).await;
    let (key, row) = rows.into_iter().find(|(key, _)| key.id == hub.node_id()).unwrap();
    (key, serde_json::from_slice(&row.value).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_node_announces_its_layouts_and_does_not_start_beside_one_that_writes_newer_ones() {
    let store: Arc<Memory> = Arc::default();
    let hub = node(&store, "a", "one").await;
    let layouts = hub.nodes().await.unwrap()[0].layouts;
    assert_eq!(layouts.read, layouts.written);

    let (key, mut newer) = node_row(&store, &hub).await;
    let key = RowKey { id: "newer".into(), ..key };
    (newer["name"], newer["version"]) = (json!("b"), json!("9.1.0"));
    // It reads newer layouts, and writes those that all nodes read.
    newer["layouts"] = json!({"read": layouts.read + 1, "written": layouts.read});
    put(&store, &key, newer.clone(), 1, &hub).await;
    drop(node(&store, "c", "one").await);

    newer["layouts"]["written"] = json!(layouts.read + 1);
    put(&store, &key, newer, 1, &hub).await;
    let refused = ToolHub::builder().shared_store(store.clone()).node(NodeInfo::new("d")).build().await;
    let text = refused.map(drop).unwrap_err().to_string();
    assert!(text.contains("`b`") && text.contains("9.1.0"), "{text}");
    tokio::time::sleep(SECOND).await;
    let names: Vec<_> = hub.nodes().await.unwrap().into_iter().map(|node| node.name).collect();
    assert!(!names.contains(&"d".into()), "it has left: {names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_does_not_start_on_a_store_that_a_newer_one_has_used_and_left() {
    let store: Arc<Memory> = Arc::default();
    let hub = node(&store, "a", "one").await;
    let known = hub.nodes().await.unwrap()[0].layouts.read;
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Layouts };
    let key = RowKey { partition, table: Table::Nodes, id: "written".into() };
    put(&store, &key, json!({"written": known, "version": "0.1.0"}), 1, &hub).await;
    drop(node(&store, "b", "one").await);
    put(&store, &key, json!({"written": known + 1, "version": "9.1.0"}), 1, &hub).await;
    let exclusive = ToolHub::builder().store(store.clone()).build().await;
    let shared = ToolHub::builder().shared_store(store.clone()).node(NodeInfo::new("c")).build().await;
    for refused in [exclusive, shared] {
        let text = refused.map(drop).unwrap_err().to_string();
        assert!(text.contains("start Toolhub 9.1.0 or a later version, or restore a backup"), "{text}");
    }
    let names: Vec<_> = hub.nodes().await.unwrap().into_iter().map(|node| node.name).collect();
    assert!(!names.contains(&"c".into()), "nothing was written: {names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_row_has_a_newer_layout_is_alive_as_long_as_it_renews_it() {
    let store: Arc<Memory> = Arc::default();
    let hub = node(&store, "a", "one").await;
    let (key, _) = node_row(&store, &hub).await;
    let key = RowKey { id: "newer".into(), ..key };
    let state = async || {
        let nodes = hub.nodes().await.unwrap();
        nodes.into_iter().find(|node| node.id == "newer").map(|node| node.state)
    };
    for renewal in 0..10 {
        put(&store, &key, json!([renewal]), 2, &hub).await;
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(state().await, Some(NodeState::Alive));
    }
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(state().await, Some(NodeState::Dead));
}

#[tokio::test(start_paused = true)]
async fn nodes_with_different_timeouts_wait_for_the_longer_one_of_both() {
    let memory: Arc<SharedMemory> = Arc::default();
    let node = async |name: &str, timeout: Duration| {
        let store = Arc::new(FaultyStore { memory: memory.memory.clone(), ..FaultyStore::default() });
        let builder = ToolHub::builder().shared_store(memory.record(store.clone())).node(NodeInfo::new(name));
        let hub = builder.node_timeout(timeout).tool(scripted("pay", []).0).build().await.unwrap();
        (hub, store)
    };
    let ((short, _), (long, connection)) = (node("short", 3 * SECOND).await, node("long", 30 * SECOND).await);
    let call = long.call("pay", json!({})).external(3_600 * SECOND).detached().start().id();
    tokio::time::sleep(SECOND).await;
    let state = async |name: &str| {
        let nodes = short.nodes().await.unwrap();
        nodes.into_iter().find(|node| node.name == name).map(|node| node.state)
    };
    for _ in 0..60 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(state("long").await, Some(NodeState::Alive), "it renews its row every ten seconds");
    }
    let is_open = async || short.call_record(&Tenant::default(), call).await.unwrap().unwrap().outcome.is_none();
    assert!(is_open().await, "a call of a living node goes on");
    connection.unavailable.store(true, Ordering::Release);
    tokio::time::sleep(19 * SECOND).await;
    assert_eq!(state("long").await, Some(NodeState::Alive));
    tokio::time::sleep(13 * SECOND).await;
    assert_eq!(state("long").await, Some(NodeState::Dead));
    tokio::time::sleep(SECOND).await;
    assert!(!is_open().await, "its calls are closed");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_newer_version_is_an_error_of_its_own_and_stays_as_it_is() {
    let store: Arc<Memory> = Arc::default();
    let hub = node(&store, "a", "one").await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    let call = hub.call("pay", json!({})).thread("t").await;
    call.assert_success();
    for table in [Table::Calls, Table::Evidence] {
        let (key, row) = rows(&store, table, &hub).await.into_iter().next().unwrap();
        put(&store, &key, serde_json::from_slice(&row.value).unwrap(), 9, &hub).await;
    }
    // It remembers nothing of these.
    let hub = node(&store, "b", "one").await;
    let error = hub.call_record(&tenant, call.id).await.unwrap_err();
    assert!(matches!(error, StoreError::NewerLayout { table: Table::Calls, found: 9, .. }), "{error:?}");
    let refused = hub.call("after", json!({})).thread("t").await;
    refused.assert_error(ErrorKind::StoreUnavailable);
    assert!(refused.error.unwrap().operator.contains("a newer version wrote it"));
    assert!(hub.explain("after", &tenant, &thread).await.is_err());
    let (_, evidence) = rows(&store, Table::Evidence, &hub).await.remove(0);
    assert_eq!(evidence.schema, 9);
}

#[tokio::test(start_paused = true)]
async fn a_new_config_is_announced_and_a_difference_is_logged_once() {
    let lines = log_capture::start();
    let store = Arc::default();
    let (first, second) = (node(&store, "a", "one").await, node(&store, "b", "one").await);
    let digests = async || {
        let nodes = second.nodes().await.unwrap();
        nodes.into_iter().map(|node| node.config_digest.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(digests().await, ["one", "one"]);
    first.announce_config("two").await.unwrap();
    assert_eq!(digests().await, ["one", "two"]);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(digests().await, ["one", "two"], "renewals keep it");
    second.announce_config("two").await.unwrap();
    assert_eq!(digests().await, ["two", "two"]);
    tokio::time::sleep(10 * SECOND).await;
    let warnings: Vec<_> = lines().into_iter().filter(|line| line.contains("different configs")).collect();
    assert_eq!(warnings.len(), 2, "each node says it once: {warnings:?}");
}
