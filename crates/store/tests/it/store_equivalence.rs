//! All stores return the same results: random programs run on memory, files and SQLite.
//!
//! With `TOOLHUB_SOAK` set thirty times as many programs are run.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};
use toolhub_core::{ContextFilter, ContextId, HistoryEvent, StateKind, StateManager, ToolHub};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Memory, Partition, PartitionKind, RowKey, RowVersion, Scan,
        Scope, Table, Write,
    },
    clock::{Clock, Timestamp},
};
use toolhub_store::{Files, files};
use toolhub_testkit::{TempFolder, soak};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    state_config::BusinessStateConfig,
};

use crate::{
    fixtures::{NOW, open},
    simulated_disk::SimulatedDisk,
};

const TABLES: [Table; 3] = [Table::State, Table::Versions, Table::History];

fn programs(count: u64) -> u64 {
    soak(count, 30 * count)
}

/// The same rows in every store of this workspace.
struct Stores {
    folder: TempFolder,
    disk: SimulatedDisk,
    memory: Arc<Memory>,
    /// Files and SQLite; reopened from time to time.
    on_disk: Vec<Arc<dyn Backend>>,
}

impl Stores {
    fn new() -> Self {
        let (folder, disk) = (TempFolder::in_memory(), SimulatedDisk::default());
        let mut stores = Self { folder, disk, memory: Arc::new(Memory::new()), on_disk: Vec::new() };
        stores.open(false);
        stores
    }

    fn open(&mut self, compression: bool) {
        self.on_disk.clear();
        let options = files::Options { compression, backups: None };
        let files = Files::open_on(self.folder.join("files"), options, Arc::new(self.disk.clone())).unwrap();
        self.on_disk = vec![Arc::new(files), Arc::new(open(&self.folder.join("store.db")))];
    }

