//! Changes that other connections make arrive; what was missed is reported.

use std::time::Duration;

use futures_util::StreamExt;
use toolhub_storage::backend::{Backend, Table, WatchEvent, Watcher};
use toolhub_store::redis::{Address, Options};
use toolhub_testkit::{RedisCluster, RedisServer};

use super::fixtures::{commit_when_back, open, options};
use crate::fixtures::{commit, put};

async fn next(watcher: &mut Watcher) -> Option<WatchEvent> {
    tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.expect("an event arrives")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_of_a_server_that_was_started_again_is_told_that_it_missed_changes() {
    let mut server = RedisServer::start();
    let store = open(options(&server));
    let mut watcher = store.watch(Table::State);
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert!(matches!(next(&mut watcher).await, Some(WatchEvent::Row(key, Some(1))) if key.id == "a"));
    server.restart();
    assert_eq!(next(&mut watcher).await, Some(WatchEvent::Lagged));
    commit_when_back(&store, "t", vec![put("b", b"1")]).await.unwrap();
    assert!(matches!(next(&mut watcher).await, Some(WatchEvent::Row(key, Some(_))) if key.id == "b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchers_of_a_store_hear_nothing_of_another_database() {
    let server = RedisServer::start();
    let in_database = |number: u8| {
        let url = server.url().replace("/0", &format!("/{number}"));
        open(Options::new(Address::parse(&url).unwrap()))
    };
    let (one, other) = (in_database(0), in_database(1));
    let mut watcher = one.watch(Table::State);
    commit(&*other, "t", vec![put("other", b"1")]).await.unwrap();
    commit(&*one, "t", vec![put("own", b"1")]).await.unwrap();
    assert!(matches!(next(&mut watcher).await, Some(WatchEvent::Row(key, Some(1))) if key.id == "own"));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_hash_slot_moves_its_watchers_are_told_and_hear_further_changes() {
    let cluster = RedisCluster::start();
    let store = open(Options::new(Address::parse(&cluster.url()).unwrap()));
    let mut watcher = store.watch(Table::State);
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert!(matches!(next(&mut watcher).await, Some(WatchEvent::Row(key, Some(1))) if key.id == "a"));
    let keys = cluster.servers().iter().map(|server| server.cli(&["KEYS", "toolhub:*:p:main/t/t"]));
    cluster.move_slot_of(&keys.collect::<String>());
    assert_eq!(next(&mut watcher).await, Some(WatchEvent::Lagged), "once for all 64 buckets");
    commit(&*store, "t", vec![put("b", b"1")]).await.unwrap();
    assert!(matches!(next(&mut watcher).await, Some(WatchEvent::Row(key, Some(_))) if key.id == "b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_whose_messages_never_arrive_are_noticed() {
    let server = RedisServer::start();
    let store = open(options(&server));
    let mut watcher = store.watch(Table::State);
    let meta = server.cli(&["KEYS", "toolhub:*:meta"]);
    // As if a message had been published that this connection did not get.
    assert_eq!(server.cli(&["HINCRBY", &meta, "number", "1"]), "1");
    let event = tokio::time::timeout(Duration::from_secs(30), watcher.next()).await.expect("the loss is noticed");
    assert_eq!(event, Some(WatchEvent::Lagged));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert!(matches!(next(&mut watcher).await, Some(WatchEvent::Row(key, Some(1))) if key.id == "a"));
}
