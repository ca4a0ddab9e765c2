//! What every store promises, seen on the one in memory.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use toolhub::{
    backend::{
        Backend, Batch, Change, Changed, Durability, Expect, Key, Memory, Partition, Row, Scan, Scope, StoreError,
        Table, Write,
    },
    clock::Timestamp,
    ids::{Tenant, ThreadId},
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn thread(name: &str) -> Partition {
    Partition::of_thread(Tenant::default(), ThreadId::new(name).unwrap())
}

fn write(id: &str, expect: Expect, change: Change) -> Write {
    Write { table: Table::State, id: id.into(), expect, change, durability: Durability::KillSafe }
}

fn put(id: &str, value: &str) -> Write {
    write(id, Expect::Any, value_of(value, None))
}

fn value_of(value: &str, expires: Option<Timestamp>) -> Change {
    Change::Put { value: value.as_bytes().into(), schema: 1, expires }
}

async fn get(store: &Memory, partition: &Partition, id: &str, now: Timestamp) -> Option<Row> {
    let keys = [Key { partition: partition.clone(), table: Table::State, id: id.into() }];
    store.load(&keys, now).await.unwrap().pop().flatten()
}

async fn commit(store: &Memory, writes: Vec<Write>) -> Result<Vec<u64>, StoreError> {
    store.commit(Batch { writes, ..Batch::on(thread("t")) }, NOW).await
}

#[tokio::test]
async fn a_batch_is_made_whole_or_not_at_all() {
    let store = Memory::new();
    assert_eq!(commit(&store, vec![put("a", "1"), put("b", "1")]).await, Ok(vec![1, 1]));
    let refused = commit(&store, vec![put("a", "2"), write("b", Expect::Absent, value_of("2", None))]).await;
    assert_eq!(refused, Err(StoreError::Conflict { table: Table::State, id: "b".into(), found: Some(1) }));
    assert_eq!(&*get(&store, &thread("t"), "a", NOW).await.unwrap().value, b"1");
    let twice = commit(&store, vec![put("a", "2"), put("a", "3")]).await;
    assert!(matches!(twice, Err(StoreError::Refused(_))));
}

#[tokio::test]
async fn a_row_removed_and_made_again_is_not_taken_for_the_old_one() {
    let store = Memory::new();
    commit(&store, vec![put("a", "old")]).await.unwrap();
    let old = get(&store, &thread("t"), "a", NOW).await.unwrap().seen;
    assert_eq!(commit(&store, vec![write("a", Expect::Same(old), Change::Remove)]).await, Ok(vec![0]));
    commit(&store, vec![put("a", "new")]).await.unwrap();
    let new = get(&store, &thread("t"), "a", NOW).await.unwrap().seen;
    assert_eq!(old.version, new.version);
    let late = commit(&store, vec![write("a", Expect::Same(old), value_of("late", None))]).await;
    assert!(matches!(late, Err(StoreError::Conflict { found: Some(1), .. })));
    assert_eq!(commit(&store, vec![write("a", Expect::Same(new), value_of("next", None))]).await, Ok(vec![2]));
}

#[tokio::test]
async fn a_restored_row_has_the_version_it_had_and_none_comes_twice() {
    let store = Memory::new();
    let restore = |version| {
        let change = Change::Restore { value: b"old".as_slice().into(), schema: 2, expires: None, version };
        commit(&store, vec![write("a", Expect::Any, change)])
    };
    assert_eq!(restore(7).await, Ok(vec![7]));
    assert_eq!(commit(&store, vec![put("a", "new")]).await, Ok(vec![8]));
    assert_eq!(restore(7).await, Ok(vec![9]));
    assert_eq!(restore(20).await, Ok(vec![20]));
    let row = get(&store, &thread("t"), "a", NOW).await.unwrap();
    assert_eq!((&*row.value, row.schema, row.seen.version), (b"old".as_slice(), 2, 20));
}

#[tokio::test]
async fn an_expired_row_is_gone_for_everybody_before_it_is_swept() {
    let store = Memory::new();
    let soon = NOW + Duration::from_secs(1);
    commit(&store, vec![write("a", Expect::Any, value_of("1", Some(soon))), put("b", "1")]).await.unwrap();
    assert!(get(&store, &thread("t"), "a", NOW).await.is_some());
    assert!(get(&store, &thread("t"), "a", soon).await.is_none());
    let page = store.scan(Scan::of(Table::State, Scope::All), soon).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    let again = Batch::on(thread("t")).with(write("a", Expect::Absent, value_of("2", Some(soon))));
    assert_eq!(store.commit(again, soon).await, Ok(vec![1]));
    assert_eq!(store.sweep(10, soon).await, Ok(1));
    assert_eq!(store.sweep(10, soon).await, Ok(0));
}

