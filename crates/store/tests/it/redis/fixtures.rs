//! Opens stores on a test's server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use toolhub_storage::backend::{StoreError, Write};
use toolhub_store::{
    Redis,
    redis::{Address, OpenError, Options},
};
use toolhub_testkit::RedisServer;

use crate::fixtures::commit;

pub(crate) fn options(server: &RedisServer) -> Options {
    Options::new(Address::parse(&server.url()).unwrap())
}

pub(crate) fn open(options: Options) -> Arc<Redis> {
    Arc::new(Redis::open(options).unwrap_or_else(|error| panic!("the store cannot be opened: {error}")))
}

pub(crate) fn refused(options: Options) -> OpenError {
    Redis::open(options).map(|store| panic!("{store:?} was opened")).unwrap_err()
}

/// A prefix that no other store of this process has.
pub(crate) fn numbered_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("store{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A function that creates a new empty store with this number of buckets each time.
pub(crate) fn stores(server: &RedisServer, buckets: u16) -> impl AsyncFn() -> Arc<Redis> {
    async move || open(options(server).prefix(numbered_prefix()).buckets(buckets))
}

/// Commits as soon as the server is back: while it is away, commits fail at once.
pub(crate) async fn commit_when_back(
    store: &Redis,
    partition: &str,
    writes: Vec<Write>,
) -> Result<Vec<u64>, StoreError> {
    loop {
        match commit(store, partition, writes.clone()).await {
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            result => return result,
        }
    }
}
