//! All stores return the same results: random programs run on memory, files, SQLite, and Redis with one bucket and with many.
//!
//! With `TOOLHUB_SOAK` set thirty times as many programs are run.

use std::{fmt::Debug, sync::Arc, time::Duration};

use fastrand::Rng;
use serde_json::json;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Memory, Partition, PartitionKind, RowKey, RowVersion, Scan,
        Scope, Table, Terms, Write,
    },
    clock::Timestamp,
};
use toolhub_store::{Files, files};
use toolhub_testkit::{TempFolder, soak};
use toolhub_types::ids::{Tenant, ThreadId};

use crate::{
    fixtures::{NOW, open},
    simulated_disk::SimulatedDisk,
};

/// The tables that all stores have.
const STATE_TABLES: &[Table] = &[Table::State, Table::Versions, Table::History];
/// Tables that memory and SQLite index by id over all partitions, and one that is not.
const INDEXED_TABLES: &[Table] = &[Table::Calls, Table::Threads, Table::State];

fn programs(count: u64) -> u64 {
    soak(count, 30 * count)
}

/// The same rows in every store of this workspace that has these tables.
struct Stores {
    tables: &'static [Table],
    folder: TempFolder,
    disk: SimulatedDisk,
    memory: Arc<Memory>,
    /// SQLite, for the tables of states files, and if there is a server Redis; reopened from time to time.
    persistent: Vec<Arc<dyn Backend>>,
    #[cfg(feature = "redis")]
    redis: Option<Arc<toolhub_testkit::RedisServer>>,
}

impl Stores {
    fn new(tables: &'static [Table]) -> Self {
        let (folder, disk) = (TempFolder::in_memory(), SimulatedDisk::default());
        let mut stores = Self {
            tables,
            folder,
            disk,
            memory: Arc::new(Memory::new()),
            persistent: Vec::new(),
            #[cfg(feature = "redis")]
            redis: None,
        };
        stores.open(false);
        stores
    }

    fn open(&mut self, compression: bool) {
        self.persistent.clear();
        self.persistent.push(Arc::new(open(&self.folder.join("store.db"))));
        if self.tables == STATE_TABLES {
            let options = files::Options { compression, backups: None };
            let files = Files::open_on(self.folder.join("files"), options, Arc::new(self.disk.clone())).unwrap();
            self.persistent.push(Arc::new(files));
        }
        #[cfg(feature = "redis")]
        if let Some(server) = &self.redis {
            use crate::redis::fixtures;
            for buckets in [1, 64] {
                // The name of the folder is different for each set of stores.
                let prefix = format!("{}-{buckets}", self.folder.text());
                self.persistent.push(fixtures::open(fixtures::options(server).prefix(prefix).buckets(buckets)));
            }
        }
    }

    #[cfg(feature = "redis")]
    fn with_redis(tables: &'static [Table], server: &Arc<toolhub_testkit::RedisServer>) -> Self {
        let mut stores = Self { redis: Some(server.clone()), ..Self::new(tables) };
        stores.open(false);
        stores
    }

    /// Sends a request to all stores, asserts that the results are equal, and returns the result.
    async fn request_all<T: PartialEq + Debug>(
        &self,
        place: (u64, usize),
        description: &dyn Debug,
        request: impl AsyncFn(&dyn Backend) -> T,
    ) -> T {
        let expected = request(&*self.memory).await;
        for store in &self.persistent {
            assert_eq!(
                request(&**store).await,
                expected,
                "{} and memory differ at program and step {place:?}: {description:?}",
                store.name()
            );
        }
        expected
    }
}

fn partition(random: &mut Rng) -> Partition {
    let (tenant, thread) = (Tenant::new(["main", "m"][random.usize(0..2)]).unwrap(), ["t", "t2"][random.usize(0..2)]);
    match random.u8(0..3) {
        0 => Partition { tenant, kind: PartitionKind::State("cart".into()) },
        _ => Partition::for_thread(tenant, ThreadId::new(thread).unwrap()),
    }
}

fn id(random: &mut Rng) -> &'static str {
    ["cart/business", "cart/cache", "cart-2/business", "cart/0001", "cart", "~/session", "z/\u{10ffff}"]
        [random.usize(0..7)]
}

fn table(random: &mut Rng, tables: &[Table]) -> Table {
    tables[random.usize(0..tables.len())]
}