#[tokio::test]
async fn a_row_may_be_kept_or_given_more_time_without_a_new_version() {
    let store = Memory::new();
    let (soon, later) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(9));
    commit(&store, vec![write("a", Expect::Any, value_of("1", Some(soon)))]).await.unwrap();
    let touched = commit(&store, vec![write("a", Expect::Any, Change::Touch { expires: Some(later) })]).await;
    assert_eq!(touched, Ok(vec![1]));
    assert!(get(&store, &thread("t"), "a", soon).await.is_some());
    assert_eq!(commit(&store, vec![write("none", Expect::Any, Change::Touch { expires: None })]).await, Ok(vec![0]));
    let guarded = commit(&store, vec![write("none", Expect::Absent, Change::Keep), put("b", "1")]).await;
    assert_eq!(guarded, Ok(vec![0, 1]));
    let refused = commit(&store, vec![write("a", Expect::Absent, Change::Keep), put("b", "2")]).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn whoever_has_been_replaced_writes_nothing() {
    let store = Memory::new();
    let fenced = |fence| Batch { fence, ..Batch::on(thread("t")).with(put("a", "1")) };
    store.commit(fenced(Some(5)), NOW).await.unwrap();
    assert_eq!(store.commit(fenced(Some(4)), NOW).await, Err(StoreError::Fenced { given: 4, seen: 5 }));
    store.commit(fenced(Some(5)), NOW).await.unwrap();
    store.commit(fenced(None), NOW).await.unwrap();
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition_in_both_directions() {
    let store = Memory::new();
    let mut all = Vec::new();
    for n in 0..25 {
        let partition = thread(["x", "y", "z"][n % 3]);
        store.commit(Batch::on(partition.clone()).with(put(&format!("k{:02}", n / 2), "1")), NOW).await.unwrap();
        all.push((format!("k{:02}", n / 2), partition.to_string()));
        store.commit(Batch::on(partition).with(put("other", "1")), NOW).await.unwrap();
    }
    all.sort();
    all.dedup();
    for scope in [Scope::All, Scope::Tenant(Tenant::default()), Scope::Partition(thread("y"))] {
        for newest in [false, true] {
            let mut scan = Scan { newest, ..Scan::of(Table::State, scope.clone()).prefix("k").limit(4) };
            let mut seen = Vec::new();
            loop {
                let page = store.scan(scan.clone(), NOW).await.unwrap();
                seen.extend(page.rows.iter().map(|(key, _)| (key.id.to_string(), key.partition.to_string())));
                scan.after = page.next;
                if scan.after.is_none() {
                    break;
                }
            }
            let mut expected = all.clone();
            expected.retain(|(_, partition)| {
                !matches!(scope, Scope::Partition(_)) || *partition == thread("y").to_string()
            });
            if newest {
                expected.reverse();
            }
            assert_eq!(seen, expected, "{scope:?}, newest first: {newest}");
        }
    }
    let foreign = Scan::of(Table::State, Scope::Tenant(Tenant::new("other").unwrap()));
    assert!(store.scan(foreign, NOW).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn a_watcher_is_told_of_its_table_in_order_and_when_it_missed_something() {
    let store = Memory::new();
    let mut watcher = store.watch(Table::State);
    commit(&store, vec![put("a", "1")]).await.unwrap();
    commit(&store, vec![put("a", "2"), put("b", "1")]).await.unwrap();
    commit(&store, vec![write("a", Expect::Any, Change::Remove), write("none", Expect::Any, Change::Remove)])
        .await
        .unwrap();
    let mut told = Vec::new();
    while let Some(Some(Changed::Row(key, version))) = watcher.next().now_or_never() {
        told.push((key.id.to_string(), version));
    }
    let expected = [("a", Some(1)), ("a", Some(2)), ("b", Some(1)), ("a", None)];
    assert_eq!(told, expected.map(|(id, version)| (id.to_owned(), version)));
    for n in 0..2_000 {
        commit(&store, vec![put("a", &n.to_string())]).await.unwrap();
    }
    assert_eq!(watcher.next().now_or_never(), Some(Some(Changed::Missed)));
}
