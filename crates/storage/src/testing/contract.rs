//! What every store promises, as checks that any implementation of `Backend` can be put through.
//!
//! In: a way to make an empty store. Out: nothing, or a panic that says which promise is broken. The checks know the
//! trait and nothing else; what must hold when the power fails or between nodes, each store shows for itself.

mod batches;
mod concurrency;
mod model;
mod pages;
mod partitions;
mod reopen;
mod watch;

use std::{future::Future, sync::Arc};

use crate::backend::{Backend, Change, Durability, Expect, Partition, Row, RowKey, Table, Write};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

/// Puts a store through all checks. `make` gives an empty one each time it is asked.
///
/// ```
/// use std::sync::Arc;
/// use toolhub_storage::{backend::Memory, testing::contract};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// contract::check(async || Arc::new(Memory::new())).await;
/// # }
/// ```
///
/// # Panics
/// When the store breaks a promise; the message says which.
pub async fn check<B: Backend>(make: impl AsyncFn() -> Arc<B>) {
    partitions::every_table_in_every_place(&*make().await).await;
    check_with(make, Table::Calls).await;
}

/// The same for a store that keeps states and not every other table: `other` is one that it keeps.
///
/// # Panics
/// When the store breaks a promise; the message says which.
pub async fn check_with<B: Backend>(make: impl AsyncFn() -> Arc<B>, other: Table) {
    batches::all_or_nothing(&*make().await).await;
    batches::removed_and_made_again(&*make().await).await;
    batches::restored(&*make().await).await;
    batches::gone_when_expired(&*make().await).await;
    batches::kept_or_given_more_time(&*make().await).await;
    batches::when_made_and_written(&*make().await).await;
    batches::fenced(&*make().await).await;
    batches::tenants_apart(&*make().await).await;
    batches::swept_a_few_at_a_time(&*make().await).await;
    pages::without_gap_or_repetition(&*make().await).await;
    pages::behind_any_cursor(&*make().await).await;
    pages::counted_by_their_ids(&*make().await).await;
    watch::in_order(&*make().await, other).await;
    concurrency::one_of_many_is_first(&make().await).await;
    concurrency::dropped_commits_are_whole(&make().await).await;
    concurrency::one_load_sees_one_moment(&make().await).await;
    check_against_model_with(&make, 100, 7, other).await;
}

/// Puts a store that survives its process through the checks about that. `open` opens the store of this name, and makes it
/// where there is none; it is asked again after everybody let go of it, commits on their way included. What must hold
/// between a load and its commit holds also when the writer was dead in between.
///
/// ```
/// # use std::{collections::HashMap, sync::{Arc, Mutex}};
/// # use toolhub_storage::{backend::Memory, testing::contract};
/// # #[tokio::main] async fn main() {
/// // A store in memory survives nothing but whoever uses it.
/// let kept = Mutex::new(HashMap::<String, Arc<Memory>>::new());
/// contract::lives(async |name: &str| kept.lock().unwrap().entry(name.into()).or_default().clone()).await;
/// # }
/// ```
///
/// # Panics
/// When the store breaks a promise; the message says which.
pub async fn check_reopen<B: Backend>(open: impl AsyncFn(&str) -> Arc<B>) {
    reopen::loaded_before_and_committed_after(&async || open("loaded").await).await;
    reopen::cut_off_in_the_middle(&async || open("cut").await).await;
    reopen::counting_on(&async || open("counting").await).await;
}

/// Compares a store with a naive model over so many random programs: commits with every expectation and change, loads,
/// scans, sweeps, and a clock that moves on.
///
/// # Panics
/// When the store and the model differ; the message names the program and the step.
pub async fn check_against_model<B: Backend>(make: impl AsyncFn() -> Arc<B>, programs: u64, seed: u64) {
    check_against_model_with(make, programs, seed, Table::Calls).await;
}

/// The same for a store that keeps states and not every other table: `other` is one that it keeps.
///
/// # Panics
/// When the store and the model differ; the message names the program and the step.
pub async fn check_against_model_with<B: Backend>(
    make: impl AsyncFn() -> Arc<B>,
    programs: u64,
    seed: u64,
    other: Table,
) {
    for program in 0..programs {
        model::compare(&*make().await, seed.wrapping_add(program), [Table::State, other]).await;
    }
}

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn thread(name: &str) -> Partition {
    Partition::for_thread(Tenant::default(), ThreadId::new(name).expect("a good name"))
}

fn write(id: &str, expect: Expect, change: Change) -> Write {
    Write { table: Table::State, id: id.into(), expect, change, durability: Durability::KillSafe }
}

fn value(text: &str, expires: Option<Timestamp>) -> Change {
    Change::Put { value: text.as_bytes().into(), schema: 1, expires }
}

fn put(id: &str, text: &str) -> Write {
    write(id, Expect::Any, value(text, None))
}

async fn get(store: &impl Backend, partition: &Partition, id: &str, now: Timestamp) -> Option<Row> {
    let keys = [RowKey { partition: partition.clone(), table: Table::State, id: id.into() }];
    expect_ok(store.load(&keys, now)).await.pop().flatten()
}

/// The answer of a store that has no reason not to give one.
async fn expect_ok<T>(answer: impl Future<Output = Result<T, crate::backend::StoreError>>) -> T {
    answer.await.unwrap_or_else(|error| panic!("a sound request was refused: {error}"))
}
