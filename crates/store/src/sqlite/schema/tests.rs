//! Files of every version are migrated to the current schema, and a copy of the old file is kept.

use std::{fs, path::Path};

use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Expect, Partition, RowKey, Table, Write},
    clock::Timestamp,
};
use toolhub_testkit::TempFolder;
use toolhub_types::ids::{Tenant, ThreadId};

use super::{
    super::{
        OpenError, Options, Sqlite,
        row::{RowHead, RowName, crc32_of_body},
    },
    MIGRATIONS, Migration, apply_migration, schema_version,
};

const NOW: Timestamp = Timestamp::from_millis(5);
const NEXT_MIGRATION: Migration = "CREATE TABLE notes (text TEXT NOT NULL) STRICT; UPDATE rows SET tab = tab;";
const FAILING_MIGRATION: Migration = "CREATE TABLE notes (text TEXT NOT NULL) STRICT; UPDATE nothing SET a = 1;";

fn open(path: &Path, migrations: &[Migration]) -> Result<Sqlite, OpenError> {
    Sqlite::open_with(path, Options::default(), migrations)
}

/// A file as written by a Toolhub version with these migrations only, with one row.
fn create_store_at(path: &Path, migrations: &[Migration]) {
    let mut file = rusqlite::Connection::open(path).unwrap();
    file.query_row("PRAGMA journal_mode = WAL", (), |_| Ok(())).unwrap();
    for (migration, version) in migrations.iter().zip(1..) {
        apply_migration(&mut file, migration, version).unwrap();
    }
    let partition = partition().to_string();
    let name = RowName { partition: &partition, table: Table::State, id: "a" };
    let (created, updated, body) = (NOW, NOW, crc32_of_body(b"1"));
    let head = RowHead { version: 1, stamp: 7, layout: 1, expires: None, created, updated, body_checksum: body };
    let sum = head.checksum(name);
    file.execute(
        "INSERT INTO rows (partition, tab, id, version, stamp, layout, created, updated, body, head, value)
         VALUES (?1, 'state', 'a', 1, 7, 1, 5, 5, ?2, ?3, ?4)",
        (&partition, body, sum, b"1".as_slice()),
    )
    .unwrap();
}

fn partition() -> Partition {
    Partition::for_thread(Tenant::default(), ThreadId::new("t").unwrap())
}

async fn write(store: &Sqlite) {
    let change = Change::Put { value: b"1".as_slice().into(), schema: 1, expires: None };
    let durability = Durability::PowerSafe;
    let write = Write { table: Table::State, id: "a".into(), expect: Expect::Any, change, durability };
    store.commit(Batch::new(partition()).with(write), NOW).await.unwrap();
}

async fn is_written(store: &Sqlite) -> bool {
    let keys = [RowKey { partition: partition(), table: Table::State, id: "a".into() }];
    store.load(&keys, NOW).await.unwrap()[0].is_some()
}

fn version_of(path: &Path) -> Option<u32> {
    schema_version(&rusqlite::Connection::open(path).unwrap()).unwrap()
}

#[tokio::test]
async fn a_file_of_every_earlier_version_becomes_todays_and_a_copy_stays() {
    let current: Vec<Migration> = MIGRATIONS.iter().copied().chain([NEXT_MIGRATION]).collect();
    for old_version in 1..current.len() {
        let folder = TempFolder::new();
        let path = folder.join("store.db");
        create_store_at(&path, &current[..old_version]);
        let store = open(&path, &current).unwrap();
        assert!(is_written(&store).await, "the old row is still there");
        write(&store).await;
        drop(store);
        assert_eq!(version_of(&path), u32::try_from(current.len()).ok());
        for version in old_version..current.len() {
            let copy = folder.join(format!("store.db.before-{}", version + 1));
            assert_eq!(version_of(&copy), u32::try_from(version).ok());
            let copy = rusqlite::Connection::open(copy).unwrap();
            let value: Vec<u8> = copy.query_row("SELECT value FROM rows WHERE id = 'a'", (), |row| row.get(0)).unwrap();
            assert_eq!(value, b"1", "the copy is complete");
        }
    }
}

#[tokio::test]
async fn a_new_file_needs_no_copy_and_an_open_one_no_step() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    for _ in 0..2 {
        write(&open(&path, MIGRATIONS).unwrap()).await;
    }
    assert!(
        fs::read_dir(folder.path()).unwrap().all(|file| !file.unwrap().path().to_string_lossy().contains("before"))
    );
    assert_eq!(version_of(&path), u32::try_from(MIGRATIONS.len()).ok());
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused_and_left_alone() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let later: Vec<Migration> = MIGRATIONS.iter().copied().chain([NEXT_MIGRATION]).collect();
    write(&open(&path, &later).unwrap()).await;
    let before = fs::read(&path).unwrap();
    let refused = open(&path, MIGRATIONS).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 5, known: 4 }), "{refused}");
    assert_eq!(
        refused.to_string(),
        "the store has schema 5, this version supports at most 4; use the version that wrote it, or a later one"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(is_written(&open(&path, &later).unwrap()).await);
}

#[tokio::test]
async fn a_step_that_fails_changes_nothing() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    write(&open(&path, MIGRATIONS).unwrap()).await;
    // The leftover of an interrupted copy does not matter.
    fs::write(folder.join("store.db.before-4.half"), "half").unwrap();
    let failing: Vec<Migration> = MIGRATIONS.iter().copied().chain([FAILING_MIGRATION]).collect();
    assert!(matches!(open(&path, &failing).unwrap_err(), OpenError::Sqlite { .. }));
    let store = open(&path, MIGRATIONS).unwrap();
    assert!(is_written(&store).await);
    drop(store);
    let later: Vec<Migration> = MIGRATIONS.iter().copied().chain([NEXT_MIGRATION]).collect();
    assert!(is_written(&open(&path, &later).unwrap()).await);
}
