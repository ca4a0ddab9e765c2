//! Batches: whole or not at all, with versions, times, ages and fences.

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
    assert_eq!(refused, Err(conflict), "an expectation that does not hold is a conflict");
    let kept = get(store, &thread("t"), "a", NOW).await.map(|row| row.value.to_vec());
    assert_eq!(kept, Some(b"1".to_vec()), "nothing of a refused batch is written");
    let twice = commit(store, vec![put("a", "2"), put("a", "3")]).await;
    assert!(matches!(twice, Err(StoreError::Refused(_))), "a row is written once in a batch: {twice:?}");
    assert_eq!(commit(store, Vec::new()).await, Ok(Vec::new()), "an empty batch is no trouble");
}

pub(super) async fn removed_and_made_again(store: &impl Backend) {
    expect_ok(commit(store, vec![put("a", "old")])).await;
    let seen = async || get(store, &thread("t"), "a", NOW).await.map(|row| row.version);
    let Some(old) = seen().await else { panic!("what was put is there") };
    assert_eq!(commit(store, vec![write("a", Expect::Same(old), Change::Remove)]).await, Ok(vec![0]));
    assert_eq!(seen().await, None, "what was removed is gone");
    expect_ok(commit(store, vec![put("a", "new")])).await;
    let Some(new) = seen().await else { panic!("what was put again is there") };
    assert_eq!(old.number, new.number, "a row made anew begins with version 1");
    let late = commit(store, vec![write("a", Expect::Same(old), value("late", None))]).await;
    assert!(late.is_err(), "a row made again is never taken for the old one");
    assert_eq!(commit(store, vec![write("a", Expect::Same(new), value("next", None))]).await, Ok(vec![2]));
}

pub(super) async fn restored(store: &impl Backend) {
    let restore = |version| {
        let change = Change::Restore { value: b"old".as_slice().into(), schema: 2, expires: None, version };
        commit(store, vec![write("a", Expect::Any, change)])
    };
    assert_eq!(restore(7).await, Ok(vec![7]), "a restored row has the version it had");
    assert_eq!(commit(store, vec![put("a", "new")]).await, Ok(vec![8]));
    assert_eq!(restore(7).await, Ok(vec![9]), "no version comes twice");
    assert_eq!(restore(20).await, Ok(vec![20]));
    let row = get(store, &thread("t"), "a", NOW).await.map(|row| (row.value.to_vec(), row.schema, row.version.number));
    assert_eq!(row, Some((b"old".to_vec(), 2, 20)));
}

pub(super) async fn gone_when_expired(store: &impl Backend) {
    let soon = NOW + Duration::from_secs(1);
    expect_ok(commit(store, vec![write("a", Expect::Any, value("1", Some(soon))), put("b", "1")])).await;
    assert!(get(store, &thread("t"), "a", NOW).await.is_some());
    assert!(get(store, &thread("t"), "a", soon).await.is_none(), "at its end a row is gone, swept or not");
    let page = expect_ok(store.scan(Scan::new(Table::State, Scope::All), soon)).await;
    assert_eq!(page.rows.len(), 1, "a scan sees no expired row");
    let again = Batch::new(thread("t")).with(write("a", Expect::Absent, value("2", Some(soon))));
    assert_eq!(store.commit(again, soon).await, Ok(vec![1]), "in the place of an expired row a new one begins");
    assert_eq!(store.sweep(10, soon).await, Ok(1), "a sweep says how many it removed");
    assert_eq!(store.sweep(10, soon).await, Ok(0));
}

/// A sweep that stops early goes on where it stopped or begins anew; in the end every expired row is gone, and no other.
pub(super) async fn swept_a_few_at_a_time(store: &impl Backend) {
    let (soon, later) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(9));
    for n in 0..40 {
        let expires = [Some(soon), Some(later), None][n % 3];
        let batch = Batch::new(thread(&format!("t{}", n % 7)));
        expect_ok(store.commit(batch.with(write(&n.to_string(), Expect::Any, value("1", expires))), NOW)).await;
    }
    assert_eq!(store.sweep(100, NOW).await, Ok(0), "nothing goes before its time");
    let left = async || expect_ok(store.scan(Scan::new(Table::State, Scope::All), NOW)).await.rows.len();
    for (now, expired) in [(soon, 14), (later, 13)] {
        let mut swept = Vec::new();
        while swept.last() != Some(&0) {
            swept.push(expect_ok(store.sweep(5, now)).await);
        }
        assert_eq!(swept, [vec![5, 5, expired - 10], vec![0]].concat(), "each sweep takes as many as it may");
        // A row that is given an end only now goes in its turn.
        let touch = Change::Touch { expires: Some(later + Duration::from_secs(1)) };
        let also = Batch::new(thread("t2")).with(write("2", Expect::Any, touch));
        expect_ok(store.commit(also, now)).await;
    }
    assert_eq!(left().await, 13, "what never expires, or has time left, stays");
    assert_eq!(store.sweep(100, later + Duration::from_secs(2)).await, Ok(1));
}

