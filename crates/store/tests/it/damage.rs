//! Damaged rows are reported and the others served; no damaged file causes a panic.

use std::{fs, path::Path};

use fastrand::Rng;
use toolhub_storage::backend::{
    Backend, Batch, Change, Expect, Partition, PartitionKind, RowKey, RowVersion, Scan, Scope, StoreError, Table, Write,
};
use toolhub_store::{Sqlite, sqlite::Options};
use toolhub_testkit::{TempFolder, soak};
use toolhub_types::{
    ids::{IdempotencyKey, Tenant},
    tool::ToolName,
};

use crate::{
    fixtures::{NOW, commit, get, open, put, thread},
    vfs::FaultyDisk,
};

async fn create_filled(path: &Path) {
    fill(&open(path)).await;
}

async fn fill(store: &Sqlite) {
    for t in 0..5 {
        let row = |n: usize| put(&format!("row-{n:02}"), format!("value {n} ").repeat(1 + n * 3).as_bytes());
        let mut writes: Vec<Write> = (t..40).step_by(5).map(row).collect();
        writes.push(put("other", b"value"));
        commit(store, &format!("t{t}"), writes).await.unwrap();
    }
}

fn corrupt_row(path: &Path, sql: &str) {
    let file = rusqlite::Connection::open(path).unwrap();
    assert_eq!(file.execute(sql, ()).unwrap(), 1);
}

fn is_damaged<T>(result: &Result<T, StoreError>, row: &str) -> bool {
    matches!(result, Err(StoreError::Damaged { table: Table::State, id, .. }) if id == row)
}

#[tokio::test]
async fn a_damaged_record_is_named_and_can_be_replaced() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    create_filled(&path).await;
    for (row, sql) in [
        ("row-00", "UPDATE rows SET value = zeroblob(length(value)) WHERE id = 'row-00'"),
        ("row-05", "UPDATE rows SET version = 9 WHERE id = 'row-05'"),
        ("row-10", "UPDATE rows SET expires = 5 WHERE id = 'row-10'"),
        ("row-15", "UPDATE rows SET stamp = stamp + 1 WHERE id = 'row-15'"),
        ("row-20", "UPDATE rows SET layout = -1 WHERE id = 'row-20'"),
        ("row-25", "UPDATE rows SET body = 0, value = x'' WHERE id = 'row-25'"),
    ] {
        corrupt_row(&path, sql);
        let store = open(&path);
        let loaded = get(&store, "t0", row).await;
        assert!(is_damaged(&loaded, row), "{loaded:?}");
        let page = store.scan(Scan::new(Table::State, Scope::All).prefix("row-"), NOW).await.unwrap();
        assert_eq!(page.rows.len(), 39, "the other rows are served");
        if row != "row-00" {
            let mut conditional = put(row, b"new");
            conditional.expect = Expect::Same(RowVersion { number: 1, stamp: 0 });
            let refused = commit(&store, "t0", vec![conditional]).await;
            assert!(is_damaged(&refused, row), "a conditional write is refused: {refused:?}");
        }
        let version = commit(&store, "t0", vec![put(row, b"new")]).await.unwrap()[0];
        assert!(version > 1, "the version continues from the old one");
        assert_eq!(get(&store, "t0", row).await.unwrap().unwrap().value.to_vec(), b"new");
        let listed = store.quarantined_rows().await.unwrap();
        assert_eq!((listed[0].id.as_str(), listed[0].replaced), (row, true), "{listed:?}");
    }
}

