//! The store keeps what every store promises, and what it wrote is there after it was closed.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use toolhub_storage::{
    backend::{Backend, Batch, Change, Expect, Scan, Scope, StoreError, Table, Write},
    clock::Timestamp,
    testing::contract,
};
use toolhub_store::Sqlite;
use toolhub_testkit::{TempFolder, soak};

use crate::fixtures::{NOW, commit, get, open, put, thread};

/// An empty store each time it is asked.
fn stores(folder: &TempFolder) -> impl AsyncFn() -> Arc<Sqlite> {
    let made = AtomicU32::new(0);
    async move || Arc::new(open(&folder.join(made.fetch_add(1, Ordering::Relaxed).to_string())))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_sqlite_keeps_every_promise() {
    contract::check(stores(&TempFolder::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_one_life_to_the_next_the_store_in_sqlite_keeps_every_promise() {
    let folder = TempFolder::new();
    contract::check_reopen(async |name: &str| Arc::new(open(&folder.join(name)))).await;
}

#[tokio::test]
async fn random_programs_find_no_difference_to_a_naive_model() {
    let programs = soak(500, 12_000);
    // Other programs each time; the message of a failure names the seed.
    let seed = RandomState::new().build_hasher().finish();
    contract::check_against_model(stores(&TempFolder::in_memory()), programs, seed).await;
}

#[tokio::test]
async fn what_was_written_is_there_when_the_store_is_opened_again() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let store = open(&path);
    commit(&store, "t", vec![put("a", b"1"), put("b", &[0, 255])]).await.unwrap();
    commit(&store, "t", vec![put("a", b"2")]).await.unwrap();
    let fenced = Batch { fence: Some(7), ..Batch::new(thread("t")) };
    store.commit(fenced, NOW).await.unwrap();
    let before = (get(&store, "t", "a").await, get(&store, "t", "b").await);
    drop(store);

    let store = open(&path);
    assert_eq!((get(&store, "t", "a").await, get(&store, "t", "b").await), before);
    assert_eq!(commit(&store, "t", vec![put("a", b"3")]).await, Ok(vec![3]));
    let late = Batch { fence: Some(6), ..Batch::new(thread("t")) };
    assert_eq!(store.commit(late, NOW).await, Err(StoreError::Fenced { given: 6, seen: 7 }));
}

#[tokio::test]
async fn a_batch_that_is_refused_takes_no_other_with_it() {
    let folder = TempFolder::new();
    let store = open(&folder.join("store.db"));
    // Sent together, so that most of them share a transaction.
    let all = (0..64).map(|n| {
        let mut writes = vec![put(&format!("row-{n}"), b"1"), put("one", b"1")];
        if n % 2 == 0 {
            writes[1].expect = Expect::Absent;
            writes[1].table = Table::Calls;
        }
        commit(&store, "t", writes)
    });
    let answers = futures_util::future::join_all(all).await;
    let refused = answers.iter().filter(|answer| matches!(answer, Err(StoreError::Conflict { .. }))).count();
    assert_eq!((answers.iter().filter(|answer| answer.is_ok()).count(), refused), (33, 31));
    let page = store.scan(Scan::new(Table::State, Scope::All).prefix("row-"), NOW).await.unwrap();
    assert_eq!(page.rows.len(), 33, "nothing of a refused batch is written");
    assert_eq!(get(&store, "t", "one").await.unwrap().unwrap().version.number, 32);
}

/// The writer remembers where rows are. A sweep takes rows away behind its back, and their places in the file go to others.
#[tokio::test]
async fn a_row_that_was_swept_is_gone_also_when_the_clock_goes_back() {
    let folder = TempFolder::new();
    let store = open(&folder.join("store.db"));
    let ends = Timestamp::from_millis(NOW.millis() + 1000);
    let ending = |expect| {
        let change = Change::Put { value: (*b"ends").into(), schema: 1, expires: Some(ends) };
        Write { expect, change, ..put("ending", b"") }
    };
    commit(&store, "t", vec![ending(Expect::Any)]).await.unwrap();
    let seen = get(&store, "t", "ending").await.unwrap().unwrap().version;
    assert_eq!(store.sweep(10, ends).await.unwrap(), 1);
    commit(&store, "t", vec![put("other", b"stays")]).await.unwrap();
    // Here it is earlier than at the sweep.
    let late = commit(&store, "t", vec![ending(Expect::Same(seen))]).await;
    assert!(matches!(late, Err(StoreError::Conflict { found: None, .. })), "{late:?}");
    commit(&store, "t", vec![ending(Expect::Absent)]).await.unwrap();
    assert_eq!(*get(&store, "t", "other").await.unwrap().unwrap().value, *b"stays");
}
