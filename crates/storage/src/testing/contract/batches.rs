//! Contract of batches: atomicity, versions, timestamps and expiry.

use std::time::Duration;

use super::{NOW, expect_ok, get, put, thread, value, write};
use crate::backend::{Backend, Batch, Change, Expect, Partition, Scan, Scope, StoreError, Table, Write};
use toolhub_types::ids::{Tenant, ThreadId};

async fn commit(store: &impl Backend, writes: Vec<Write>) -> Result<Vec<u64>, StoreError> {
    store.commit(Batch { writes, ..Batch::new(thread("t")) }, NOW).await
}

pub(super) async fn all_or_nothing(store: &impl Backend) {
    assert_eq!(commit(store, vec![put("a", "1"), put("b", "1")]).await, Ok(vec![1, 1]), "versions begin with 1");
    let refused = commit(store, vec![put("a", "2"), write("b", Expect::Absent, value("2", None))]).await;
    let conflict = StoreError::Conflict { table: Table::State, id: "b".into(), found: Some(1) };
    assert_eq!(refused, Err(conflict), "a failed precondition is a conflict");
    let stored = get(store, &thread("t"), "a", NOW).await.map(|row| row.value.to_vec());
    assert_eq!(stored, Some(b"1".to_vec()), "nothing of a refused batch is written");
    let twice = commit(store, vec![put("a", "2"), put("a", "3")]).await;
    assert!(matches!(twice, Err(StoreError::Refused(_))), "a batch may write a row only once: {twice:?}");
    assert_eq!(commit(store, Vec::new()).await, Ok(Vec::new()), "an empty batch is valid");
}

pub(super) async fn another_attempt_is_another_batch(store: &impl Backend) {
    let first = Batch::new(thread("t")).with(put("a", "1"));
    let attempt = |write| Batch { writes: vec![write], ..first.clone() };
    assert_eq!(store.commit(first.clone(), NOW).await, Ok(vec![1]));
    let refused = store.commit(attempt(write("a", Expect::Absent, value("2", None))), NOW).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "the preconditions of this attempt count: {refused:?}"
    );
    let Some(row) = get(store, &thread("t"), "a", NOW).await else { panic!("the row that was put does not exist") };
    assert_eq!(row.version.stamp, first.stamp);
    let second = store.commit(attempt(write("a", Expect::Same(row.version), value("2", None))), NOW).await;
    assert_eq!(second, Ok(vec![2]), "a batch with the stamp of an earlier one is committed");
    let other = store.commit(attempt(put("b", "1")), NOW).await;
    assert_eq!(other, Ok(vec![1]), "a batch with the stamp of an earlier one is committed");
    assert!(get(store, &thread("t"), "b", NOW).await.is_some());
}

pub(super) async fn recreate_after_remove(store: &impl Backend) {
    expect_ok(commit(store, vec![put("a", "old")])).await;
    let current = async || get(store, &thread("t"), "a", NOW).await.map(|row| row.version);
    let Some(old) = current().await else { panic!("the row that was put does not exist") };
    assert_eq!(commit(store, vec![write("a", Expect::Same(old), Change::Remove)]).await, Ok(vec![0]));
    assert_eq!(current().await, None, "a removed row does not exist");
    expect_ok(commit(store, vec![put("a", "new")])).await;
    let Some(new) = current().await else { panic!("the recreated row does not exist") };
    assert_eq!(old.number, new.number, "a recreated row begins with version 1");
    let late = commit(store, vec![write("a", Expect::Same(old), value("late", None))]).await;
    assert!(late.is_err(), "a recreated row is never mistaken for the old one");
    assert_eq!(commit(store, vec![write("a", Expect::Same(new), value("next", None))]).await, Ok(vec![2]));
}

pub(super) async fn restored(store: &impl Backend) {
    let restore = |version| {
        let change = Change::Restore { value: b"old".as_slice().into(), schema: 2, expires: None, version };
        commit(store, vec![write("a", Expect::Any, change)])
    };
    assert_eq!(restore(7).await, Ok(vec![7]), "a restored row has the version it had");
    assert_eq!(commit(store, vec![put("a", "new")]).await, Ok(vec![8]));
    assert_eq!(restore(7).await, Ok(vec![9]), "no version is assigned twice");
    assert_eq!(restore(20).await, Ok(vec![20]));
    let row = get(store, &thread("t"), "a", NOW).await.map(|row| (row.value.to_vec(), row.schema, row.version.number));
    assert_eq!(row, Some((b"old".to_vec(), 2, 20)));
}

pub(super) async fn expired_rows_are_invisible(store: &impl Backend) {
    let soon = NOW + Duration::from_secs(1);
    expect_ok(commit(store, vec![write("a", Expect::Any, value("1", Some(soon))), put("b", "1")])).await;
    assert!(get(store, &thread("t"), "a", NOW).await.is_some());
    assert!(get(store, &thread("t"), "a", soon).await.is_none(), "an expired row does not exist, swept or not");
    let page = expect_ok(store.scan(Scan::new(Table::State, Scope::All), soon)).await;
    assert_eq!(page.rows.len(), 1, "a scan sees no expired row");
    let recreate = Batch::new(thread("t")).with(write("a", Expect::Absent, value("2", Some(soon))));
    assert_eq!(store.commit(recreate, soon).await, Ok(vec![1]), "a row put after expiry is a new row");
    assert_eq!(store.sweep(10, soon).await, Ok(1), "a sweep returns how many rows it removed");
    assert_eq!(store.sweep(10, soon).await, Ok(0));
}

