//! Commits that a server acknowledged and does not have any more are reported, exactly, and no version is given out twice.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    time::Duration,
};

use toolhub_storage::backend::{Backend, Batch, Change, LossReport, StoreError};
use toolhub_store::{
    Redis,
    redis::{Address, Options},
};
use toolhub_testkit::{RedisCluster, RedisServer};

use super::fixtures::{open, options};
use crate::fixtures::{NOW, commit, get, put, thread};

/// Kills the server and starts it again without its files.
fn restart_empty(server: &mut RedisServer) {
    server.kill();
    fs::remove_dir_all(server.folder().join("appendonlydir")).unwrap();
    server.restart();
}

/// All losses that the store reports within ten seconds, at least so many.
async fn losses(store: &Redis, expected: u64) -> LossReport {
    for _ in 0..1_000 {
        let merged = LossReport::merge(&store.losses(0));
        if let Some(lost) = merged.filter(|lost| lost.commits >= expected) {
            return lost;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the store reports {:?}, not {expected} lost commits", store.losses(0));
}

/// The partitions that a report names.
fn names(lost: &LossReport) -> String {
    lost.partitions().named.into_iter().collect::<Vec<_>>().join(" ")
}

/// Commits, again while the store is unavailable.
async fn commit_patiently(store: &Redis, thread: &str, id: &str) -> u64 {
    loop {
        match commit(store, thread, vec![put(id, b"1")]).await {
            Ok(versions) => return versions[0],
            Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) => {}
            Err(error) => panic!("a valid commit failed: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_a_server_acknowledged_and_lost_are_counted_and_named() {
    let mut server = RedisServer::start();
    let store = open(options(&server));
    commit(&*store, "kept", vec![put("a", b"1")]).await.unwrap();
    server.restart();
    commit(&*store, "kept", vec![put("a", b"2")]).await.unwrap();
    assert_eq!(store.damage(), None, "nothing was lost so far");
    commit(&*store, "gone", vec![put("a", b"1")]).await.unwrap();
    server.kill();
    std::fs::remove_dir_all(server.folder().join("appendonlydir")).unwrap();
    server.restart();
    let versions = commit(&*store, "kept", vec![put("a", b"3")]).await.unwrap();
    assert!(versions[0] > 2 << 32, "a server that forgot everything gives no version out twice: {versions:?}");
    let lost = store.damage().unwrap();
    assert!(lost.contains("has lost 3 commits") && lost.contains("main/t/gone, main/t/kept"), "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_commits_nothing_more_learns_of_its_losses_and_a_lost_removal_is_one() {
    let mut server = RedisServer::start();
    let store = open(options(&server).buckets(8));
    commit(&*store, "t", vec![put("grant", b"1")]).await.unwrap();
    let mut removal = put("grant", b"");
    removal.change = Change::Remove;
    commit(&*store, "t", vec![removal]).await.unwrap();
    let mut nothing = put("grant", b"");
    nothing.change = Change::Keep;
    commit(&*store, "t", vec![nothing]).await.unwrap();
    let mut touch = put("grant", b"");
    touch.change = Change::Touch { expires: None };
    commit(&*store, "t", vec![touch]).await.unwrap();
    restart_empty(&mut server);
    let lost = losses(&store, 1).await;
    assert_eq!((lost.commits, names(&lost)), (2, "main/t/t".to_owned()), "what changed nothing is not lost");
    assert_eq!(store.losses(1), [], "each loss is reported once");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_know_different_epochs_give_no_version_out_twice_after_everything_was_lost() {
    let mut server = RedisServer::start();
    let (first, second) = (open(options(&server)), open(options(&server)));
    let mut versions = HashSet::new();
    assert!(versions.insert(commit_patiently(&first, "t", "a").await));
    for round in 0..3 {
        // Only one of them learns of these epochs.
        for _ in 0..2 {
            server.restart();
            assert!(versions.insert(commit_patiently(&second, "t", "a").await), "round {round}");
        }
        restart_empty(&mut server);
        let (one, other) = tokio::join!(commit_patiently(&first, "t", "a"), commit_patiently(&second, "t", "a"));
        assert!(versions.insert(one) && versions.insert(other), "{one} or {other} was given out before: {versions:?}");
    }
    let last = versions.iter().max().copied().unwrap();
    assert!(last < 1 << 53, "{last}");
    let row = get(&*first, "t", "a").await.unwrap().unwrap();
    assert_eq!(row.version.number, last, "versions grow");
    assert_eq!((losses(&first, 3).await.commits, losses(&second, 8).await.commits), (3, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_what_a_fail_over_lost_is_reported() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::start_with(&["--appendonly yes", &format!("--replicaof 127.0.0.1 {}", primary.port())]);
    while !replica.cli(&["INFO", "replication"]).contains("master_link_status:up") {}
    let sentinel = RedisServer::start_sentinel(primary.port(), 1);
    while !sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains(&replica.port().to_string()) {}
    let url = format!("redis+sentinel://127.0.0.1:{}/main/0", sentinel.port());
    let [one, other] = [0, 1].map(|_| open(Options::new(Address::parse(&url).unwrap())));
    for n in 0..20 {
        commit(&*one, &format!("kept{n}"), vec![put("a", b"1")]).await.unwrap();
        commit(&*other, &format!("kept{n}"), vec![put("b", b"1")]).await.unwrap();
    }
    let meta = primary.cli(&["KEYS", "toolhub:*:meta"]);
    while replica.cli(&["HGET", &meta, "number"]) != "40" {}
    // The replica loses its connection and cannot open another one; those of the stores stay open.
    assert_eq!(primary.cli(&["CONFIG", "SET", "requirepass", "x"]), "OK");
    assert_eq!(primary.cli(&["-a", "x", "--no-auth-warning", "CLIENT", "KILL", "TYPE", "replica"]), "1");
    for n in 0..3 {
        commit(&*one, &format!("gone{n}"), vec![put("a", b"1")]).await.unwrap();
    }
    commit(&*other, "gone", vec![put("b", b"1")]).await.unwrap();
    primary.kill();
    // The other node is the first one on the new primary, and its numbers pass those of the lost commits.
    for _ in 0..10 {
        commit_patiently(&other, "later", "a").await;
    }
    let lost = losses(&one, 1).await;
    assert_eq!((lost.commits, names(&lost)), (3, "main/t/gone0 main/t/gone1 main/t/gone2".to_owned()));
    let lost = losses(&other, 1).await;
    assert_eq!((lost.commits, names(&lost)), (1, "main/t/gone".to_owned()));
    for n in 0..20 {
        assert!(get(&*one, &format!("kept{n}"), "b").await.unwrap().is_some());
    }
    assert!(get(&*one, "gone0", "a").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_server_of_a_cluster_lost_is_reported_by_each_node() {
    let mut cluster = RedisCluster::start();
    let [one, other] = [0, 1].map(|_| open(Options::new(Address::parse(&cluster.url()).unwrap())));
    let threads: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
    for thread in &threads {
        assert_eq!(commit(&*one, thread, vec![put("a", b"1")]).await, Ok(vec![1]));
        assert_eq!(commit(&*other, thread, vec![put("b", b"1")]).await, Ok(vec![1]));
    }
    let stored = cluster.servers()[1].cli(&["KEYS", "toolhub:*:p:*"]);
    let on_server: BTreeSet<&str> = stored.lines().filter_map(|key| key.split(":p:").nth(1)).collect();
    restart_empty(&mut cluster.servers_mut()[1]);
    // Before the nodes looked for losses by themselves: each learns of them with its commits, or later.
    for thread in &threads {
        let [version, _] = [commit_patiently(&one, thread, "a").await, commit_patiently(&other, thread, "c").await];
        let is_lost = on_server.contains(format!("main/t/{thread}").as_str());
        assert_eq!(version > 2, is_lost, "{thread} has version {version}");
    }
    for store in [&one, &other] {
        let lost = losses(store, on_server.len() as u64).await;
        assert_eq!(lost.commits, on_server.len() as u64);
        assert!(lost.partitions().named.iter().all(|partition| on_server.contains(partition.as_str())), "{lost:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_replicas_and_it_is_said_when_too_few_have_it() {
    let primary = RedisServer::start();
    let replica = RedisServer::start_with(&["--appendonly yes", &format!("--replicaof 127.0.0.1 {}", primary.port())]);
    while !replica.cli(&["INFO", "replication"]).contains("master_link_status:up") {}
    let store = open(options(&primary).replicas(1));
    for n in 0..5 {
        commit(&*store, &format!("t{n}"), vec![put("a", b"1")]).await.unwrap();
        let stored = replica.cli(&["EXISTS", &primary.cli(&["KEYS", &format!("toolhub:*:p:main/t/t{n}")])]);
        assert_eq!(stored, "1", "it was acknowledged when the replica had it");
    }
    assert_eq!(store.damage(), None);

    replica.pause();
    let started = tokio::time::Instant::now();
    let commits = (0..20).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let batch = Batch { writes: vec![put("b", b"1")], ..Batch::new(thread(&format!("t{n}"))) };
            let stamp = batch.stamp;
            store.commit(batch, NOW).await.unwrap();
            store.lacks_replicas(stamp)
        })
    });
    for task in commits.collect::<Vec<_>>() {
        assert!(task.await.unwrap(), "each one is told");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "concurrent commits share a wait");
    let problem = store.damage().unwrap();
    assert!(problem.contains("20 commits were acknowledged although fewer than 1 replicas"), "{problem}");
    replica.resume();
    let batch = Batch { writes: vec![put("c", b"1")], ..Batch::new(thread("t")) };
    let stamp = batch.stamp;
    store.commit(batch, NOW).await.unwrap();
    assert!(!store.lacks_replicas(stamp));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_enough_replicas_is_said() {
    let cluster = RedisCluster::start();
    let store = open(Options::new(Address::parse(&cluster.url()).unwrap()).replicas(1));
    for n in 0..3 {
        commit(&*store, &format!("t{n}"), vec![put("a", b"1")]).await.unwrap();
    }
    assert!(store.damage().unwrap().contains("3 commits were acknowledged although fewer than 1 replicas"));
}
