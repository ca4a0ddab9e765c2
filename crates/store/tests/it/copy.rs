//! Copies between stores of different kinds.

use std::{collections::BTreeMap, sync::Arc};

use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Memory, Partition, RowKey, Scan, Scope, Table, Terms, Write,
    },
    clock::Timestamp,
};
use toolhub_store::{
    Sqlite,
    copy::{CopyError, compare, copy},
};
use toolhub_testkit::TempFolder;
use toolhub_types::ids::{Tenant, ThreadId};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn partition(thread: usize) -> Partition {
    Partition::for_thread(
        Tenant::new(format!("tenant{}", thread % 3)).unwrap(),
        ThreadId::new(format!("t{thread}")).unwrap(),
    )
}

fn put(table: Table, id: &str, value: &str, expires: Option<Timestamp>) -> Write {
    let change = Change::Put { value: value.as_bytes().into(), schema: 3, expires };
    Write { table, id: id.into(), expect: Expect::Any, change, durability: Durability::KillSafe }
}

/// The term of each call is its value.
fn terms(key: &RowKey, row: &toolhub_storage::backend::Row) -> Terms {
    match key.table {
        Table::Calls => Terms::new([format!("tool={}", String::from_utf8_lossy(&row.value))]),
        _ => Terms::NONE,
    }
}

/// 1,500 calls and states of 40 threads, some of them written several times, some expired.
async fn fill(store: &dyn Backend) {
    for number in 0..1_500 {
        let id = format!("row{number:04}");
        for version in 0..=number % 3 {
            let value = format!("v{version}");
            let mut batch = Batch::new(partition(number % 40))
                .with(put(Table::Calls, &id, &value, (number % 7 == 0).then(|| at(5_000))))
                .with(put(Table::State, &id, &value, (number % 5 == 0).then(|| at(1_000_000))));
            batch.terms.insert((Table::Calls, id.as_str().into()), Terms::new([format!("tool={value}")]));
            let now = i64::try_from(number + version).unwrap();
            store.commit(batch, at(now)).await.unwrap();
        }
    }
}

#[track_caller]
fn check_counts(counts: &BTreeMap<Table, u64>) {
    // Every seventh call has expired.
    assert_eq!((counts[&Table::Calls], counts[&Table::State]), (1_285, 1_500));
}

async fn check_copy(source: &dyn Backend, target: &dyn Backend) {
    let now = at(10_000);
    check_counts(&copy(source, target, terms, now).await.unwrap());
    compare(source, target, now).await.unwrap();
    let key = RowKey { partition: partition(2), table: Table::State, id: "row0002".into() };
    let row = target.load(&[key], now).await.unwrap().remove(0).unwrap();
    assert_eq!((row.version.number, row.created, row.updated, row.schema), (3, at(2), at(4), 3));
    let mut found = Scan::new(Table::Calls, Scope::All).limit(2_000);
    found.terms = vec!["tool=v2".into()];
    assert_eq!(target.scan(found, now).await.unwrap().rows.len(), 429, "found by their terms");
    assert!(matches!(copy(source, target, terms, now).await, Err(CopyError::NotEmpty(_))));
    let batch = Batch::new(partition(2)).with(put(Table::State, "row0002", "changed", None));
    target.commit(batch, now).await.unwrap();
    let error = compare(source, target, now).await.unwrap_err();
    assert!(matches!(&error, CopyError::Different(Table::State, id) if id == "row0002"), "{error}");
    let batch = Batch::new(partition(2)).with(put(Table::Tools, "more", "x", None));
    let batch = batch.with(put(Table::State, "row0002", "changed", None));
    source.commit(batch, now).await.unwrap();
    assert!(compare(source, target, now).await.is_err(), "a row is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_copied_with_versions_times_and_terms_and_compared() {
    let folder = TempFolder::new();
    let open = |name: &str| Arc::new(Sqlite::open(folder.path().join(name), Default::default()).unwrap());
    let (memory, sqlite, copied) = (Memory::new(), open("one.db"), open("two.db"));
    fill(&memory).await;
    check_copy(&memory, &*sqlite).await;
    let memory = Memory::new();
    fill(&memory).await;
    copy(&memory, &*copied, terms, at(10_000)).await.unwrap();
    check_copy(&*copied, &Memory::new()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_copied_between_redis_with_one_bucket_and_with_many() {
    use crate::redis::fixtures::stores;

    let server = toolhub_testkit::RedisServer::start();
    let (one, many) = (stores(&server, 1)().await, stores(&server, 64)().await);
    let memory = Memory::new();
    fill(&memory).await;
    copy(&memory, &*one, terms, at(10_000)).await.unwrap();
    check_copy(&*one, &*many).await;
}
