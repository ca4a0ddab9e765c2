//! The store in Redis passes the `Backend` contract, with one bucket, with as many as on a Cluster, and on a Cluster.

use std::hash::{BuildHasher, Hasher, RandomState};

use toolhub_storage::{backend::Backend, testing::contract};
use toolhub_store::redis::{Address, Options};
use toolhub_testkit::{RedisCluster, RedisServer, soak};

use super::fixtures::{numbered_prefix, open, options, stores};

const GUIDE: &str = include_str!("../../../../../docs/guide/nodes.md");

/// The arguments of `ACL SETUSER` in the guide.
fn documented_permissions() -> Vec<&'static str> {
    let (_, line) = GUIDE.split_once("`ACL SETUSER toolhub ").expect("the guide has the line");
    line.split_once('`').expect("the line ends").0.split(' ').collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_redis_keeps_every_promise_in_one_bucket() {
    contract::check(stores(&RedisServer::start(), 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_redis_keeps_every_promise_in_64_buckets_to_a_user_with_the_documented_permissions() {
    let server = RedisServer::start();
    // The guide has the default prefix; all stores of this test are under it.
    let user = [&["ACL", "SETUSER", "toolhub"], &documented_permissions()[..]].concat();
    assert_eq!(server.cli(&user), "OK");
    let address = Address::parse(&server.url().replace("//", "//toolhub:PASSWORD@")).unwrap();
    let store = async || {
        let prefix = format!("{}:{}", Options::DEFAULT_PREFIX, numbered_prefix());
        let store = open(Options::new(address.clone()).prefix(prefix).buckets(64));
        assert_eq!(store.warnings(), [""; 0], "the settings of the server can be read");
        store
    };
    contract::check(store).await;
    assert!(!server.cli(&["ACL", "LOG"]).contains("reason"), "no command was denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_redis_keeps_every_promise_on_a_cluster() {
    let cluster = RedisCluster::start();
    let address = Address::parse(&cluster.url()).unwrap();
    contract::check(async || open(Options::new(address.clone()).prefix(numbered_prefix()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_one_opening_to_the_next_the_store_in_redis_keeps_every_promise() {
    let server = RedisServer::start();
    contract::check_reopen(async |name: &str| open(options(&server).prefix(name))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_programs_find_no_difference_between_redis_and_a_naive_model() {
    let (server, programs) = (RedisServer::start(), soak(100, 4_000));
    // A new random seed for every run; the message of a failure contains it.
    let seed = RandomState::new().build_hasher().finish();
    contract::check_against_model(stores(&server, 1), programs, seed).await;
    contract::check_against_model(stores(&server, 64), programs / 4, seed).await;
}
