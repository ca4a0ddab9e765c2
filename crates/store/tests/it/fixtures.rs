//! Shared helpers: short constructors and accessors for rows.

use std::path::Path;

use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Partition, Row, RowKey, StoreError, Table, Write},
    clock::Timestamp,
};
use toolhub_store::{Sqlite, sqlite::Options};
use toolhub_types::ids::{Tenant, ThreadId};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000);

pub(crate) fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::default()).unwrap()
}

pub(crate) fn thread(name: &str) -> Partition {
    Partition::for_thread(Tenant::default(), ThreadId::new(name).unwrap())
}

pub(crate) fn put(id: &str, value: &[u8]) -> Write {
    let change = Change::Put { value: value.into(), schema: 1, expires: None };
    Write { table: Table::State, id: id.into(), expect: Expect::Any, change, durability: Durability::PowerSafe }
}

pub(crate) async fn commit(store: &impl Backend, partition: &str, writes: Vec<Write>) -> Result<Vec<u64>, StoreError> {
    store.commit(Batch { writes, ..Batch::new(thread(partition)) }, NOW).await
}

pub(crate) async fn get(store: &impl Backend, partition: &str, id: &str) -> Result<Option<Row>, StoreError> {
    let keys = [RowKey { partition: thread(partition), table: Table::State, id: id.into() }];
    store.load(&keys, NOW).await.map(|mut rows| rows.pop().flatten())
}