pub(super) async fn kept_or_given_more_time(store: &impl Backend) {
    let (soon, later) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(9));
    expect_ok(commit(store, vec![write("a", Expect::Any, value("1", Some(soon)))])).await;
    let touched = commit(store, vec![write("a", Expect::Any, Change::Touch { expires: Some(later) })]).await;
    assert_eq!(touched, Ok(vec![1]), "more time is no new version");
    assert!(get(store, &thread("t"), "a", soon).await.is_some(), "it lives until the later time");
    let nothing = commit(store, vec![write("none", Expect::Any, Change::Touch { expires: None })]).await;
    assert_eq!(nothing, Ok(vec![0]), "a row that is not there is not made by a touch");
    let guarded = commit(store, vec![write("none", Expect::Absent, Change::Keep), put("b", "1")]).await;
    assert_eq!(guarded, Ok(vec![0, 1]), "an expectation may stand alone");
    let refused = commit(store, vec![write("a", Expect::Absent, Change::Keep), put("b", "2")]).await;
    assert!(refused.is_err(), "and it guards the others");
}

pub(super) async fn when_made_and_written(store: &impl Backend) {
    let (later, last) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(2));
    let times = async |now| get(store, &thread("t"), "a", now).await.map(|row| (row.created, row.updated));
    expect_ok(store.commit(Batch::new(thread("t")).with(put("a", "1")), NOW)).await;
    assert_eq!(times(NOW).await, Some((NOW, NOW)));
    expect_ok(store.commit(Batch::new(thread("t")).with(put("a", "2")), later)).await;
    assert_eq!(times(later).await, Some((NOW, later)), "a row keeps when it was made");
    expect_ok(store.commit(Batch::new(thread("t")).with(write("a", Expect::Any, Change::Remove)), later)).await;
    expect_ok(store.commit(Batch::new(thread("t")).with(put("a", "3")), last)).await;
    assert_eq!(times(last).await, Some((last, last)), "a row made anew is new");
}

pub(super) async fn fenced(store: &impl Backend) {
    let batch = |fence| Batch { fence, ..Batch::new(thread("t")).with(put("a", "1")) };
    expect_ok(store.commit(batch(Some(5)), NOW)).await;
    let old = store.commit(batch(Some(4)), NOW).await;
    assert_eq!(old, Err(StoreError::Fenced { given: 4, seen: 5 }), "whoever has been replaced writes nothing");
    expect_ok(store.commit(batch(Some(5)), NOW)).await;
    expect_ok(store.commit(batch(None), NOW)).await;
    let elsewhere = Batch { fence: Some(1), ..Batch::new(thread("u")).with(put("a", "1")) };
    expect_ok(store.commit(elsewhere, NOW)).await;
}

pub(super) async fn tenants_apart(store: &impl Backend) {
    let of = |tenant: &str| {
        let tenant = Tenant::new(tenant).expect("a good name");
        Partition::for_thread(tenant, ThreadId::new("t").expect("a good name"))
    };
    for tenant in ["a", "b"] {
        expect_ok(store.commit(Batch::new(of(tenant)).with(put("x", tenant)), NOW)).await;
    }
    for tenant in ["a", "b"] {
        let row = get(store, &of(tenant), "x", NOW).await.map(|row| row.value.to_vec());
        assert_eq!(row, Some(tenant.into()), "threads of two tenants with one name never meet");
        let scan = Scan::new(Table::State, Scope::Tenant(of(tenant).tenant));
        let page = expect_ok(store.scan(scan, NOW)).await;
        assert!(page.rows.iter().all(|(key, _)| key.partition == of(tenant)), "nor do their scans");
    }
}
