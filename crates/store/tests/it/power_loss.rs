//! The power is cut, a sync fails, the disk is full: what was acknowledged stays, and the store mends itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use fastrand::Rng;
use futures_util::FutureExt;
use toolhub_storage::backend::{Backend, Durability, Scan, Scope, StoreError, Table};
use toolhub_store::Sqlite;
use toolhub_testkit::{TempFolder, soak};

use crate::{
    fixtures::{NOW, commit, get, open, put, thread},
    vfs::FaultyDisk,
};

const WRITERS: u64 = 6;

fn faulty_folder() -> (TempFolder, Arc<FaultyDisk>) {
    let folder = TempFolder::in_memory();
    let disk = FaultyDisk::watch(&folder.join(""));
    (folder, disk)
}

/// The next number of a writer: a counter and a row of its own, in one batch.
async fn count(store: &impl Backend, writer: u64, durability: Durability) -> Result<u64, StoreError> {
    let partition = format!("writer-{writer}");
    let next = get(store, &partition, "counter").await?.map_or(0, |row| row.version.number) + 1;
    let mut writes = vec![put("counter", b"1"), put(&format!("{next:08}"), &vec![b'x'; 700])];
    writes[1].table = Table::History;
    writes.iter_mut().for_each(|write| write.durability = durability);
    assert_eq!(commit(store, &partition, writes).await?, [next, 1]);
    Ok(next)
}

/// Cuts the power and looks what is there: all of `acknowledged`, without gaps.
async fn check_after_cut(disk: &FaultyDisk, random: &mut Rng, acknowledged: &HashMap<u64, u64>) {
    let after = TempFolder::in_memory();
    disk.cut_power(&after.join(""), random);
    let store = open(&after.join("store.db"));
    for writer in 0..WRITERS {
        let partition = format!("writer-{writer}");
        let version = get(&store, &partition, "counter").await.unwrap().map_or(0, |row| row.version.number);
        let last = acknowledged.get(&writer).copied().unwrap_or(0);
        assert!(version >= last, "writer {writer} was told of {last}, and {version} is there");
        let scan = Scan::new(Table::History, Scope::Partition(thread(&partition))).limit(usize::MAX);
        let page = store.scan(scan, NOW).await.unwrap();
        let numbers: Vec<u64> = page.rows.iter().map(|(key, _)| key.id.parse().unwrap()).collect();
        assert_eq!(numbers, (1..=version).collect::<Vec<_>>(), "no gap, and nothing by halves");
    }
    drop(store);
    let file = rusqlite::Connection::open(after.join("store.db")).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

#[tokio::test]
async fn a_power_safe_commit_is_one_sync_a_kill_safe_one_none_and_many_share() {
    let (folder, disk) = faulty_folder();
    let store = Arc::new(open(&folder.join("store.db")));
    count(&*store, 0, Durability::PowerSafe).await.unwrap();
    disk.syncs();
    for _ in 0..10 {
        count(&*store, 0, Durability::PowerSafe).await.unwrap();
    }
    assert_eq!(disk.syncs(), 10);
    for _ in 0..10 {
        count(&*store, 0, Durability::KillSafe).await.unwrap();
    }
    assert_eq!(disk.syncs(), 0);
    let many = (0..64).map(|writer| {
        let store = store.clone();
        async move { count(&*store, 100 + writer, Durability::PowerSafe).await.unwrap() }
    });
    let mut all = Box::pin(futures_util::future::join_all(many));
    {
        // The first is stuck on the disk until all others have come.
        let _stuck = disk.block_io();
        assert!((&mut all).now_or_never().is_none());
    }
    all.await;
    assert!(disk.syncs() <= 3, "commits that wait together share a sync");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_power_safe_is_missing_after_the_power_was_cut() {
    // Each time a new store: what is looked at after a cut grows with every write.
    for _ in 0..soak(1, 10) {
        cut_power_at_random().await;
    }
}

async fn cut_power_at_random() {
    let (folder, disk) = faulty_folder();
    let store = Arc::new(open(&folder.join("store.db")));
    let told = Arc::new(Mutex::new(HashMap::new()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, told) = (store.clone(), told.clone());
            // A third of them never asks for more than to survive a kill.
            let durability = if writer % 3 == 0 { Durability::KillSafe } else { Durability::PowerSafe };
            tokio::spawn(async move {
                loop {
                    let next = count(&*store, writer, durability).await.unwrap();
                    if durability == Durability::PowerSafe {
                        told.lock().unwrap().insert(writer, next);
                    }
                }
            })
        })
        .collect();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..12 {
        let more = told.lock().unwrap().values().sum::<u64>() + random.u64(1..60);
        while told.lock().unwrap().values().sum::<u64>() < more {
            tokio::task::yield_now().await;
        }
        // Taken before the cut: whatever is in it was acknowledged while there was power.
        let acknowledged = told.lock().unwrap().clone();
        check_after_cut(&disk, &mut random, &acknowledged).await;
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_sync_that_failed_is_never_taken_for_one_that_worked() {
    let (folder, disk) = faulty_folder();
    let store = open(&folder.join("store.db"));
    let (mut random, mut told) = (Rng::with_seed(7), HashMap::new());
    let (mut unknown, mut unavailable) = (0, 0);
    for round in 0..soak(40, 400) {
        // Some that nobody has synced yet lie before the one that fails.
        for _ in 0..random.usize(0..4) {
            let _ = count(&store, 0, Durability::KillSafe).await;
        }
        disk.fail_syncs(random.usize(0..3), random.usize(1..5));
        for _ in 0..6 {
            let writer = random.u64(1..WRITERS);
            match count(&store, writer, Durability::PowerSafe).await {
                Ok(next) => drop(told.insert(writer, next)),
                Err(StoreError::Unknown(_)) => unknown += 1,
                Err(StoreError::Unavailable(_)) => unavailable += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(get(&store, &format!("writer-{writer}"), "counter").await.is_ok(), "reads go on");
        }
        disk.fail_syncs(0, 0);
        told.insert(1, count(&store, 1, Durability::PowerSafe).await.expect("it mends itself"));
        check_after_cut(&disk, &mut random, &told).await;
        assert!(told.len() > 1 || round < 9);
    }
    assert!(unknown > 10 && unavailable > 10, "{unknown} {unavailable}");
}

async fn fill(store: &Sqlite) -> Result<Vec<u64>, StoreError> {
    commit(store, "t", vec![put("a", &vec![1; 50_000])]).await
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_wrote_nothing_and_ends_with_the_lack() {
    let (folder, disk) = faulty_folder();
    let store = open(&folder.join("store.db"));
    assert_eq!(fill(&store).await, Ok(vec![1]));
    for version in 2..5 {
        disk.set_full(true);
        for _ in 0..3 {
            let refused = fill(&store).await;
            assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
            assert_eq!(get(&store, "t", "a").await.unwrap().unwrap().version.number, version - 1, "reads go on");
        }
        disk.set_full(false);
        assert_eq!(fill(&store).await, Ok(vec![version]));
    }
}