fn batch(random: &mut Rng, tables: &[Table], known_versions: &[RowVersion], now: Timestamp) -> Batch {
    let mut batch = Batch { stamp: random.u64(..), ..Batch::new(partition(random)) };
    for _ in 0..random.usize(0..5) {
        let expires = (random.u8(0..3) == 0).then(|| now + Duration::from_millis(random.u64(0..3_000)));
        let value: Arc<[u8]> = match random.u8(0..4) {
            0 => vec![random.u8(..); random.usize(0..9)].into(),
            1 => b"{ \"a\": 1 }".as_slice().into(),
            _ => json!({"n": random.u32(..), "list": [1.5, null, {}]}).to_string().into_bytes().into(),
        };
        let schema = random.u32(0..3);
        let change = match random.u8(0..8) {
            0 | 1 => Change::Remove,
            2 => Change::Touch { expires },
            3 => Change::Keep,
            4 => Change::Restore { value, schema, expires, version: random.u64(1..9) },
            _ => Change::Put { value, schema, expires },
        };
        let expect = match random.u8(0..6) {
            0 => Expect::Absent,
            1 => Expect::Same(known_versions[random.usize(0..known_versions.len())]),
            _ => Expect::Any,
        };
        let durability = if random.bool() { Durability::KillSafe } else { Durability::PowerSafe };
        let (table, id): (Table, SmolStr) = (table(random, tables), id(random).into());
        batch.terms.insert((table, id.clone()), terms(random));
        batch.writes.push(Write { table, id, expect, change, durability });
    }
    batch
}

fn terms(random: &mut Rng) -> Terms {
    Terms::new(["x", "y", "xy"].into_iter().filter(|_| random.bool()))
}

fn scan(random: &mut Rng, tables: &[Table]) -> Scan {
    let scope = match random.u8(0..3) {
        0 => Scope::All,
        1 => Scope::Tenant(Tenant::new("m").unwrap()),
        _ => Scope::Partition(partition(random)),
    };
    let table = table(random, tables);
    let after = random.bool().then(|| {
        let partition = if let Scope::Partition(only) = &scope { only.clone() } else { partition(random) };
        Cursor(RowKey { partition, table, id: id(random).into() })
    });
    let prefix = ["", "cart", "cart/", "cart/b", "z"][random.usize(0..5)];
    let terms = if random.bool() { Terms::NONE } else { terms(random) };
    let terms = terms.iter().map(SmolStr::new).collect();
    Scan { descending: random.bool(), after, terms, ..Scan::new(table, scope).prefix(prefix).limit(random.usize(1..6)) }
}

async fn compare(stores: &mut Stores, seed: u64) {
    let (mut random, mut now, tables) = (Rng::with_seed(seed), NOW, stores.tables);
    let mut known_versions = vec![RowVersion { number: 1, stamp: 0 }];
    for step in 0..24 {
        let place = (seed, step);
        match random.u8(0..12) {
            0..6 => {
                let batch = batch(&mut random, tables, &known_versions, now);
                let _ = stores.request_all(place, &batch, async |store| store.commit(batch.clone(), now).await).await;
            }
            6 | 7 => {
                let key = |random: &mut Rng| RowKey {
                    partition: partition(random),
                    table: table(random, tables),
                    id: id(random).into(),
                };
                let keys: Vec<RowKey> = (0..random.usize(1..5)).map(|_| key(&mut random)).collect();
                let rows = stores.request_all(place, &keys, async |store| store.load(&keys, now).await).await;
                known_versions.extend(rows.unwrap().into_iter().flatten().map(|row| row.version));
            }
            8 | 9 => {
                let scan = scan(&mut random, tables);
                let read =
                    async |store: &dyn Backend| store.scan(scan.clone(), now).await.map(|page| (page.rows, page.next));
                let _ = stores.request_all(place, &scan, read).await;
            }
            10 => {
                // Which rows a sweep removes first is the store's choice; how many, and that all are removed in the end, is not.
                let limit = random.usize(1..4);
                stores.request_all(place, &"a sweep", async |store| store.sweep(limit, now).await).await.unwrap();
                let rest = async |store: &dyn Backend| while store.sweep(100, now).await == Ok(100) {};
                stores.request_all(place, &"a sweep", rest).await;
            }
            _ => {
                now = now + Duration::from_millis(random.u64(1..2_000));
                if random.u8(0..10) == 0 {
                    stores.open(random.bool());
                }
            }
        }
    }
}

async fn compare_programs(tables: &'static [Table], count: u64) {
    compare_programs_on(count, || Stores::new(tables)).await;
}

async fn compare_programs_on(count: u64, make: impl Fn() -> Stores) {
    let seed = fastrand::u64(..);
    let mut stores = make();
    for program in 0..programs(count) {
        if program > 0 && program % 25 == 0 {
            stores = make();
        }
        compare(&mut stores, seed.wrapping_add(program)).await;
    }
}

#[tokio::test]
async fn memory_files_and_sqlite_give_the_same_answers_to_every_program() {
    compare_programs(STATE_TABLES, 500).await;
}

#[tokio::test]
async fn memory_and_sqlite_find_the_same_rows_by_id_in_all_partitions() {
    compare_programs(INDEXED_TABLES, 500).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn memory_sqlite_and_redis_give_the_same_answers_to_every_program() {
    let server = Arc::new(toolhub_testkit::RedisServer::start());
    compare_programs_on(100, || Stores::with_redis(STATE_TABLES, &server)).await;
    compare_programs_on(100, || Stores::with_redis(INDEXED_TABLES, &server)).await;
}
