//! The store in memory keeps what every store promises, and tells a watcher that fell behind.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use futures_util::{FutureExt, StreamExt};
use toolhub::{
    backend::{Backend, Batch, Change, Changed, Durability, Expect, Memory, Partition, Table, Write},
    clock::Timestamp,
    ids::{Tenant, ThreadId},
    testing::contract,
};

use crate::awkward_store::Awkward;

#[tokio::test]
async fn the_store_in_memory_keeps_every_promise() {
    contract::check(async || Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn a_store_that_takes_its_time_keeps_them_too() {
    contract::check(async || Arc::new(Awkward::default())).await;
}

#[tokio::test]
async fn random_programs_find_no_difference_to_a_naive_model() {
    let programs = if std::env::var_os("TOOLHUB_SOAK").is_some() { 20_000 } else { 1_000 };
    // Other programs each time; the message of a failure names the seed.
    let seed = RandomState::new().build_hasher().finish();
    contract::random(async || Arc::new(Memory::new()), programs, seed).await;
}

#[tokio::test]
async fn a_watcher_that_fell_behind_is_told_so() {
    let store = Memory::new();
    let mut watcher = store.watch(Table::State);
    let partition = Partition::of_thread(Tenant::default(), ThreadId::new("t").unwrap());
    for n in 0..2_000 {
        let change = Change::Put { value: n.to_string().into_bytes().into(), schema: 1, expires: None };
        let id = "a".into();
        let write = Write { table: Table::State, id, expect: Expect::Any, change, durability: Durability::KillSafe };
        store.commit(Batch::on(partition.clone()).with(write), Timestamp::from_millis(1)).await.unwrap();
    }
    assert_eq!(watcher.next().now_or_never(), Some(Some(Changed::Missed)));
}
