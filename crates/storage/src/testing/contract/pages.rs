//! Scans: page after page, without gap or repetition, in both directions.

use std::time::Duration;

use super::{NOW, expect_ok, put, thread, value, write};
use crate::backend::{Backend, Batch, Cursor, Expect, RowKey, Scan, Scope, Table};
use toolhub_types::ids::Tenant;

pub(super) async fn without_gap_or_repetition(store: &impl Backend) {
    let mut all = Vec::new();
    for n in 0..25 {
        let partition = thread(["x", "y", "z"][n % 3]);
        expect_ok(store.commit(Batch::new(partition.clone()).with(put(&format!("k{:02}", n / 2), "1")), NOW)).await;
        all.push((format!("k{:02}", n / 2), partition.to_string()));
        expect_ok(store.commit(Batch::new(partition).with(put("other", "1")), NOW)).await;
    }
    all.sort();
    all.dedup();
    for scope in [Scope::All, Scope::Tenant(Tenant::default()), Scope::Partition(thread("y"))] {
        for newest in [false, true] {
            let mut expected = all.clone();
            expected.retain(|(_, at)| !matches!(scope, Scope::Partition(_)) || *at == thread("y").to_string());
            if newest {
                expected.reverse();
            }
            let scan = Scan { descending: newest, ..Scan::new(Table::State, scope.clone()).prefix("k").limit(4) };
            assert_eq!(scan_all_pages(store, scan).await, expected, "{scope:?}, newest first: {newest}");
        }
    }
    let foreign = Scan::new(Table::State, Scope::Tenant(Tenant::new("other").expect("a good name")));
    assert!(expect_ok(store.scan(foreign, NOW)).await.rows.is_empty());
    let other_table = Scan::new(Table::Calls, Scope::All);
    assert!(expect_ok(store.scan(other_table, NOW)).await.rows.is_empty());
}

/// A cursor is any place in the order: no row need lie there, and it may lie ahead of all that is asked for or behind it.
pub(super) async fn behind_any_cursor(store: &impl Backend) {
    let mut all = Vec::new();
    for partition in [thread("x"), thread("y")] {
        for id in ["a1", "k1", "k2", "k3", "k\u{10ffff}", "z1"] {
            expect_ok(store.commit(Batch::new(partition.clone()).with(put(id, "1")), NOW)).await;
            all.push((id.to_owned(), partition.to_string()));
        }
    }
    all.retain(|(id, _)| id.starts_with('k'));
    all.sort();
    for scope in [Scope::All, Scope::Tenant(Tenant::default()), Scope::Partition(thread("x"))] {
        for (id, newest) in ["", "a1", "k", "k2", "k9", "l", "z1"].into_iter().flat_map(|id| [(id, false), (id, true)])
        {
            let last = RowKey { partition: thread("x"), table: Table::State, id: id.into() };
            let place = (id.to_owned(), last.partition.to_string());
            let mut expected = all.clone();
            expected.retain(|row| if newest { *row < place } else { *row > place });
            expected.retain(|(_, at)| !matches!(scope, Scope::Partition(_)) || *at == place.1);
            if newest {
                expected.reverse();
            }
            let scan = Scan::new(Table::State, scope.clone()).prefix("k").limit(2);
            let scan = Scan { descending: newest, after: Some(Cursor(last)), ..scan };
            assert_eq!(scan_all_pages(store, scan).await, expected, "{scope:?} behind `{id}`, newest first: {newest}");
        }
    }
}

/// Rows are counted by their ids over all partitions; one whose time has passed does not count.
pub(super) async fn counted_by_their_ids(store: &impl Backend) {
    for (home, id) in [("x", "a/one"), ("y", "a/one"), ("z", "a/one"), ("x", "a/two"), ("y", "b/one")] {
        expect_ok(store.commit(Batch::new(thread(home)).with(put(id, "1")), NOW)).await;
    }
    let soon = NOW + Duration::from_millis(10);
    let brief = write("a/two", Expect::Any, value("1", Some(soon)));
    expect_ok(store.commit(Batch::new(thread("y")).with(brief), NOW)).await;
    let many = async |now| Vec::from_iter(expect_ok(store.count_by_id(Table::State, now)).await);
    let all = |two| vec![("a/one".into(), 3), ("a/two".into(), two), ("b/one".into(), 1)];
    assert_eq!(many(NOW).await, all(2), "how many rows have each id");
    assert_eq!(many(soon).await, all(1), "one whose time has passed is not counted");
    assert!(expect_ok(store.count_by_id(Table::Versions, NOW)).await.is_empty(), "other tables are not counted");
}

/// The ids and partitions of all pages.
async fn scan_all_pages(store: &impl Backend, mut scan: Scan) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    loop {
        let page = expect_ok(store.scan(scan.clone(), NOW)).await;
        assert!(page.rows.len() <= scan.limit, "a page is no longer than asked");
        seen.extend(page.rows.iter().map(|(key, _)| (key.id.to_string(), key.partition.to_string())));
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return seen,
        }
    }
}