/// A batch that demands it is refused if its partition holds a row it does not write.
pub(super) async fn without_other_rows(store: &impl Backend) {
    let soon = NOW + Duration::from_secs(1);
    expect_ok(commit(store, vec![put("a", "1"), put("b", "1")])).await;
    expect_ok(commit(store, vec![write("expiring", Expect::Any, value("1", Some(soon)))])).await;
    expect_ok(store.commit(Batch::new(thread("u")).with(put("c", "1")), NOW)).await;
    let remove = |ids: &[&str]| {
        let writes = ids.iter().map(|id| write(id, Expect::Any, Change::Remove)).collect();
        Batch { writes, no_other_rows: true, ..Batch::new(thread("t")) }
    };
    assert_eq!(store.commit(remove(&["a"]), soon).await, Err(StoreError::OtherRows), "it holds another row");
    assert!(get(store, &thread("t"), "a", NOW).await.is_some(), "nothing of a refused batch is written");
    assert_eq!(store.commit(remove(&["a", "b"]), NOW).await, Err(StoreError::OtherRows), "a row that has not expired");
    assert_eq!(
        store.commit(remove(&["a", "b"]), soon).await,
        Ok(vec![0, 0]),
        "expired rows and partitions do not count"
    );
    assert_eq!(store.commit(remove(&["a"]), soon).await, Ok(vec![0]), "an empty partition holds no other rows");
}

/// A sweep that stops at its limit continues there or starts over; in the end all expired rows are removed, and no others.
pub(super) async fn sweep_limit(store: &impl Backend) {
    let (soon, later) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(9));
    for n in 0..40 {
        let expires = [Some(soon), Some(later), None][n % 3];
        let batch = Batch::new(thread(&format!("t{}", n % 7)));
        expect_ok(store.commit(batch.with(write(&n.to_string(), Expect::Any, value("1", expires))), NOW)).await;
    }
    assert_eq!(store.sweep(100, NOW).await, Ok(0), "no row is removed before its expiry");
    let remaining = async || expect_ok(store.scan(Scan::new(Table::State, Scope::All), NOW)).await.rows.len();
    for (now, expired) in [(soon, 14), (later, 13)] {
        let mut swept = Vec::new();
        while swept.last() != Some(&0) {
            swept.push(expect_ok(store.sweep(5, now)).await);
        }
        assert_eq!(
            swept,
            [vec![5, 5, expired - 10], vec![0]].concat(),
            "each sweep removes as many rows as its limit allows"
        );
        // A row that gets its expiry only now is swept later.
        let touch = Change::Touch { expires: Some(later + Duration::from_secs(1)) };
        let also = Batch::new(thread("t2")).with(write("2", Expect::Any, touch));
        expect_ok(store.commit(also, now)).await;
    }
    assert_eq!(remaining().await, 13, "rows without expiry or with a later one remain");
    assert_eq!(store.sweep(100, later + Duration::from_secs(2)).await, Ok(1));
}

pub(super) async fn touch_extends_expiry(store: &impl Backend) {
    let (soon, later) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(9));
    expect_ok(commit(store, vec![write("a", Expect::Any, value("1", Some(soon)))])).await;
    let touched = commit(store, vec![write("a", Expect::Any, Change::Touch { expires: Some(later) })]).await;
    assert_eq!(touched, Ok(vec![1]), "a touch does not change the version");
    assert!(get(store, &thread("t"), "a", soon).await.is_some(), "the row exists until the later expiry");
    let nothing = commit(store, vec![write("none", Expect::Any, Change::Touch { expires: None })]).await;
    assert_eq!(nothing, Ok(vec![0]), "a touch does not create a row");
    let guarded = commit(store, vec![write("none", Expect::Absent, Change::Keep), put("b", "1")]).await;
    assert_eq!(guarded, Ok(vec![0, 1]), "a precondition may stand alone");
    let refused = commit(store, vec![write("a", Expect::Absent, Change::Keep), put("b", "2")]).await;
    assert!(refused.is_err(), "and it guards the other writes");
}

pub(super) async fn timestamps(store: &impl Backend) {
    let (later, last) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(2));
    let times = async |now| get(store, &thread("t"), "a", now).await.map(|row| (row.created, row.updated));
    expect_ok(store.commit(Batch::new(thread("t")).with(put("a", "1")), NOW)).await;
    assert_eq!(times(NOW).await, Some((NOW, NOW)));
    expect_ok(store.commit(Batch::new(thread("t")).with(put("a", "2")), later)).await;
    assert_eq!(times(later).await, Some((NOW, later)), "a put keeps the creation time");
    expect_ok(store.commit(Batch::new(thread("t")).with(write("a", Expect::Any, Change::Remove)), later)).await;
    expect_ok(store.commit(Batch::new(thread("t")).with(put("a", "3")), last)).await;
    assert_eq!(times(last).await, Some((last, last)), "a recreated row has a new creation time");
}

pub(super) async fn tenant_isolation(store: &impl Backend) {
    let partition_of = |tenant: &str| {
        let tenant = Tenant::new(tenant).expect("a valid name");
        Partition::for_thread(tenant, ThreadId::new("t").expect("a valid name"))
    };
    for tenant in ["a", "b"] {
        expect_ok(store.commit(Batch::new(partition_of(tenant)).with(put("x", tenant)), NOW)).await;
    }
    for tenant in ["a", "b"] {
        let row = get(store, &partition_of(tenant), "x", NOW).await.map(|row| row.value.to_vec());
        assert_eq!(row, Some(tenant.into()), "threads with the same name in two tenants are separate");
        let scan = Scan::new(Table::State, Scope::Tenant(partition_of(tenant).tenant));
        let page = expect_ok(store.scan(scan, NOW)).await;
        assert!(page.rows.iter().all(|(key, _)| key.partition == partition_of(tenant)), "and so are their scans");
    }
}
