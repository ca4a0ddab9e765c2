//! The store in Redis passes the `Backend` contract, with one bucket and with as many as on a Cluster.

use std::hash::{BuildHasher, Hasher, RandomState};

use toolhub_storage::testing::contract;
use toolhub_testkit::{RedisServer, soak};

use super::fixtures::{open, options, stores};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_redis_keeps_every_promise_in_one_bucket() {
    contract::check(stores(&RedisServer::start(), 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_redis_keeps_every_promise_in_64_buckets() {
    contract::check(stores(&RedisServer::start(), 64)).await;
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
