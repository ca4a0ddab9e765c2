//! Several nodes use one store at the same time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Expect, RowKey, Scan, Scope, StoreError, Table, WatchEvent},
    testing::history::{History, RecordedStore, Request},
};
use toolhub_store::{
    Redis,
    redis::{Address, Options},
};
use toolhub_testkit::{RedisCluster, RedisServer, soak};

use super::fixtures::{open, options};
use crate::fixtures::{NOW, commit, get, put, thread};

/// Adds 1 to a row `times` times by compare-and-set, whatever happens to the server. Returns the versions that it wrote.
async fn add(store: Arc<RecordedStore>, task: usize, times: usize) -> Vec<u64> {
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

/// Eight tasks on each node add to one row. Nothing is lost or happens twice, and no answer contradicts another one.
async fn check_additions(nodes: [Arc<Redis>; 2], disturb: impl AsyncFnOnce()) {
    const TIMES: usize = 12;
    let history = History::new();
    let nodes = nodes.map(|node| history.record(node));
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
    history.assert_promises_kept();
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_holds_between_nodes_while_the_server_is_killed_and_started_again() {
    let mut server = RedisServer::start();
    let nodes = [open(options(&server)), open(options(&server))];
    assert!(!nodes[0].is_exclusive());
    check_additions(nodes, async || {
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
    check_additions(nodes, async || {
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
        touch.change = Change::Touch { expires: None };
        commit(&*other, &thread, vec![touch]).await.unwrap();
        let event = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.expect("an event arrives");
        let Some(WatchEvent::Row(key, Some(1))) = event else { panic!("{event:?}") };
        assert_eq!(key.partition.to_string(), format!("main/t/{thread}"));
        assert!(get(&*one, &thread, "a").await.unwrap().is_some());
    }
    drop(other);
    assert_eq!(commit(&*one, "t0", vec![put("a", b"2")]).await, Ok(vec![2]));
}

/// Loads, scans and commits of two rows of a random thread, until told to stop.
async fn use_randomly(store: Arc<RecordedStore>, task: usize, is_over: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::new();
    let mut known = [None; ROWS.len()];
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let partition = thread(&format!("t{}", random.usize(0..3)));
        if random.bool() {
            let keys = ROWS.map(|id| RowKey { partition: partition.clone(), table: Table::State, id: id.into() });
            if let Ok(rows) = store.load(&keys, NOW).await {
                let mut versions = rows.into_iter().map(|row| row.map(|row| row.version));
                known = std::array::from_fn(|_| versions.next().flatten());
            }
        } else if random.u8(0..4) == 0 {
            let scan = Scan::new(Table::State, Scope::Partition(partition));
            let _ = store.scan(scan, NOW).await;
        } else {
            let mut batch = Batch::new(partition);
            for (id, known) in ROWS.into_iter().zip(known).filter(|_| random.u8(0..3) > 0).collect::<Vec<_>>() {
                let mut write = put(id, format!("{task}-{n}").as_bytes());
                if random.bool() {
                    write.expect = known.map_or(Expect::Absent, Expect::Same);
                }
                if id == ROWS[0] && random.u8(0..8) == 0 {
                    write.change = Change::Remove;
                }
                batch.writes.push(write);
            }
            let _ = store.commit(batch, NOW).await;
        }
    }
}

/// The first one is removed now and then.
const ROWS: [&str; 3] = ["removed", "b", "c"];

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_contradicts_another_one_while_the_server_is_killed_frozen_and_started_again() {
    let mut server = RedisServer::start();
    let history = History::new();
    let options = || options(&server).operation_timeout(Duration::from_secs(2));
    let nodes = [open(options()), open(options()), open(options())].map(|node| history.record(node));
    let mut watch = nodes[0].watch(Table::State);
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> =
        (0..6).map(|task| tokio::spawn(use_randomly(nodes[task % 3].clone(), task, is_over.clone()))).collect();
    let events = tokio::spawn(async move { while watch.next().await.is_some() {} });
    for round in 0..soak(3, 50) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if round % 2 == 0 {
            server.kill();
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.restart();
        } else {
            server.pause();
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            server.resume();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    events.abort();
    let operations = history.operations();
    let acknowledged =
        operations.iter().filter(|operation| matches!(operation.request, Request::Commit(_, Some(Ok(_)))));
    assert!(acknowledged.count() > 100, "the nodes did something");
    history.assert_promises_kept();
}
