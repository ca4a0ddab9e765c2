//! The state manager returns the same results on memory, files and SQLite: random programs run on all of them.
//!
//! With `TOOLHUB_SOAK` set thirty times as many programs are run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use toolhub::{
    BusinessStateConfig, ContextFilter, ContextId, Files, HistoryEvent, ManagerType, Sqlite, StateError, StateManager,
    StateManagerConfig,
    backend::{Backend, Memory},
    clock::{Clock, Timestamp},
    files,
    prelude::*,
    sqlite,
};
use toolhub_testkit::{TempFolder, soak};

/// The same rows in every store.
struct Stores {
    folder: TempFolder,
    memory: Arc<Memory>,
    /// Files and SQLite; reopened from time to time.
    on_disk: Vec<Arc<dyn Backend>>,
}

impl Stores {
    fn new() -> Self {
        let mut stores = Self { folder: TempFolder::in_memory(), memory: Arc::new(Memory::new()), on_disk: Vec::new() };
        stores.open(false);
        stores
    }

    fn open(&mut self, compression: bool) {
        self.on_disk.clear();
        let files = Files::open(self.folder.join("files"), files::Options { compression, backups: None }).unwrap();
        let sqlite = Sqlite::open(self.folder.join("store.db"), sqlite::Options::default()).unwrap();
        self.on_disk = vec![Arc::new(files), Arc::new(sqlite)];
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
    let show = |result: Result<u64, StateError>| format!("{result:?}");
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
            let mut entry = state.get_state(tenant, &context, kind).await;
            // A tag identifies a write in one store.
            if let Ok(Some(entry)) = &mut entry {
                entry.tag = None;
            }
            all.push(format!("{entry:?}"));
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
        // The file store holds states only, so the hub's own rows are elsewhere.
        let manager =
            StateManagerConfig { manager_type: Some(ManagerType::Persistent), ..StateManagerConfig::default() };
        let hub = ToolHub::builder().clock(clock.clone()).business_state(config).state_manager(manager);
        let hub = hub.state_store_factory(move |_, _| Ok::<_, String>(store.clone())).build().await.unwrap();
        let state = hub.state();
        managers.push((hub, state));
    }
    managers
}

#[tokio::test]
async fn what_tools_remember_is_the_same_in_memory_files_and_sqlite() {
    let seed = fastrand::u64(..);
    for program in 0..soak(10, 300) {
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
