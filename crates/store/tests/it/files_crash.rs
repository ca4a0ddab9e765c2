//! Crash tests of the file store: stopped at any step, power failures, full and failing disks.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use fastrand::Rng;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Durability, Memory, Scan, Scope, StoreError, Table, Write},
    clock::Timestamp,
};
use toolhub_store::{Files, files::Options};
use toolhub_testkit::{TempFolder, is_soak, soak};

use crate::{
    fixtures::{NOW, commit, get, put, thread},
    simulated_disk::{Completion, SimulatedDisk},
};

const COMPLETIONS: [Completion; 3] = [Completion::NotStarted, Completion::Partial, Completion::Done];
const LATER: Timestamp = Timestamp::from_millis(2_000_000);

/// The lock is a real file; everything else is on the simulated disk.
struct StoreFolder(PathBuf, #[expect(dead_code, reason = "removes the folder on drop")] TempFolder);

impl StoreFolder {
    fn new() -> Self {
        let folder = TempFolder::in_memory();
        Self(folder.join("state"), folder)
    }

    fn open(&self, disk: &SimulatedDisk, compression: bool) -> Files {
        self.try_open(disk, compression).unwrap()
    }

    fn try_open(&self, disk: &SimulatedDisk, compression: bool) -> Result<Files, toolhub_store::files::OpenError> {
        Files::open_on(&self.0, Options { compression, backups: None }, Arc::new(disk.clone()))
    }
}

/// The contents of a store: value and version of every row.
type Contents = BTreeMap<(String, Table, String), (Vec<u8>, u64)>;

async fn read_contents(store: &impl Backend) -> Contents {
    let mut all = Contents::new();
    for table in [Table::State, Table::Versions, Table::History] {
        let page = store.scan(Scan::new(table, Scope::All).limit(10_000), NOW).await.unwrap();
        for (key, row) in page.rows {
            all.insert(
                (key.partition.to_string(), table, key.id.to_string()),
                (row.value.to_vec(), row.version.number),
            );
        }
    }
    all
}

fn in_table(table: Table, mut write: Write) -> Write {
    write.table = table;
    write
}

fn removal(id: &str) -> Write {
    Write { change: Change::Remove, ..put(id, b"") }
}

fn kill_safe(mut write: Write) -> Write {
    write.durability = Durability::KillSafe;
    write
}

/// Several contexts in two threads, one of them with an expiry.
async fn fill(store: &impl Backend) {
    commit(store, "t", vec![put("a/x", b"{\"n\":1}"), put("b/x", b"1"), in_table(Table::History, put("b/1", b"1"))])
        .await
        .unwrap();
    commit(store, "u", vec![put("a/x", b"1")]).await.unwrap();
    let mut expiring = put("end/x", b"1");
    expiring.change = Change::Put { value: b"1".as_slice().into(), schema: 1, expires: Some(LATER) };
    commit(store, "u", vec![expiring, put("stays/x", b"1")]).await.unwrap();
}

/// The operations during which the process stops; `None` is a sweep.
fn operations() -> Vec<(&'static str, Option<Batch>)> {
    let batch = |writes| Some(Batch { writes, stamp: 5, ..Batch::new(thread("t")) });
    vec![
        ("a new file", batch(vec![put("new/x", b"1")])),
        ("one replaced", batch(vec![put("a/x", b"2"), in_table(Table::Versions, put("a/2", b"2"))])),
        ("one removed", batch(vec![removal("a/x")])),
        ("several", batch(vec![put("a/x", b"2"), put("new/x", b"2"), in_table(Table::History, put("b/2", b"2"))])),
        ("some added and some removed", batch(vec![removal("a/x"), put("new/x", b"2"), put("b/x", b"2")])),
        ("one replaced, kill-safe", batch(vec![kill_safe(put("a/x", b"2"))])),
        ("several, kill-safe", batch(vec![kill_safe(put("a/x", b"2")), kill_safe(put("b/x", b"2"))])),
        ("a sweep", None),
    ]
}

async fn run_operation(store: &Files, operation: Option<Batch>) -> Result<(), StoreError> {
    match operation {
        Some(batch) => store.commit(batch, NOW).await.map(drop),
        None => store.sweep(10, LATER).await.map(drop),
    }
}

/// Runs an operation on a filled store and stops it at this step. Returns the disk, whether it was stopped, and the result.
async fn run_stopped(
    folder: &StoreFolder,
    compression: bool,
    operation: Option<Batch>,
    stop: Option<(usize, Completion)>,
) -> (SimulatedDisk, bool, Result<(), StoreError>) {
    let disk = SimulatedDisk::default();
    // Filled with the other compression, so that rewritten files also change their names.
    fill(&folder.open(&disk, !compression)).await;
    let store = folder.open(&disk, compression);
    if let Some((step, completion)) = stop {
        disk.stop_at(step, completion);
    }
    let result = run_operation(&store, operation).await;
    drop(store);
    let stopped = disk.restart();
    (disk, stopped, result)
}

#[tokio::test]
async fn stopped_at_any_step_a_batch_is_whole_or_not_at_all() {
    let folder = StoreFolder::new();
    let mut random = Rng::with_seed(3);
    for (number, (name, operation)) in operations().into_iter().enumerate() {
        // Alternate between both, unless this is a soak run.
        for compression in
            [false, true].into_iter().filter(|compression| is_soak() || *compression == (number % 2 == 0))
        {
            let memory = Memory::new();
            fill(&memory).await;
            let before = read_contents(&memory).await;
            let (disk, ..) = run_stopped(&folder, compression, operation.clone(), None).await;
            let after = read_contents(&folder.open(&disk, compression)).await;
            assert_ne!(before, after, "{name}");
            let mut steps = 0;
            for (step, completion) in (1..).flat_map(|step| COMPLETIONS.map(|completion| (step, completion))) {
                let (disk, was_stopped, result) =
                    run_stopped(&folder, compression, operation.clone(), Some((step, completion))).await;
                if !was_stopped {
                    assert_eq!(result, Ok(()), "{name}");
                    break;
                }
                steps = step;
                let check = |found: &Contents, case: &str| {
                    let done = *found == after;
                    assert!(done || *found == before, "{name}, {case} at step {step} ({completion:?}): {found:?}");
                    let may_be_lost = case != "killed" && matches!(name, "one replaced, kill-safe" | "a sweep");
                    let allowed = done || may_be_lost || result.is_err();
                    assert!(allowed, "{name}, {case} at step {step} ({completion:?}): an acknowledged write is lost");
                };
                // A kill-safe write may be lost in a power failure, but must not affect anything else.
                let cut = disk.cut_power(&mut random);
                check(&read_contents(&folder.open(&cut, compression)).await, "without power");
                // Recovery may be stopped as well.
                let stops = soak(0..1, 1..15).map(|stop| if stop == 0 { random.usize(4..15) } else { stop });
                for stop in stops.collect::<Vec<_>>() {
                    let cut = disk.cut_power(&mut random);
                    cut.stop_at(stop, COMPLETIONS[random.usize(0..3)]);
                    let _ = folder.try_open(&cut, compression).map(drop);
                    cut.restart();
                    let cut = cut.cut_power(&mut random);
                    check(&read_contents(&folder.open(&cut, compression)).await, "recovered twice");
                }
                check(&read_contents(&folder.open(&disk, compression)).await, "killed");
                assert!(disk.files(".damaged").is_empty());
            }
            assert!(steps >= 2, "{name}: {steps}");
        }
    }
}

/// A random batch on one of two threads, which adds and removes contexts.
fn random_batch(random: &mut Rng, number: u64, durability: Option<Durability>) -> Batch {
    let durability = durability.unwrap_or(if random.bool() { Durability::KillSafe } else { Durability::PowerSafe });
    let mut writes = Vec::new();
    for id in ["a/x", "a/y", "b/x", "c/x", "d"] {
        let table = if id == "a/y" { Table::History } else { Table::State };
        let write = match random.u8(0..6) {
            0..3 => put(id, number.to_string().as_bytes()),
            3 => removal(id),
            _ => continue,
        };
        writes.push(Write { table, durability, ..write });
    }
    Batch { writes, stamp: number, ..Batch::new(thread(["t", "u"][random.usize(0..2)])) }
}

/// Repeatedly commits batches until the process stops or the power fails, and checks the contents after each restart.
async fn run_lives(folder: &StoreFolder, seed: u64, durability: Option<Durability>) {
    let mut random = Rng::with_seed(seed);
    let (mut disk, mut done, mut number) = (SimulatedDisk::default(), Vec::<Batch>::new(), 0);
    for run in 0..6 {
        let store = folder.open(&disk, random.bool());
        disk.stop_at(random.usize(1..80), COMPLETIONS[random.usize(0..3)]);
        let last = loop {
            number += 1;
            let next = random_batch(&mut random, number, durability);
            match store.commit(next.clone(), NOW).await {
                Ok(_) => done.push(next),
                Err(_) => break next,
            }
        };
        drop(store);
        disk.restart();
        if durability == Some(Durability::PowerSafe) && random.bool() {
            disk = disk.cut_power(&mut random);
        }
        let found = read_contents(&folder.open(&disk, random.bool())).await;
        let memory = Memory::new();
        for batch in &done {
            memory.commit(batch.clone(), NOW).await.unwrap();
        }
        if found != read_contents(&memory).await {
            memory.commit(last.clone(), NOW).await.unwrap();
            assert_eq!(found, read_contents(&memory).await, "seed {seed}, run {run}");
            done.push(last);
        }
        assert!(disk.files(".damaged").is_empty(), "seed {seed}, run {run}");
    }
}

#[tokio::test]
async fn stopped_anywhere_in_random_programs_all_that_was_acknowledged_is_there() {
    let folder = StoreFolder::new();
    let programs = soak(60, 2_000);
    let seed = fastrand::u64(..);
    for program in 0..programs {
        let durability = if program % 2 == 0 { Some(Durability::PowerSafe) } else { None };
        run_lives(&folder, seed.wrapping_add(program), durability).await;
    }
}

#[tokio::test]
async fn a_note_that_comes_back_takes_nothing_that_was_written_in_a_later_life() {
    let (folder, mut random) = (StoreFolder::new(), Rng::with_seed(5));
    for round in 0..40 {
        let disk = SimulatedDisk::default();
        let store = folder.open(&disk, false);
        for id in ["a/x", "b/x"] {
            commit(&store, "t", vec![put(id, b"1")]).await.unwrap();
        }
        commit(&store, "t", vec![removal("a/x"), removal("b/x")]).await.unwrap();
        drop(store);
        // No file is left that contains the last write sequence number.
        let store = folder.open(&disk, false);
        commit(&store, "t", vec![put("b/x", b"2")]).await.unwrap();
        let cut = disk.cut_power(&mut random);
        drop(store);
        let found = get(&folder.open(&cut, false), "t", "b/x").await.unwrap();
        assert!(found.is_some(), "round {round}: an acknowledged write is lost");
    }
}

/// Writes the next number of a writer, in two contexts of one batch or in a single context.
async fn count(store: &Files, writer: usize, together: bool) -> Result<u64, StoreError> {
    let partition = format!("writer-{writer}");
    let next = get(store, &partition, "one/n").await?.map_or(0, |row| row.version.number) + 1;
    let writes = if together {
        vec![put("one/n", next.to_string().as_bytes()), put("two/n", next.to_string().as_bytes())]
    } else {
        let alone = get(store, &partition, "alone/n").await?.map_or(0, |row| row.version.number) + 1;
        return commit(store, &partition, vec![put("alone/n", b"1")]).await.map(|_| alone);
    };
    commit(store, &partition, writes).await.map(|_| next)
}

#[tokio::test]
async fn a_sync_that_failed_is_never_taken_for_one_that_worked() {
    let folder = StoreFolder::new();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let (disk, mut acknowledged) = (SimulatedDisk::default(), BTreeMap::new());
    let store = folder.open(&disk, false);
    let elsewhere = StoreFolder::new();
    let (mut unknown, mut unavailable) = (0, 0);
    for _ in 0..soak(150, 3_000) {
        disk.fail_syncs(random.usize(0..7), random.usize(1..6));
        for _ in 0..4 {
            let (writer, together) = (random.usize(0..3), random.bool());
            match count(&store, writer, together).await {
                Ok(next) => drop(acknowledged.insert((writer, together), next)),
                Err(StoreError::Unknown(_)) => unknown += 1,
                Err(StoreError::Unavailable(_)) => unavailable += 1,
                Err(error) => panic!("{error}"),
            }
            let both = [
                get(&store, &format!("writer-{writer}"), "one/n").await,
                get(&store, &format!("writer-{writer}"), "two/n").await,
            ];
            let [one, two] = both.map(|row| row.unwrap().map(|row| row.value));
            assert_eq!(one, two, "reads continue and see no partial batch");
        }
        disk.fail_syncs(0, 0);
        acknowledged.insert((0, true), count(&store, 0, true).await.expect("the store recovers"));
        let cut = disk.cut_power(&mut random);
        let after = read_contents(&elsewhere.open(&cut.with_folder_moved(&folder.0, &elsewhere.0), false)).await;
        for ((writer, together), last) in &acknowledged {
            let version = |id: &str| {
                after
                    .get(&(thread(&format!("writer-{writer}")).to_string(), Table::State, id.to_owned()))
                    .map_or(0, |(_, v)| *v)
            };
            if *together {
                assert_eq!(version("one/n"), version("two/n"), "no partial batch");
                assert!(version("one/n") >= *last, "writer {writer}: {last} was acknowledged");
            } else {
                assert!(version("alone/n") >= *last, "writer {writer}: {last} was acknowledged");
            }
        }
    }
    assert!(unknown > 10 && unavailable > 10, "{unknown} {unavailable}");
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_wrote_nothing_and_ends_with_the_lack() {
    let (folder, disk) = (StoreFolder::new(), SimulatedDisk::default());
    let store = folder.open(&disk, false);
    let several = || vec![put("a/x", &[1; 500]), put("b/x", &[1; 500])];
    commit(&store, "t", several()).await.unwrap();
    for version in 2..5 {
        disk.set_full(true);
        for _ in 0..3 {
            for writes in [several(), vec![put("a/x", b"1")], vec![put("c/x", b"1")]] {
                let refused = commit(&store, "t", writes).await;
                assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
            }
            assert_eq!(get(&store, "t", "a/x").await.unwrap().unwrap().version.number, version - 1, "reads continue");
            assert_eq!(get(&store, "t", "c/x").await, Ok(None));
        }
        disk.set_full(false);
        assert_eq!(commit(&store, "t", several()).await, Ok(vec![version, version]));
    }
    assert_eq!(disk.files("/new/1").len(), 0, "no staged file is left");
}