    /// Sends a request to all stores, asserts that the results are equal, and returns the result.
    async fn request_all<T: PartialEq + Debug>(
        &self,
        place: (u64, usize),
        description: &dyn Debug,
        request: impl AsyncFn(&dyn Backend) -> T,
    ) -> T {
        let expected = request(&*self.memory).await;
        for (store, name) in self.on_disk.iter().zip(["files", "SQLite"]) {
            assert_eq!(
                request(&**store).await,
                expected,
                "{name} and memory differ at program and step {place:?}: {description:?}"
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

fn batch(random: &mut Rng, known_versions: &[RowVersion], now: Timestamp) -> Batch {
    let mut batch = Batch { stamp: random.u64(..), ..Batch::new(partition(random)) };
    batch.fence = (random.u8(0..6) == 0).then(|| random.u64(1..4));
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
        let (table, id) = (TABLES[random.usize(0..3)], id(random).into());
        batch.writes.push(Write { table, id, expect, change, durability });
    }
    batch
}

fn scan(random: &mut Rng) -> Scan {
    let scope = match random.u8(0..3) {
        0 => Scope::All,
        1 => Scope::Tenant(Tenant::new("m").unwrap()),
        _ => Scope::Partition(partition(random)),
    };
    let table = TABLES[random.usize(0..3)];
    let after = random.bool().then(|| {
        let partition = if let Scope::Partition(only) = &scope { only.clone() } else { partition(random) };
        Cursor(RowKey { partition, table, id: id(random).into() })
    });
    let prefix = ["", "cart", "cart/", "cart/b", "z"][random.usize(0..5)];
    Scan { descending: random.bool(), after, ..Scan::new(table, scope).prefix(prefix).limit(random.usize(1..6)) }
}

async fn compare(stores: &mut Stores, seed: u64) {
    let (mut random, mut now) = (Rng::with_seed(seed), NOW);
    let mut known_versions = vec![RowVersion { number: 1, stamp: 0 }];
    for step in 0..24 {
        let place = (seed, step);
        match random.u8(0..12) {
            0..6 => {
                let batch = batch(&mut random, &known_versions, now);
                let _ = stores.request_all(place, &batch, async |store| store.commit(batch.clone(), now).await).await;
            }
            6 | 7 => {
                let key = |random: &mut Rng| RowKey {
                    partition: partition(random),
                    table: TABLES[random.usize(0..3)],
                    id: id(random).into(),
                };
                let keys: Vec<RowKey> = (0..random.usize(1..5)).map(|_| key(&mut random)).collect();
                let rows = stores.request_all(place, &keys, async |store| store.load(&keys, now).await).await;
                known_versions.extend(rows.unwrap().into_iter().flatten().map(|row| row.version));
            }
            8 | 9 => {
                let scan = scan(&mut random);
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

#[tokio::test]
async fn memory_files_and_sqlite_give_the_same_answers_to_every_program() {
    let seed = fastrand::u64(..);
    let mut stores = Stores::new();
    for program in 0..programs(500) {
        if program % 25 == 0 {
            stores = Stores::new();
        }
        compare(&mut stores, seed.wrapping_add(program)).await;
    }
}

/// A clock that only the test moves.
#[derive(Clone)]
struct ManualClock(Arc<AtomicI64>);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

const KINDS: [StateKind; 3] = [StateKind::Business, StateKind::Cache, StateKind::Session];

fn context(number: usize) -> ContextId {
    ["t1/cart", "t1/cart-2", "t2/cart", "~/cart"][number].parse().unwrap()
}

/// Sends a random request to a manager; returns the result.
async fn random_request(state: &StateManager, tenant: &Tenant, random: &mut Rng) -> String {
    let (context, kind) = (context(random.usize(0..4)), KINDS[random.usize(0..3)]);
    let data = json!({ "n": random.u32(0..100), ["a", "b"][random.usize(0..2)]: [null, 1.25, "\u{1f375}"] });
    let ttl = random.bool().then(|| Duration::from_millis(random.u64(1..3_000)));
    let show = |result: Result<u64, toolhub_core::StateError>| format!("{result:?}");
    match random.u8(0..10) {
        0..3 => show(state.set_state(tenant, &context, kind, data, ttl).await),
        3 | 4 => show(state.update_state(tenant, &context, kind, data).await),
        5 => format!("{:?}", state.delete_state(tenant, &context, kind).await),
        6 => show(state.compare_and_set(tenant, &context, StateKind::Business, data, random.u64(0..5)).await),
        7 => show(state.rollback(tenant, &context, random.u64(1..6)).await),
        8 => format!("{:?}", state.cleanup_context(tenant, &context).await),
        _ => format!("{:?}", state.add_history(tenant, &context, HistoryEvent::Note { what: data }).await),
    }
}

/// Results of all read operations.
async fn read_everything(state: &StateManager, tenant: &Tenant) -> Vec<String> {
    let mut all = Vec::new();
    for context in (0..4).map(context) {
        for kind in KINDS {
            all.push(format!("{:?}", state.get_state(tenant, &context, kind).await));
        }
        all.push(format!("{:?}", state.versions(tenant, &context).await));
        all.push(format!("{:?}", state.history(tenant, &context, 99).await));
        all.push(format!("{:?}", state.get_context_info(tenant, &context).await));
    }
    let filter = ContextFilter { limit: 2, ..ContextFilter::default() };
    let mut cursor = None;
    loop {
        let page = state.list_contexts(tenant, &filter, cursor.as_deref()).await.unwrap();
        all.push(format!("{page:?}"));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    all.push(format!("{:?}", state.stats(tenant).await));
    for line in state.export(tenant, None).await.unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        // Entry ids are random, and the checksum covers them.
        line["checksum"] = Value::Null;
        line["history"].as_array_mut().into_iter().flatten().for_each(|entry| entry["id"] = Value::Null);
        all.push(line.to_string());
    }
    all
}

async fn managers(stores: &Stores, clock: &ManualClock) -> Vec<(ToolHub, StateManager)> {
    let all = [vec![stores.memory.clone() as Arc<dyn Backend>], stores.on_disk.clone()].concat();
    let mut managers = Vec::new();
    for store in all {
        let config =
            BusinessStateConfig { max_versions: 3, max_history_size: 5, max_state_size: 200, ..Default::default() };
        let hub =
            ToolHub::builder().shared_store(store).clock(clock.clone()).business_state(config).build().await.unwrap();
        let state = hub.state();
        managers.push((hub, state));
    }
    managers
}

#[tokio::test]
async fn what_tools_remember_is_the_same_in_memory_files_and_sqlite() {
    let seed = fastrand::u64(..);
    for program in 0..programs(10) {
        let seed = seed.wrapping_add(program);
        let (mut random, clock, tenant) =
            (Rng::with_seed(seed), ManualClock(Arc::new(AtomicI64::new(1_000_000))), Tenant::default());
        let mut stores = Stores::new();
        let mut hubs = managers(&stores, &clock).await;
        for step in 0..40 {
            // Advance the time: entries with equal timestamps by two hubs may be in either order.
            clock.0.fetch_add(random.i64(1..700), Ordering::Relaxed);
            if random.u8(0..12) == 0 {
                // A dropped hub may use its store for a short time.
                drop(hubs);
                reopen(&mut stores, random.bool()).await;
                hubs = managers(&stores, &clock).await;
            }
            let now = clock.now();
            let sweep = random.u8(0..4) == 0;
            let request_random = random.fork();
            let mut results = Vec::new();
            for (at, (_, state)) in hubs.iter().enumerate() {
                let result = random_request(state, &tenant, &mut request_random.clone()).await;
                if sweep {
                    let store: &dyn Backend = if at == 0 { &*stores.memory } else { &*stores.on_disk[at - 1] };
                    store.sweep(1_000, now).await.unwrap();
                }
                let all = if step % 4 == 3 { read_everything(state, &tenant).await } else { Vec::new() };
                results.push((result, all));
            }
            assert_eq!(results[1], results[0], "program {seed}, step {step}: files and memory differ");
            assert_eq!(results[2], results[0], "program {seed}, step {step}: SQLite and memory differ");
        }
    }
}

/// Reopens both stores once all other handles are dropped.
async fn reopen(stores: &mut Stores, compression: bool) {
    for store in &stores.on_disk {
        while Arc::strong_count(store) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    stores.open(compression);
}
