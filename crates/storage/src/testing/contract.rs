//! Contract tests for any implementation of `Backend`.
//!
//! In: a function that creates an empty store. Out: nothing, or a panic that names the broken promise. The checks use only
//! the trait; each store tests power failures and multi-node behaviour itself.

mod batches;
mod concurrency;
mod model;
mod pages;
mod partitions;
mod reopen;
mod terms;
mod watch;

use std::{future::Future, sync::Arc};

use crate::backend::{Backend, Change, Durability, Expect, Partition, Row, RowKey, Table, Write};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

/// Runs all checks. `make` returns a new empty store each time.
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
/// When the store breaks a promise; the message names it.
pub async fn check<B: Backend>(make: impl AsyncFn() -> Arc<B>) {
    partitions::every_table_in_every_place(&*make().await).await;
    check_with(make, Table::Calls).await;
}

/// The same for a store that supports the state table but not every other one: `other` is a second table it supports.
///
/// # Panics
/// When the store breaks a promise; the message names it.
pub async fn check_with<B: Backend>(make: impl AsyncFn() -> Arc<B>, other: Table) {
    batches::all_or_nothing(&*make().await).await;
    batches::another_attempt_is_another_batch(&*make().await).await;
    batches::recreate_after_remove(&*make().await).await;
    batches::restored(&*make().await).await;
    batches::expired_rows_are_invisible(&*make().await).await;
    batches::touch_extends_expiry(&*make().await).await;
    batches::timestamps(&*make().await).await;
    batches::tenant_isolation(&*make().await).await;
    batches::without_other_rows(&*make().await).await;
    batches::sweep_limit(&*make().await).await;
    pages::without_gap_or_repetition(&*make().await).await;
    pages::behind_any_cursor(&*make().await).await;
    pages::end_at_a_size(&*make().await).await;
    pages::counted_by_their_ids(&*make().await).await;
    terms::found_in_order_and_pages(&*make().await).await;
    terms::replaced_kept_and_removed(&*make().await).await;
    watch::in_order(&*make().await, other).await;
    concurrency::one_conflicting_commit_wins(&make().await).await;
    concurrency::dropped_commits_are_whole(&make().await).await;
    concurrency::load_is_a_snapshot(&make().await).await;
    check_against_model_with(&make, 100, 7, other).await;
}

/// Runs the checks for persistent stores. `open` opens the store of this name and creates it if it does not exist; it is
/// called again after all handles were dropped, including those of commits in progress. Optimistic concurrency between a
/// load and its commit must also work when the store was reopened in between.
///
/// ```
/// # use std::{collections::HashMap, sync::{Arc, Mutex}};
/// # use toolhub_storage::{backend::Memory, testing::contract};
/// # #[tokio::main] async fn main() {
/// // An in-memory store survives only as long as something holds it.
/// let stores = Mutex::new(HashMap::<String, Arc<Memory>>::new());
/// contract::check_reopen(async |name: &str| stores.lock().unwrap().entry(name.into()).or_default().clone()).await;
/// # }
/// ```
///
/// # Panics
/// When the store breaks a promise; the message names it.
pub async fn check_reopen<B: Backend>(open: impl AsyncFn(&str) -> Arc<B>) {
    reopen::loaded_before_and_committed_after(&async || open("loaded").await).await;
    reopen::interrupted_commit(&async || open("cut").await).await;
    reopen::terms_are_kept(&async || open("indexed").await).await;
    reopen::versions_continue_after_reopen(&async || open("counting").await).await;
}

/// Compares a store with a naive model over this many random programs: commits with every precondition and change, loads,
/// scans, sweeps and an advancing clock.
///
/// # Panics
/// When the store and the model differ; the message names the program and the step.
pub async fn check_against_model<B: Backend>(make: impl AsyncFn() -> Arc<B>, programs: u64, seed: u64) {
    check_against_model_with(make, programs, seed, Table::Calls).await;
}

/// The same for a store that supports the state table but not every other one: `other` is a second table it supports.
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
    Partition::for_thread(Tenant::default(), ThreadId::new(name).expect("a valid name"))
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

/// The result of a valid request, which must not fail.
async fn expect_ok<T>(request: impl Future<Output = Result<T, crate::backend::StoreError>>) -> T {
    request.await.unwrap_or_else(|error| panic!("a valid request failed: {error}"))
}
