//! Exclusive lock of a store: a second opening fails and names the holder.

use std::fs;

use toolhub_store::{
    Sqlite,
    sqlite::{OpenError, Options},
};
use toolhub_testkit::TempFolder;

use crate::fixtures::{commit, get, open, put};

#[tokio::test]
async fn a_second_opening_is_refused_and_names_the_holder() {
    let folder = TempFolder::new();
    let store = open(&folder.join("store.db"));
    std::os::unix::fs::symlink(folder.join("store.db"), folder.join("other.db")).unwrap();
    for name in ["store.db", "other.db"] {
        let refused = Sqlite::open(folder.join(name), Options::default()).unwrap_err();
        let OpenError::InUse { holder, .. } = &refused else { panic!("{refused}") };
        assert_eq!(holder.process, Some(std::process::id()));
        assert!(holder.since.is_some());
        let text = refused.to_string();
        assert!(text.contains(&format!("is in use by process {} since 20", std::process::id())), "{text}");
    }
    commit(&store, "t", vec![put("a", b"1")]).await.unwrap();
    drop(store);
    assert!(get(&open(&folder.join("other.db")), "t", "a").await.unwrap().is_some(), "the lock ends with its holder");
}

#[tokio::test]
async fn the_lock_of_a_dead_process_is_taken_over() {
    let folder = TempFolder::new();
    fs::write(folder.join("store.db.lock"), "process 4194999\nsince 2024-01-01T12:00:00.007Z\nand more\n").unwrap();
    let _store = open(&folder.join("store.db"));
    let text = Sqlite::open(folder.join("store.db"), Options::default()).unwrap_err().to_string();
    assert!(text.contains(&format!("process {} ", std::process::id())), "{text}");
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_clearly() {
    let folder = TempFolder::new();
    fs::write(folder.join("text"), "This is not a database, and long enough to be looked at as one. ".repeat(100))
        .unwrap();
    let foreign = rusqlite::Connection::open(folder.join("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE notes (text)").unwrap();
    drop(foreign);
    let before = fs::read(folder.join("foreign")).unwrap();
    let open = |name| Sqlite::open(folder.join(name), Options::default()).unwrap_err();
    assert!(matches!(open("text"), OpenError::Damaged { .. }), "{}", open("text"));
    assert!(matches!(open("foreign"), OpenError::Foreign(_)), "{}", open("foreign"));
    assert_eq!(fs::read(folder.join("foreign")).unwrap(), before, "a foreign file is not changed");
    assert!(matches!(open("no/such/folder"), OpenError::Io { .. }), "{}", open("no/such/folder"));
    assert!(matches!(open(""), OpenError::Io { .. } | OpenError::Sqlite { .. }), "{}", open(""));
}
