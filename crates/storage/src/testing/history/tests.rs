//! Runs random programs against a store with a planted fault: the checker finds each of them, and none in a correct store.

mod faulty_store;

use std::{collections::BTreeSet, sync::Arc};

use fastrand::Rng;
use futures_util::StreamExt;
use smol_str::SmolStr;

use super::{BrokenPromise, History, violations};
use crate::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, RowKey, RowVersion, Scan, Scope, Table, Write,
};
use faulty_store::{Fault, FaultyStore};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const CLIENTS: usize = 3;
const STEPS: usize = 60;
/// A fault strikes rarely; it must be found by one of these programs.
const SEEDS: u64 = 20;
/// Only this row is ever removed: the others keep their version numbers.
const REMOVABLE: &str = "d";

fn partition() -> Partition {
    Partition::for_thread(Tenant::default(), ThreadId::new("t").expect("a valid name"))
}

fn key(id: &str) -> RowKey {
    RowKey { partition: partition(), table: Table::State, id: id.into() }
}

fn ids(random: &mut Rng) -> BTreeSet<&'static str> {
    (0..random.usize(1..4)).map(|_| ["a", "b", "c", REMOVABLE][random.usize(0..4)]).collect()
}

/// Loads, scans, and commits with and without preconditions. Every value is written once.
async fn run_client(store: Arc<dyn Backend>, mut random: Rng) {
    let mut known: Vec<(SmolStr, RowVersion)> = Vec::new();
    for _ in 0..STEPS {
        let read = match random.u8(0..10) {
            0..3 => {
                let keys: Vec<RowKey> = ids(&mut random).into_iter().map(key).collect();
                let rows = store.load(&keys, NOW).await.unwrap_or_default();
                keys.into_iter().zip(rows).filter_map(|(key, row)| Some((key.id, row?.version))).collect()
            }
            3 => {
                let scan = Scan::new(Table::State, Scope::Partition(partition())).limit(random.usize(1..5));
                let page = store.scan(scan, NOW).await.unwrap_or_default();
                page.rows.into_iter().map(|(key, row)| (key.id, row.version)).collect()
            }
            _ => {
                let mut batch = Batch::new(partition());
                batch.stamp = random.u64(..);
                for id in ids(&mut random) {
                    let known = known.iter().find(|(known, _)| known == id).map(|(_, version)| *version);
                    let expect = match random.u8(0..5) {
                        0..3 => known.map_or(Expect::Absent, Expect::Same),
                        _ => Expect::Any,
                    };
                    let value = format!("{}", random.u64(..));
                    let change = if id == REMOVABLE && random.u8(0..3) == 0 {
                        Change::Remove
                    } else {
                        Change::Put { value: value.as_bytes().into(), schema: 1, expires: None }
                    };
                    let (table, durability) = (Table::State, Durability::KillSafe);
                    batch = batch.with(Write { table, id: id.into(), expect, change, durability });
                }
                let _ = store.commit(batch, NOW).await;
                continue;
            }
        };
        known = read;
    }
}

/// The promises that the checker finds broken by one program.
fn broken_by(fault: Option<Fault>, seed: u64) -> Vec<super::Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
    runtime.block_on(async {
        let (history, mut random) = (History::new(), Rng::with_seed(seed));
        let store = Arc::new(FaultyStore::new(fault, random.fork()));
        let mut watch = history.record(store.clone()).watch(Table::State);
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| tokio::spawn(run_client(history.record(store.clone()), random.fork()))).collect();
        for client in clients {
            client.await.expect("a client does not panic");
        }
        store.close();
        while watch.next().await.is_some() {}
        violations(&history.operations())
    })
}

#[test]
fn a_correct_store_breaks_no_promise() {
    for seed in 0..100 {
        assert_eq!(broken_by(None, seed), [], "seed {seed}");
    }
}

#[test]
fn each_of_twelve_planted_faults_is_found() {
    for (fault, promises) in Fault::ALL {
        let found: BTreeSet<BrokenPromise> =
            (0..SEEDS).flat_map(|seed| broken_by(Some(fault), seed)).map(|violation| violation.promise).collect();
        assert!(promises.iter().all(|promise| found.contains(promise)), "{fault:?}: {found:?}");
    }
}
