//! Power failures, failed fsyncs and full disks: acknowledged commits persist, and the store recovers.

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

/// Writes the next number of a writer: a counter and a row of its own, in one batch.
async fn count(store: &impl Backend, writer: u64, durability: Durability) -> Result<u64, StoreError> {
    let partition = format!("writer-{writer}");
    let next = get(store, &partition, "counter").await?.map_or(0, |row| row.version.number) + 1;
    let mut writes = vec![put("counter", b"1"), put(&format!("{next:08}"), &vec![b'x'; 700])];
    writes[1].table = Table::History;
    writes.iter_mut().for_each(|write| write.durability = durability);
    assert_eq!(commit(store, &partition, writes).await?, [next, 1]);
    Ok(next)
}

/// Simulates a power failure and asserts that all of `acknowledged` is stored without gaps.
async fn check_after_cut(disk: &FaultyDisk, random: &mut Rng, acknowledged: &HashMap<u64, u64>) {
    let after = TempFolder::in_memory();
    disk.cut_power(&after.join(""), random);
    let store = open(&after.join("store.db"));
    for writer in 0..WRITERS {
        let partition = format!("writer-{writer}");
        let version = get(&store, &partition, "counter").await.unwrap().map_or(0, |row| row.version.number);
        let last = acknowledged.get(&writer).copied().unwrap_or(0);
        assert!(version >= last, "writer {writer}: {last} was acknowledged, but {version} is stored");
        let scan = Scan::new(Table::History, Scope::Partition(thread(&partition))).limit(usize::MAX);
        let page = store.scan(scan, NOW).await.unwrap();
        let numbers: Vec<u64> = page.rows.iter().map(|(key, _)| key.id.parse().unwrap()).collect();
        assert_eq!(numbers, (1..=version).collect::<Vec<_>>(), "no gap and no partial batch");
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
    let commits = (0..64).map(|writer| {
        let store = store.clone();
        async move { count(&*store, 100 + writer, Durability::PowerSafe).await.unwrap() }
    });
    let mut all = Box::pin(futures_util::future::join_all(commits));
    {
        // The first commit blocks on the disk until all others are queued.
        let _blocked = disk.block_io();
        assert!((&mut all).now_or_never().is_none());
    }
    all.await;
    assert!(disk.syncs() <= 3, "queued commits share a sync");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_power_safe_is_missing_after_the_power_was_cut() {
    // A new store each time, because the check reads all rows.
    for _ in 0..soak(1, 10) {
        cut_power_at_random().await;
    }
}

async fn cut_power_at_random() {
    let (folder, disk) = faulty_folder();
    let store = Arc::new(open(&folder.join("store.db")));
    let acknowledged = Arc::new(Mutex::new(HashMap::new()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, acknowledged) = (store.clone(), acknowledged.clone());
            // A third of the writers require only kill safety.
            let durability = if writer % 3 == 0 { Durability::KillSafe } else { Durability::PowerSafe };
            tokio::spawn(async move {
                loop {
                    let next = count(&*store, writer, durability).await.unwrap();
                    if durability == Durability::PowerSafe {
                        acknowledged.lock().unwrap().insert(writer, next);
                    }
                }
            })
        })
        .collect();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..12 {
        let target = acknowledged.lock().unwrap().values().sum::<u64>() + random.u64(1..60);
        while acknowledged.lock().unwrap().values().sum::<u64>() < target {
            tokio::task::yield_now().await;
        }
        // Copied before the cut: everything in it was acknowledged while there was power.
        let acknowledged_before = acknowledged.lock().unwrap().clone();
        check_after_cut(&disk, &mut random, &acknowledged_before).await;
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_sync_that_failed_is_never_taken_for_one_that_worked() {
    let (folder, disk) = faulty_folder();
    let store = open(&folder.join("store.db"));
    let (mut random, mut acknowledged) = (Rng::with_seed(7), HashMap::new());
    let (mut unknown, mut unavailable) = (0, 0);
    for round in 0..soak(40, 400) {
        // Unsynced commits precede the one whose sync fails.
        for _ in 0..random.usize(0..4) {
            let _ = count(&store, 0, Durability::KillSafe).await;
        }
        disk.fail_syncs(random.usize(0..3), random.usize(1..5));
        for _ in 0..6 {
            let writer = random.u64(1..WRITERS);
            match count(&store, writer, Durability::PowerSafe).await {
                Ok(next) => drop(acknowledged.insert(writer, next)),
                Err(StoreError::Unknown(_)) => unknown += 1,
                Err(StoreError::Unavailable(_)) => unavailable += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(get(&store, &format!("writer-{writer}"), "counter").await.is_ok(), "reads continue");
        }
        disk.fail_syncs(0, 0);
        acknowledged.insert(1, count(&store, 1, Durability::PowerSafe).await.expect("the store recovers"));
        check_after_cut(&disk, &mut random, &acknowledged).await;
        assert!(acknowledged.len() > 1 || round < 9);
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
            assert_eq!(get(&store, "t", "a").await.unwrap().unwrap().version.number, version - 1, "reads continue");
        }
        disk.set_full(false);
        assert_eq!(fill(&store).await, Ok(vec![version]));
    }
}
