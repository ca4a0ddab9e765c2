//! Contract of reopening a store: acknowledged commits persist, and versions loaded before can still be compared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    NOW, expect_ok, get, put,
    terms::{find, indexed},
    thread, value, write,
};
use crate::backend::{Backend, Batch, Expect, Row, Scope, StoreError};

/// A writer loads, crashes and restarts: its commit succeeds only if the row still has the version it loaded.
pub(super) async fn loaded_before_and_committed_after<B: Backend>(open: &impl AsyncFn() -> Arc<B>) {
    let store = open().await;
    let batch = Batch::new(thread("t")).with(put("mine", "1")).with(put("theirs", "1")).with(put("gone", "1"));
    expect_ok(store.commit(batch, NOW)).await;
    let version = |row: Option<Row>| row.map(|row| row.version).unwrap_or_else(|| panic!("the row does not exist"));
    let mine = version(get(&*store, &thread("t"), "mine", NOW).await);
    let theirs = version(get(&*store, &thread("t"), "theirs", NOW).await);
    let gone = version(get(&*store, &thread("t"), "gone", NOW).await);
    expect_ok(store.commit(Batch::new(thread("t")).with(put("theirs", "2")), NOW)).await;
    let removed = write("gone", Expect::Any, crate::backend::Change::Remove);
    expect_ok(store.commit(Batch::new(thread("t")).with(removed), NOW)).await;
    drop(store);

    let store = open().await;
    expect_ok(store.commit(Batch::new(thread("t")).with(put("gone", "again")), NOW)).await;
    for (id, version) in [("theirs", theirs), ("gone", gone)] {
        let writes = Batch::new(thread("t")).with(put("beside", "1")).with(write(
            id,
            Expect::Same(version),
            value("late", None),
        ));
        let refused = store.commit(writes, NOW).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { .. })),
            "`{id}` has changed, but the commit returned {refused:?}"
        );
    }
    assert_eq!(get(&*store, &thread("t"), "beside", NOW).await, None, "nothing of a refused batch is written");
    let next = Batch::new(thread("t")).with(write("mine", Expect::Same(mine), value("2", None)));
    assert_eq!(store.commit(next, NOW).await, Ok(vec![2]), "an unchanged row still has the loaded version");
}

/// Commits are cut off while the store closes: every acknowledged batch is there, and no batch is there partially.
pub(super) async fn interrupted_commit<B: Backend>(open: &impl AsyncFn() -> Arc<B>) {
    // Recorded on every commit, because an aborted writer returns nothing. 0: nothing was acknowledged yet.
    let acknowledged: Arc<[AtomicU32; 8]> = Arc::default();
    for opening in 1..=6_u32 {
        let store = open().await;
        let writers = (0..acknowledged.len()).map(|writer| {
            let (store, acknowledged) = (store.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for round in 0..20_u32 {
                    let (partition, text) = (thread(&format!("w{writer}")), (opening * 100 + round).to_string());
                    let batch = Batch::new(partition).with(put("a", &text)).with(put("b", &text));
                    match store.commit(batch, NOW).await {
                        Ok(_) => acknowledged[writer].store(opening * 100 + round, Ordering::Release),
                        Err(error) => panic!("a valid commit failed: {error}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        // Every second opening aborts its writers early, so that commits are still in progress when the store closes.
        if opening % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(u64::from(opening))).await;
            writers.iter().for_each(tokio::task::JoinHandle::abort);
        }
        for writer in writers {
            let ended = writer.await;
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "a valid commit failed");
        }
        drop(store);
        let store = open().await;
        for (writer, last) in acknowledged.iter().enumerate() {
            let partition = thread(&format!("w{writer}"));
            let rows = (get(&*store, &partition, "a", NOW).await, get(&*store, &partition, "b", NOW).await);
            let text = |row: &Option<Row>| row.as_ref().map(|row| String::from_utf8_lossy(&row.value).into_owned());
            assert_eq!(text(&rows.0), text(&rows.1), "a batch is there completely or not at all");
            let found: u32 =
                text(&rows.0).map_or(0, |text| text.parse().unwrap_or_else(|_| panic!("the value is a number")));
            let last = last.load(Ordering::Acquire);
            assert!(found >= last, "writer {writer}: {last} was acknowledged, but {found} is stored");
        }
    }
}

/// Rows are found by their terms after reopening.
pub(super) async fn terms_are_kept<B: Backend>(open: &impl AsyncFn() -> Arc<B>) {
    for opening in 1..=3 {
        let (store, id) = (open().await, opening.to_string());
        expect_ok(store.commit(indexed(thread("t"), put(&id, "1"), &["all", &id]), NOW)).await;
        drop(store);
        let store = open().await;
        let expected: Vec<String> = (1..=opening).map(|opening| opening.to_string()).collect();
        assert_eq!(find(&*store, Scope::All, &["all"], NOW).await, expected, "terms persist");
        assert_eq!(find(&*store, Scope::All, &["all", &id], NOW).await, [id]);
    }
}

/// Versions continue after reopening.
pub(super) async fn versions_continue_after_reopen<B: Backend>(open: &impl AsyncFn() -> Arc<B>) {
    for opening in 1..=3 {
        let store = open().await;
        assert_eq!(expect_ok(store.commit(Batch::new(thread("t")).with(put("n", "1")), NOW)).await, [opening]);
    }
}
