//! Contract of concurrent access: one of several conflicting commits wins, readers see no partial commit, and a commit whose
//! future was dropped is applied completely or not at all.

use std::sync::Arc;

use super::{NOW, expect_ok, get, put, thread, value, write};
use crate::backend::{Backend, Batch, Expect, RowKey, StoreError, Table};

pub(super) async fn one_conflicting_commit_wins<B: Backend>(store: &Arc<B>) {
    expect_ok(store.commit(Batch::new(thread("t")).with(put("n", "0")), NOW)).await;
    let adding = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut added = 0;
            while added < 25 {
                let Some(row) = get(&*store, &thread("t"), "n", NOW).await else { panic!("the row does not exist") };
                let n: u64 = String::from_utf8_lossy(&row.value).parse().expect("a number was written");
                let next = value(&(n + 1).to_string(), None);
                match store.commit(Batch::new(thread("t")).with(write("n", Expect::Same(row.version), next)), NOW).await
                {
                    Ok(_) => added += 1,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => panic!("a valid commit failed: {error}"),
                }
            }
        })
    });
    for task in adding.collect::<Vec<_>>() {
        task.await.expect("the task does not panic");
    }
    let Some(row) = get(&**store, &thread("t"), "n", NOW).await else { panic!("the row does not exist") };
    assert_eq!((&*row.value, row.version.number), (&b"200"[..], 201), "no increment is lost or applied twice");
}

pub(super) async fn dropped_commits_are_whole<B: Backend>(store: &Arc<B>) {
    for round in 0..50 {
        let text = round.to_string();
        let batch = Batch::new(thread("t")).with(put("a", &text)).with(put("b", &text));
        let task = tokio::spawn({
            let store = store.clone();
            async move { store.commit(batch, NOW).await }
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        // The batch may be applied after the caller was dropped, but never partially: one load sees one snapshot.
        let [a, b] = load_both(store).await;
        assert_eq!(a, b, "a commit whose caller was dropped is applied completely or not at all");
    }
}

pub(super) async fn load_is_a_snapshot<B: Backend>(store: &Arc<B>) {
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..200 {
                let text = round.to_string();
                expect_ok(store.commit(Batch::new(thread("t")).with(put("a", &text)).with(put("b", &text)), NOW)).await;
            }
        }
    });
    while !writing.is_finished() {
        let [a, b] = load_both(store).await;
        assert_eq!(a, b, "a load sees either all or none of the rows of one commit");
        tokio::task::yield_now().await;
    }
    writing.await.expect("the task does not panic");
}

/// Loads both rows in one request.
async fn load_both<B: Backend>(store: &Arc<B>) -> [Option<Arc<[u8]>>; 2] {
    let keys = ["a", "b"].map(|id| RowKey { partition: thread("t"), table: Table::State, id: id.into() });
    let rows = expect_ok(store.load(&keys, NOW)).await;
    [0, 1].map(|at| rows[at].as_ref().map(|row| row.value.clone()))
}
