//! A store that is full refuses what makes it grow, reads on, and takes writes again when there is room.

use toolhub_storage::backend::{Change, StoreError};
use toolhub_store::{Sqlite, sqlite::Options};
use toolhub_testkit::TempFolder;

use crate::fixtures::{commit, get, put};

#[tokio::test]
async fn a_full_store_reads_on_and_takes_writes_again_when_there_is_room() {
    let folder = TempFolder::new();
    let store = Sqlite::open(folder.join("store.db"), Options::default().max_bytes(200_000)).unwrap();
    let long = vec![7; 9_000];
    let mut kept = 0;
    let refused = loop {
        match commit(&store, "t", vec![put(&format!("row-{kept}"), &long)]).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Unavailable(_)), "nothing was written, and it says so: {refused}");
    assert!(kept > 5, "{kept}");
    assert_eq!(get(&store, "t", &format!("row-{kept}")).await, Ok(None));
    assert_eq!(get(&store, "t", "row-0").await.unwrap().unwrap().value.to_vec(), long);

    // One that does not fit takes no other with it, though they may share a transaction.
    let too_long = vec![8; 200_000];
    let one = |n: usize| if n == 3 { put("new", &too_long) } else { put(&format!("row-{n}"), b"short") };
    let answers = futures_util::future::join_all((0..6).map(|n| commit(&store, "t", vec![one(n)]))).await;
    let fine: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, true, true, false, true, true], "{answers:?}");

    let mut gone = put("row-5", b"");
    gone.change = Change::Remove;
    assert_eq!(commit(&store, "t", vec![gone]).await, Ok(vec![0]));
    assert_eq!(commit(&store, "t", vec![put("new", &long)]).await, Ok(vec![1]), "there is room again");
}
