//! The memory store passes the contract suite, and reports a lagging watcher.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use futures_util::{FutureExt, StreamExt};
use toolhub::{
    WriteBehind,
    backend::{
        Backend, Batch, Change, Durability, Expect, Memory, Partition, RowKey, Scan, Scope, Table, WatchEvent, Write,
    },
    clock::Timestamp,
    ids::{Tenant, ThreadId},
    testing::contract,
};
use toolhub_testkit::soak;

use crate::{alloc::allocated_bytes, faulty_store::FaultyStore};

#[tokio::test]
async fn the_store_in_memory_keeps_every_promise() {
    contract::check(async || Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn a_store_that_takes_its_time_keeps_them_too() {
    contract::check(async || Arc::new(FaultyStore::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_one_partition_come_from_one_snapshot_whatever_else_the_load_names() {
    let store = Arc::new(Memory::new());
    let partition = |name: &str| Partition::for_thread(Tenant::default(), ThreadId::new(name).unwrap());
    let (now, writer) = (Timestamp::from_millis(1), store.clone());
    let writing = tokio::spawn(async move {
        for round in 0..20_000_u32 {
            let writes = ["a", "b"].map(|id| {
                let change = Change::Put { value: round.to_string().as_bytes().into(), schema: 1, expires: None };
                let (expect, durability) = (Expect::Any, Durability::KillSafe);
                Write { table: Table::State, id: id.into(), expect, change, durability }
            });
            let batch = Batch { writes: writes.into(), ..Batch::new(partition("t")) };
            writer.commit(batch, now).await.unwrap();
        }
    });
    let keys = [("t", "a"), ("u", "a"), ("v", "a"), ("t", "b")].map(|(name, id)| RowKey {
        partition: partition(name),
        table: Table::State,
        id: id.into(),
    });
    while !writing.is_finished() {
        let rows = store.load(&keys, now).await.unwrap();
        let [first, last] = [&rows[0], &rows[3]].map(|row| row.as_ref().map(|row| row.value.clone()));
        assert_eq!(first, last);
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn a_store_in_an_arc_says_of_itself_what_it_says_without() {
    let memory: Arc<dyn Backend> = Arc::new(Memory::new());
    let behind = WriteBehind::open(memory.clone(), toolhub::write_behind::Options::default()).await.unwrap();
    // Each as a backend of its own type, as a hub gets one.
    fn backend_flags(store: &impl Backend) -> (bool, bool) {
        (store.is_exclusive(), store.is_write_behind())
    }
    assert_eq!(backend_flags(&memory), (true, false));
    assert_eq!(backend_flags(&Arc::new(behind)), (true, true));
    assert_eq!(backend_flags(&Arc::new(FaultyStore::default())), (false, false));
}

#[tokio::test]
async fn in_an_arc_a_store_keeps_every_promise() {
    contract::check(async || Arc::new(Arc::new(Memory::new()) as Arc<dyn Backend>)).await;
}

#[tokio::test]
async fn random_programs_find_no_difference_to_a_naive_model() {
    let programs = soak(1_000, 20_000);
    // Other programs each time; the message of a failure names the seed.
    let seed = RandomState::new().build_hasher().finish();
    contract::check_against_model(async || Arc::new(Memory::new()), programs, seed).await;
}

#[tokio::test]
async fn a_watcher_that_fell_behind_is_told_so() {
    let store = Memory::new();
    let mut watcher = store.watch(Table::State);
    let partition = Partition::for_thread(Tenant::default(), ThreadId::new("t").unwrap());
    for n in 0..2_000 {
        let change = Change::Put { value: n.to_string().into_bytes().into(), schema: 1, expires: None };
        let id = "a".into();
        let write = Write { table: Table::State, id, expect: Expect::Any, change, durability: Durability::KillSafe };
        store.commit(Batch::new(partition.clone()).with(write), Timestamp::from_millis(1)).await.unwrap();
    }
    assert_eq!(watcher.next().now_or_never(), Some(Some(WatchEvent::Lagged)));
}

fn thread(number: usize) -> Partition {
    Partition::for_thread(Tenant::default(), ThreadId::new(format!("thread-{number:011}")).unwrap())
}

fn write(id: &str, change: Change) -> Write {
    Write { table: Table::State, id: id.into(), expect: Expect::Any, change, durability: Durability::KillSafe }
}

fn put(text: &str, expires: Option<i64>) -> Change {
    Change::Put { value: text.as_bytes().into(), schema: 1, expires: expires.map(Timestamp::from_millis) }
}

/// Partitions of one shard move when others are removed, also during a sweep.
#[tokio::test]
async fn thousands_of_threads_come_and_go_and_each_keeps_its_own() {
    let (store, mut model) = (Memory::new(), BTreeMap::new());
    let mut number = 1_u64;
    let mut random = |below: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 33) % below
    };
    for step in 0..40_000_i64 {
        let now = Timestamp::from_millis(step);
        let at = random(4_000) as usize;
        let id = ["cart/business", "cart/cache"][random(4) as usize / 3];
        let key = RowKey { partition: thread(at), table: Table::State, id: id.into() };
        let change = match random(8) {
            0..4 => {
                let (text, expires) = (step.to_string(), (random(2) == 0).then(|| step + 1 + random(20_000) as i64));
                model.insert((id, at), (text.clone(), expires));
                put(&text, expires)
            }
            4 | 5 => {
                model.remove(&(id, at));
                Change::Remove
            }
            6 => {
                store.sweep(3, now).await.unwrap();
                continue;
            }
            _ => {
                let found = store.load(&[key], now).await.unwrap().remove(0);
                let expected = model.get(&(id, at)).filter(|(_, expires)| expires.is_none_or(|end| end > step));
                let expected = expected.map(|(text, _)| text.as_bytes().to_vec());
                assert_eq!(found.map(|row| row.value.to_vec()), expected, "step {step}");
                continue;
            }
        };
        store.commit(Batch::new(thread(at)).with(write(id, change)), now).await.unwrap();
    }
    let now = Timestamp::from_millis(40_000);
    while store.sweep(100, now).await.unwrap() == 100 {}
    model.retain(|_, (_, expires)| expires.is_none_or(|end| end > 40_000));
    let mut scan = Scan::new(Table::State, Scope::All).limit(77);
    let mut found = Vec::new();
    loop {
        // Read at a time before everything expired, so that rows left behind by a sweep would show.
        let page = store.scan(scan.clone(), Timestamp::from_millis(0)).await.unwrap();
        found.extend(page.rows.into_iter().map(|(key, row)| (key.id, key.partition, row.value.to_vec())));
        let Some(next) = page.next else { break };
        scan.after = Some(next);
    }
    let expected = model.into_iter().map(|((id, at), (text, _))| (id.into(), thread(at), text.into_bytes()));
    assert_eq!(found, Vec::from_iter(expected));
}

/// What the benchmark measures with a million entries, checked here with fewer.
#[tokio::test]
async fn a_thread_with_one_small_state_takes_little_more_than_the_state() {
    for (entries, size, most) in [(15_000, 64, 240), (3_000, 1024, 1024 * 115 / 100)] {
        let (before, store, text) = (allocated_bytes(), Memory::new(), "x".repeat(size));
        for number in 0..entries {
            let batch = Batch::new(thread(number)).with(write("cart/business", put(&text, None)));
            store.commit(batch, Timestamp::from_millis(1_704_110_400_000)).await.unwrap();
        }
        let each = (allocated_bytes() - before) / entries as isize;
        assert!(each <= most, "a state of {size} bytes takes {each}");
    }
}

#[tokio::test]
async fn what_was_removed_gives_its_memory_back() {
    let store = Memory::new();
    let now = Timestamp::from_millis(1);
    let before = allocated_bytes();
    for round in 0..2 {
        for number in 0..3_000 {
            let ids = (0..5).map(|id| write(&id.to_string(), put("text", Some(5))));
            let batch = Batch { writes: ids.collect(), ..Batch::new(thread(number)) };
            store.commit(batch, now).await.unwrap();
        }
        if round == 0 {
            while store.sweep(1_000, Timestamp::from_millis(5)).await.unwrap() == 1_000 {}
        } else {
            for number in 0..3_000 {
                let ids = (0..5).map(|id| write(&id.to_string(), Change::Remove));
                store.commit(Batch { writes: ids.collect(), ..Batch::new(thread(number)) }, now).await.unwrap();
            }
        }
        let left = allocated_bytes() - before;
        assert!(left < 50_000, "round {round}: {left} bytes leaked");
    }
}