#[tokio::test]
async fn a_damaged_record_is_set_aside_and_its_key_is_free_when_somebody_says_so() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    create_filled(&path).await;
    let original = "value 5 ".repeat(16);
    corrupt_row(&path, "UPDATE rows SET stamp = stamp + 1 WHERE id = 'row-05'");
    corrupt_row(&path, "UPDATE rows SET value = CAST('VALUE' AS BLOB) WHERE id = 'row-10'");
    // The expiry itself is damaged; a sweep must not treat the row as expired.
    corrupt_row(&path, "UPDATE rows SET expires = 5 WHERE id = 'row-15'");
    let store = open(&path);
    let page = store.scan(Scan::new(Table::State, Scope::Partition(thread("t0"))).prefix("row-0"), NOW).await.unwrap();
    assert_eq!(page.rows.len(), 1, "a scan skips row-05");
    assert!(is_damaged(&get(&store, "t0", "row-10").await, "row-10"));
    assert_eq!(store.sweep(10, NOW).await, Ok(1));
    let listed = store.quarantined_rows().await.unwrap();
    let mut ids: Vec<(&str, &str, bool)> =
        listed.iter().map(|row| (row.id.as_str(), row.table.as_str(), row.replaced)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [("row-05", "state", false), ("row-10", "state", false), ("row-15", "state", false)]);
    let row = |id: &str| listed.iter().find(|row| row.id == id).unwrap();
    assert_eq!(
        (row("row-05").value.as_slice(), row("row-10").value.as_slice()),
        (original.as_bytes(), b"VALUE".as_slice())
    );
    assert_eq!(row("row-05").partition, thread("t0").to_string());
    assert!(store.damage().is_some_and(|damage| damage.contains("in quarantine: 3;")), "{:?}", store.damage());
    drop(store);

    // Reporting the rows as absent would allow an effect to be executed twice.
    let store = open(&path);
    for row in ["row-05", "row-10", "row-15"] {
        assert!(is_damaged(&get(&store, "t0", row).await, row));
        let mut conditional = put(row, b"new");
        conditional.expect = Expect::Absent;
        assert!(is_damaged(&commit(&store, "t0", vec![conditional.clone()]).await, row));
        let mut removal = put(row, b"");
        removal.change = Change::Remove;
        commit(&store, "t0", vec![removal]).await.unwrap();
        assert_eq!(get(&store, "t0", row).await, Ok(None));
        commit(&store, "t0", vec![conditional]).await.unwrap();
    }
    assert!(
        store.quarantined_rows().await.unwrap().iter().all(|row| row.replaced),
        "quarantined rows are kept for inspection"
    );
    assert_eq!(store.damage(), None, "nothing is missing any more");
}

/// Calls every operation of a store. Any result is fine, as long as it does not panic. Returns how many rows were read.
async fn exercise_store(store: &Sqlite) -> usize {
    let mut intact = 0;
    for n in 0..40 {
        match get(store, &format!("t{}", n % 5), &format!("row-{n:02}")).await {
            Ok(Some(row)) => {
                assert_eq!(row.value.to_vec(), format!("value {n} ").repeat(1 + n * 3).into_bytes());
                intact += 1;
            }
            Ok(None) | Err(StoreError::Damaged { .. } | StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for scope in [Scope::All, Scope::Partition(thread("t1"))] {
        let _ = store.scan(Scan::new(Table::State, scope), NOW).await;
    }
    for n in 0..3 {
        let mut removal = put("row-11", b"");
        removal.change = Change::Remove;
        let _ = commit(store, "t1", vec![put(&format!("new-{n}"), &vec![1; 3000 * n]), removal]).await;
    }
    let _ = store.sweep(10, NOW).await;
    intact
}

/// Number of threads that test mutants.
const THREADS: usize = 4;

fn mutate(file: &mut Vec<u8>, random: &mut Rng) {
    match random.u8(0..4) {
        0 => file.truncate(random.usize(0..file.len())),
        1 => {
            let at = random.usize(0..file.len() - 512);
            file[at..at + 512].fill(random.u8(..));
        }
        _ => {
            for _ in 0..random.usize(1..40) {
                let at = random.usize(0..file.len());
                file[at] = random.u8(..);
            }
        }
    }
}

#[tokio::test]
async fn no_mutation_of_the_file_or_its_log_makes_anybody_fall_over() {
    let (folder, running) = (TempFolder::in_memory(), TempFolder::in_memory());
    // A closed store with everything in the file, and a running store with everything in the WAL.
    create_filled(&folder.join("closed")).await;
    let disk = FaultyDisk::watch(&running.join(""));
    let store = open(&running.join("open"));
    fill(&store).await;
    disk.cut_power(&folder.join(""), &mut Rng::with_seed(1));
    drop(store);
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let (closed, file, wal) = (read("closed"), read("open"), read("open-wal"));
    assert!(wal.len() > 100_000, "the WAL contains the rows: {}", wal.len());

    let mutants = soak(2_000, 10_000);
    // Tests the mutants of one thread; returns how many rows were read and how many files were refused.
    let test_share = |first: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut intact, mut refused) = (0, 0);
        for seed in (first..mutants).step_by(THREADS) {
            let mut random = Rng::with_seed(seed);
            let (mut file, mut wal) =
                if random.bool() { (closed.clone(), None) } else { (file.clone(), Some(wal.clone())) };
            mutate(wal.as_mut().unwrap_or(&mut file), &mut random);
            let path = |suffix: &str| folder.join(format!("mutant-{first}{suffix}"));
            fs::write(path(""), file).unwrap();
            if let Some(wal) = wal {
                fs::write(path("-wal"), wal).unwrap();
            }
            match Sqlite::open(path(""), Options::default()) {
                Ok(store) => intact += runtime.block_on(exercise_store(&store)),
                Err(_) => refused += 1,
            }
            for suffix in ["", "-wal", "-shm", ".lock"] {
                let _ = fs::remove_file(path(suffix));
            }
        }
        (intact, refused)
    };
    let test_share = &test_share;
    let (intact, refused) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64).map(|first| scope.spawn(move || test_share(first))).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.fold((0, 0), |sum, (rows, refused)| (sum.0 + rows, sum.1 + refused))
    });
    assert!(refused < mutants / 2, "most damage leaves a store that opens: {refused}");
    assert!(intact as u64 > mutants * 10, "and most of its rows are served: {intact}");
}

