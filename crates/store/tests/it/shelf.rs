//! What the tests share: a folder that goes away with the test, and short words for rows.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Key, Partition, Row, StoreError, Table, Write},
    clock::Timestamp,
};
use toolhub_store::{Sqlite, sqlite::Options};
use toolhub_types::ids::{Tenant, ThreadId};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// A folder for one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// On a real disk.
    pub(crate) fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// In memory where there is such a place: for tests that open hundreds of files and ask nothing of the disk.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::under(memory) } else { Self::new() }
    }

    fn under(place: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("toolhub-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = place.join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::default()).unwrap()
}

pub(crate) fn thread(name: &str) -> Partition {
    Partition::of_thread(Tenant::default(), ThreadId::new(name).unwrap())
}

pub(crate) fn put(id: &str, value: &[u8]) -> Write {
    let change = Change::Put { value: value.into(), schema: 1, expires: None };
    Write { table: Table::State, id: id.into(), expect: Expect::Any, change, durability: Durability::PowerSafe }
}

pub(crate) async fn commit(store: &impl Backend, partition: &str, writes: Vec<Write>) -> Result<Vec<u64>, StoreError> {
    store.commit(Batch { writes, ..Batch::on(thread(partition)) }, NOW).await
}

pub(crate) async fn get(store: &impl Backend, partition: &str, id: &str) -> Result<Option<Row>, StoreError> {
    let keys = [Key { partition: thread(partition), table: Table::State, id: id.into() }];
    store.load(&keys, NOW).await.map(|mut rows| rows.pop().flatten())
}
