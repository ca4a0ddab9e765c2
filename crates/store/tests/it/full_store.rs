//! Stores that cannot write. A full store refuses writes that make it grow, serves reads, and accepts writes again when there is room; a
//! store whose file is gone refuses all.

use toolhub_storage::backend::{Backend, Change, StoreError};
use toolhub_store::{Sqlite, sqlite::Options};
use toolhub_testkit::TempFolder;

use crate::fixtures::{commit, get, put};

#[tokio::test]
async fn a_full_store_reads_on_and_takes_writes_again_when_there_is_room() {
    let folder = TempFolder::new();
    let store = Sqlite::open(folder.join("store.db"), Options::default().max_bytes(200_000)).unwrap();
    let long = vec![7; 9_000];
    let mut stored = 0;
    let refused = loop {
        match commit(&store, "t", vec![put(&format!("row-{stored}"), &long)]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Unavailable(_)), "the error says that nothing was written: {refused}");
    assert!(stored > 5, "{stored}");
    assert_eq!(get(&store, "t", &format!("row-{stored}")).await, Ok(None));
    assert_eq!(get(&store, "t", "row-0").await.unwrap().unwrap().value.to_vec(), long);

    // A write that does not fit does not affect the others, though they may share a transaction.
    let too_long = vec![8; 200_000];
    let write = |n: usize| if n == 3 { put("new", &too_long) } else { put(&format!("row-{n}"), b"short") };
    let results = futures_util::future::join_all((0..6).map(|n| commit(&store, "t", vec![write(n)]))).await;
    let succeeded: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(succeeded, [true, true, true, false, true, true], "{results:?}");

    let mut removal = put("row-5", b"");
    removal.change = Change::Remove;
    assert_eq!(commit(&store, "t", vec![removal]).await, Ok(vec![0]));
    assert_eq!(commit(&store, "t", vec![put("new", &long)]).await, Ok(vec![1]), "there is room again");
}

#[cfg(unix)]
#[tokio::test]
async fn a_store_whose_file_is_deleted_moved_or_replaced_writes_nothing_until_it_is_back() {
    let folder = TempFolder::new();
    let (path, aside) = (folder.join("store.db"), folder.join("aside.db"));
    let store = Sqlite::open(&path, Options::default()).unwrap();
    commit(&store, "t", vec![put("first", b"1")]).await.unwrap();
    assert_eq!(store.write_error(), None);
    let check_refused = async |what: &str| {
        let refused = commit(&store, "t", vec![put("second", b"2")]).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Unavailable(reason) if reason.contains(what)), "{refused}");
        assert!(store.write_error().unwrap().contains(what));
        assert_ne!(get(&store, "t", "first").await, Ok(None), "what is stored never seems to be absent");
    };
    std::fs::rename(&path, &aside).unwrap();
    check_refused("was deleted or moved").await;
    std::fs::copy(&aside, &path).unwrap();
    check_refused("was replaced").await;
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(store.write_error(), None);
    commit(&store, "t", vec![put("second", b"2")]).await.unwrap();
    assert!(get(&store, "t", "second").await.unwrap().is_some());
    std::fs::rename(folder.join("store.db-wal"), &aside).unwrap();
    check_refused("lost its WAL").await;
    std::fs::rename(&aside, folder.join("store.db-wal")).unwrap();
    drop(store);
    let store = Sqlite::open(&path, Options::default()).unwrap();
    assert!(get(&store, "t", "second").await.unwrap().is_some());
}