/// Where the claim of an idempotency key is stored.
fn claim(number: usize) -> RowKey {
    let key = IdempotencyKey::new(format!("order-{number}")).unwrap();
    let kind = PartitionKind::Key(ToolName::new("pay").unwrap(), key);
    RowKey { partition: Partition { tenant: Tenant::default(), kind }, table: Table::Claims, id: "request".into() }
}

/// Where the record of the call of a key is stored: among the ended calls, or else among the open ones.
fn call(number: usize) -> [RowKey; 2] {
    [Table::Calls, Table::OpenCalls].map(|table| RowKey {
        partition: thread(&format!("t{}", number % 20)),
        table,
        id: format!("call-{number}").into(),
    })
}

#[tokio::test]
async fn in_a_damaged_file_no_claimed_key_looks_free() {
    const CLAIMS: usize = 300;
    let folder = TempFolder::in_memory();
    {
        let store = open(&folder.join("store"));
        fill(&store).await;
        let calls = (0..CLAIMS).map(|number| call(number)[number % 2].clone());
        for RowKey { partition, table, id } in (0..CLAIMS).map(claim).chain(calls) {
            let write = Write { table, id, ..put("", br#"{"call":"1","digest":"0123456789abcdef"}"#) };
            store.commit(Batch::new(partition).with(write), NOW).await.unwrap();
        }
    }
    let (intact, mut claimed) = (fs::read(folder.join("store")).unwrap(), 0);
    for seed in 0..soak(300, 5_000) {
        let (mut file, mut random) = (intact.clone(), Rng::with_seed(seed));
        mutate(&mut file, &mut random);
        fs::write(folder.join("mutant"), file).unwrap();
        if let Ok(store) = Sqlite::open(folder.join("mutant"), Options::default()) {
            for number in 0..CLAIMS {
                let found = store.load(&[claim(number)], NOW).await;
                assert_ne!(found, Ok(vec![None]), "claim {number} looks free in mutant {seed}");
                claimed += u64::from(found.is_ok());
                let found = store.load(&call(number), NOW).await;
                assert_ne!(found, Ok(vec![None, None]), "the record of call {number} is missing in mutant {seed}");
            }
        }
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let _ = fs::remove_file(folder.join(format!("mutant{suffix}")));
        }
    }
    assert!(claimed > soak(300, 5_000) * 100, "most claims are served: {claimed}");
}

#[tokio::test]
async fn a_damaged_file_is_noticed_also_if_it_is_large() {
    for megabytes in [0, 5] {
        let folder = TempFolder::in_memory();
        let path = folder.join("store");
        {
            let store = open(&path);
            let RowKey { partition, table, id } = claim(7);
            let write = Write { table, id, ..put("", b"{}") };
            store.commit(Batch::new(partition).with(write), NOW).await.unwrap();
            for n in 0..megabytes {
                commit(&store, "t", vec![put(&format!("large-{n}"), &vec![n; 1 << 20])]).await.unwrap();
            }
        }
        // The row and its index entries no longer agree.
        let (mut file, name) = (fs::read(&path).unwrap(), claim(7).partition.to_string());
        let at = file.windows(name.len()).position(|bytes| bytes == name.as_bytes()).unwrap();
        file[at + name.len() - 1] = b'8';
        fs::write(&path, file).unwrap();
        let store = Sqlite::open(&path, Options::default()).unwrap();
        let unused = [claim(9)];
        // A large file is checked while the store is used.
        while megabytes > 0 && store.load(&unused, NOW).await == Ok(vec![None]) {
            tokio::task::yield_now().await;
        }
        let found = store.load(&unused, NOW).await;
        assert!(
            matches!(&found, Err(StoreError::Damaged { reason, .. }) if reason.contains("restore a backup")),
            "{found:?}"
        );
        assert!(store.damage().is_some_and(|damage| damage.contains("is damaged")), "{:?}", store.damage());
        assert_eq!(store.write_error(), None);
    }
}
