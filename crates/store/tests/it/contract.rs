//! The SQLite store passes the `Backend` contract, and its data persists after closing.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use toolhub_storage::{
    backend::{Backend, Batch, Change, Expect, Scan, Scope, StoreError, Table, Terms, Write},
    clock::Timestamp,
    testing::contract,
};
use toolhub_store::Sqlite;
use toolhub_testkit::{TempFolder, soak};

use crate::fixtures::{NOW, commit, get, open, put, thread};

/// A function that creates a new empty store each time.
fn stores(folder: &TempFolder) -> impl AsyncFn() -> Arc<Sqlite> {
    let count = AtomicU32::new(0);
    async move || Arc::new(open(&folder.join(count.fetch_add(1, Ordering::Relaxed).to_string())))
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
    // A new random seed for every run; the message of a failure contains it.
    let seed = RandomState::new().build_hasher().finish();
    contract::check_against_model(stores(&TempFolder::in_memory()), programs, seed).await;
}

#[tokio::test]
async fn a_search_for_terms_that_no_row_has_together_ends_at_its_read_limit() {
    let folder = TempFolder::new();
    let store = open(&folder.join("store.db"));
    // Of one block of ids, and of a block each.
    for (group, scattered) in [("same", false), ("own", true)] {
        let id =
            |n: usize| if scattered { format!("{group}-{n:03}") } else { format!("{group}-of-a-long-block-{n:03}") };
        for n in 0..100 {
            let mut batch = Batch::new(thread(["t", "u"][n / 2 % 2])).with(put(&id(n), b"1"));
            batch.terms.insert((Table::State, id(n).into()), Terms::new([["even", "odd"][n % 2], group]));
            store.commit(batch, NOW).await.unwrap();
        }
        for descending in [false, true] {
            for scope in [Scope::All, Scope::Partition(thread("t"))] {
                let terms = vec!["even".into(), "odd".into()];
                let scan = Scan::new(Table::State, scope).prefix(group);
                let mut scan = Scan { terms, descending, read_limit: 10, ..scan };
                let mut pages = 1;
                loop {
                    let page = store.scan(scan.clone(), NOW).await.unwrap();
                    assert!(page.rows.is_empty());
                    let Some(next) = page.next else { break };
                    (scan.after, pages) = (Some(next), pages + 1);
                }
                assert!((3..=40).contains(&pages), "{group} {descending}: {pages} pages");
            }
        }
    }
}

#[tokio::test]
async fn what_was_written_is_there_when_the_store_is_opened_again() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let store = open(&path);
    commit(&store, "t", vec![put("a", b"1"), put("b", &[0, 255])]).await.unwrap();
    commit(&store, "t", vec![put("a", b"2")]).await.unwrap();
    let before = (get(&store, "t", "a").await, get(&store, "t", "b").await);
    drop(store);

    let store = open(&path);
    assert_eq!((get(&store, "t", "a").await, get(&store, "t", "b").await), before);
    assert_eq!(commit(&store, "t", vec![put("a", b"3")]).await, Ok(vec![3]));
}

#[tokio::test]
async fn a_batch_that_is_refused_takes_no_other_with_it() {
    let folder = TempFolder::new();
    let store = open(&folder.join("store.db"));
    // Submitted together, so that most of them share a transaction.
    let all = (0..64).map(|n| {
        let mut writes = vec![put(&format!("row-{n}"), b"1"), put("one", b"1")];
        if n % 2 == 0 {
            writes[1].expect = Expect::Absent;
            writes[1].table = Table::Calls;
        }
        commit(&store, "t", writes)
    });
    let results = futures_util::future::join_all(all).await;
    let refused = results.iter().filter(|result| matches!(result, Err(StoreError::Conflict { .. }))).count();
    assert_eq!((results.iter().filter(|result| result.is_ok()).count(), refused), (33, 31));
    let page = store.scan(Scan::new(Table::State, Scope::All).prefix("row-"), NOW).await.unwrap();
    assert_eq!(page.rows.len(), 33, "nothing of a refused batch is written");
    assert_eq!(get(&store, "t", "one").await.unwrap().unwrap().version.number, 32);
}

/// The writer caches the rowids of rows. A sweep bypasses that cache, and rowids may be reused for other rows.
#[tokio::test]
async fn a_row_that_was_swept_is_gone_also_when_the_clock_goes_back() {
    let folder = TempFolder::new();
    let store = open(&folder.join("store.db"));
    let expires = Timestamp::from_millis(NOW.millis() + 1000);
    let expiring = |expect| {
        let change = Change::Put { value: (*b"ends").into(), schema: 1, expires: Some(expires) };
        Write { expect, change, ..put("ending", b"") }
    };
    commit(&store, "t", vec![expiring(Expect::Any)]).await.unwrap();
    let version = get(&store, "t", "ending").await.unwrap().unwrap().version;
    assert_eq!(store.sweep(10, expires).await.unwrap(), 1);
    commit(&store, "t", vec![put("other", b"stays")]).await.unwrap();
    // `NOW` is earlier than the time of the sweep.
    let late = commit(&store, "t", vec![expiring(Expect::Same(version))]).await;
    assert!(matches!(late, Err(StoreError::Conflict { found: None, .. })), "{late:?}");
    commit(&store, "t", vec![expiring(Expect::Absent)]).await.unwrap();
    assert_eq!(*get(&store, "t", "other").await.unwrap().unwrap().value, *b"stays");
}
