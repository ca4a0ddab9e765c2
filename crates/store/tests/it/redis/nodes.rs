//! Several nodes use one store at the same time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::StreamExt;
use toolhub_storage::backend::{Backend, Expect, StoreError, Table, WatchEvent};
use toolhub_store::{
    Redis,
    redis::{Address, Options},
};
use toolhub_testkit::{RedisCluster, RedisServer};

use super::fixtures::{open, options};
use crate::fixtures::{commit, get, put};

/// Adds 1 to a row `times` times by compare-and-set, whatever happens to the server. Returns the versions that it wrote.
async fn add(store: Arc<Redis>, task: usize, times: usize) -> Vec<u64> {
    let (mut versions, entry) = (Vec::new(), |n: usize| format!("{task}-{n};").into_bytes());
    while versions.len() < times {
        let Ok(row) = get(&*store, "t", "n").await else { continue };
        let row = row.unwrap();
        let entry = entry(versions.len());
        // After an unknown outcome: the value names every addition.
        if row.value.split_inclusive(|byte| *byte == b';').any(|known| *known == *entry) {
            versions.push(0);
            continue;
        }
        let mut next = put("n", &[&*row.value, &*entry].concat());
        next.expect = Expect::Same(row.version);
        match commit(&*store, "t", vec![next]).await {
            Ok(written) => versions.push(written[0]),
            Err(StoreError::Conflict { .. } | StoreError::Unavailable(_) | StoreError::Unknown(_)) => {}
            Err(error) => panic!("a valid commit failed: {error}"),
        }
    }
    versions
}

/// Eight tasks on each node add to one row. Nothing is lost or happens twice.
async fn check_additions(nodes: &[Arc<Redis>], disturb: impl AsyncFnOnce()) {
    const TIMES: usize = 12;
    commit(&*nodes[0], "t", vec![put("n", b"")]).await.unwrap();
    let tasks: Vec<_> =
        (0..8 * nodes.len()).map(|task| tokio::spawn(add(nodes[task % nodes.len()].clone(), task, TIMES))).collect();
    disturb().await;
    let mut versions = Vec::new();
    for task in tasks {
        versions.extend(task.await.unwrap().into_iter().filter(|version| *version > 0));
    }
    let row = get(&*nodes[0], "t", "n").await.unwrap().unwrap();
    let mut added = BTreeMap::new();
    for entry in row.value.split_inclusive(|byte| *byte == b';') {
        *added.entry(entry).or_insert(0) += 1;
    }
    assert_eq!(added.len(), 8 * nodes.len() * TIMES, "no addition is missing");
    assert!(added.values().all(|count| *count == 1), "no addition happened twice: {added:?}");
    versions.sort_unstable();
    let count = versions.len();
    versions.dedup();
    assert_eq!(versions.len(), count, "no version was given out twice");
    assert!(nodes.iter().all(|node| node.damage().is_none()), "{:?}", nodes[0].damage());
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_holds_between_nodes_while_the_server_is_killed_and_started_again() {
    let mut server = RedisServer::start();
    let nodes = [open(options(&server)), open(options(&server))];
    assert!(!nodes[0].is_exclusive());
    check_additions(&nodes, async || {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.restart();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_holds_between_nodes_on_a_cluster() {
    let mut cluster = RedisCluster::start();
    let open = || open(Options::new(Address::parse(&cluster.url()).unwrap()));
    let nodes = [open(), open()];
    check_additions(&nodes, async || {
        for server in cluster.servers_mut() {
            server.restart();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_sees_what_others_commit_and_goes_on_when_they_close() {
    let server = RedisServer::start();
    let [one, other] = [open(options(&server).buckets(4)), open(options(&server))];
    let mut watcher = one.watch(Table::State);
    for n in 0..20 {
        let thread = format!("t{n}");
        commit(&*other, &thread, vec![put("a", b"1")]).await.unwrap();
        // Changes nothing that a watcher is told of.
        let mut touch = put("a", b"");
        touch.change = toolhub_storage::backend::Change::Touch { expires: None };
        commit(&*other, &thread, vec![touch]).await.unwrap();
        let event = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.expect("an event arrives");
        let Some(WatchEvent::Row(key, Some(1))) = event else { panic!("{event:?}") };
        assert_eq!(key.partition.to_string(), format!("main/t/{thread}"));
        assert!(get(&*one, &thread, "a").await.unwrap().is_some());
    }
    drop(other);
    assert_eq!(commit(&*one, "t0", vec![put("a", b"2")]).await, Ok(vec![2]));
}
