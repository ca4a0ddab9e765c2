//! Loads and updates per second, measured interleaved with bare SQLite, so that disturbances of the machine affect both equally.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use toolhub::{
    Sqlite,
    backend::{Backend, Batch, Change, Durability, Expect, Partition, RowKey, Table, Write},
    clock::Timestamp,
    ids::{Tenant, ThreadId},
    sqlite::Options,
};

use crate::{baseline::BaselineStore, verdict};

pub(crate) const TASKS: usize = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(400);
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) fn partition(thread: &str) -> Partition {
    Partition::for_thread(Tenant::default(), ThreadId::new(thread).unwrap())
}

pub(crate) fn key(partition: Partition) -> RowKey {
    RowKey { partition, table: Table::State, id: "cart/business".into() }
}

pub(crate) fn put_batch(partition: Partition, value: Arc<[u8]>, expect: Expect, durability: Durability) -> Batch {
    let change = Change::Put { value, schema: 1, expires: None };
    Batch::new(partition).with(Write { table: Table::State, id: "cart/business".into(), expect, change, durability })
}

async fn update(store: &Sqlite, partition: Partition, durability: Durability) {
    let keys = [key(partition)];
    let row = store.load(&keys, NOW).await.unwrap().pop().flatten().unwrap();
    let [RowKey { partition, .. }] = keys;
    let batch = put_batch(partition, row.value, Expect::Same(row.version), durability);
    store.commit(batch, NOW).await.unwrap();
}

/// Total operations per second of one task per key.
pub(crate) async fn ops_per_second<T: Clone + Send + 'static, F: Future<Output = ()> + Send + 'static>(
    keys: &[T],
    operation: impl Fn(T) -> F + Clone + Send + Sync + 'static,
) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = keys
        .iter()
        .map(|key| {
            let (key, operation) = (key.clone(), operation.clone());
            tokio::spawn(async move {
                let mut operations = 0_u32;
                while start.elapsed() < ROUND {
                    for _ in 0..8 {
                        operation(key.clone()).await;
                        operations += 1;
                    }
                    tokio::task::yield_now().await;
                }
                operations
            })
        })
        .collect();
    let mut operations = 0;
    for task in tasks {
        operations += task.await.unwrap();
    }
    f64::from(operations) / start.elapsed().as_secs_f64()
}

pub(crate) fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// How many page writes with fsync the disk completes per second.
fn syncs_per_second(folder: &Path) -> f64 {
    let mut file = File::create(folder.join("sync")).unwrap();
    let start = Instant::now();
    let mut syncs = 0;
    while start.elapsed() < ROUND {
        file.write_all(&[1; 4096]).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
    }
    f64::from(syncs) / start.elapsed().as_secs_f64()
}

pub(crate) async fn measure_all(folder: &Path, peer_file: Option<&str>) {
    let value = vec![b'x'; 1024];
    let threads: Vec<String> = (0..TASKS).map(|n| format!("thread-{n:04}")).collect();
    // Keys are prepared in advance for both: strings for bare SQLite, partitions for the store, as in a hub.
    let partitions: Vec<Partition> = threads.iter().map(|thread| partition(thread)).collect();
    let store = Arc::new(Sqlite::open(folder.join("ours.db"), Options::default()).unwrap());
    for partition in &partitions {
        let first = put_batch(partition.clone(), value.as_slice().into(), Expect::Any, Durability::KillSafe);
        store.commit(first, NOW).await.unwrap();
    }
    let bare = |name: &str, full| Arc::new(BaselineStore::open(&folder.join(name), &threads, &value, full));
    let (normal, full) = (bare("normal.db", false), bare("full.db", true));
    let (mut rates, mut disk) = (vec![(Vec::new(), Vec::new()); 3], Vec::new());
    // The first round is a warm-up.
    for round in 0..=ROUNDS {
        let mut measured = Vec::new();
        for (durability, bare) in [(Durability::PowerSafe, &full), (Durability::KillSafe, &normal)] {
            let (store, bare) = (store.clone(), bare.clone());
            let bare_rate = ops_per_second(&threads, move |thread| {
                let bare = bare.clone();
                async move { bare.update(&thread).await }
            })
            .await;
            let store_rate = ops_per_second(&partitions, move |partition| {
                let store = store.clone();
                async move { update(&store, partition, durability).await }
            })
            .await;
            measured.push((store_rate, bare_rate));
        }
        let (reading, bare) = (store.clone(), normal.clone());
        let bare_rate = ops_per_second(&threads, move |thread| {
            let bare = bare.clone();
            async move { drop(std::hint::black_box(bare.load(&thread))) }
        })
        .await;
        let store_rate = ops_per_second(&partitions, move |partition| {
            let store = reading.clone();
            async move { drop(std::hint::black_box(store.load(&[key(partition)], NOW).await.unwrap())) }
        })
        .await;
        measured.push((store_rate, bare_rate));
        disk.push(syncs_per_second(folder));
        for (rates, (store_rate, bare_rate)) in rates.iter_mut().zip(measured).filter(|_| round > 0) {
            rates.0.push(store_rate);
            rates.1.push(bare_rate);
        }
    }
    println!("\n{:<44} {:>10} {:>10} {:>7}  target", "per second, 64 tasks, 1 KiB", "store", "bare", "ratio");
    let names = ["updates, power-safe", "updates, kill-safe", "loads"];
    let mut power_safe = 0.0;
    for ((name, min), (store_rates, bare_rates)) in names.into_iter().zip([0.9, 0.8, 0.7]).zip(rates) {
        let ratios = store_rates.iter().zip(&bare_rates).map(|(store, bare)| store / bare).collect();
        let (store_rate, bare_rate, ratio) = (median(store_rates), median(bare_rates), median(ratios));
        println!("{name:<44} {store_rate:>10.0} {bare_rate:>10.0} {ratio:>7.2}  ≥ {min}  {}", verdict(ratio >= min));
        if name.ends_with("power-safe") {
            power_safe = store_rate;
        }
    }
    let disk = median(disk);
    let ratio = power_safe / disk;
    println!(
        "{:<44} {power_safe:>10.0} {disk:>10.0} {ratio:>7.2}  ≥ 20  {}",
        "power-safe over syncs of the disk",
        verdict(ratio >= 20.0)
    );
    let Some(file) = peer_file else { return };
    let line: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let (name, peer_rate) = (line["name"].as_str().unwrap(), line["per_second"].as_f64().unwrap());
    let (name, ratio) = (format!("power-safe over {name}, one task"), power_safe / peer_rate);
    println!("{name:<44} {power_safe:>10.0} {peer_rate:>10.0} {ratio:>7.2}  ≥ 20  {}", verdict(ratio >= 20.0));
}
