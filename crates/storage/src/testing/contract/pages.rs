//! Contract of scans: pages without gaps or repetitions, in both directions.

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
        for descending in [false, true] {
            let mut expected = all.clone();
            expected.retain(|(_, at)| !matches!(scope, Scope::Partition(_)) || *at == thread("y").to_string());
            if descending {
                expected.reverse();
            }
            let scan = Scan { descending, ..Scan::new(Table::State, scope.clone()).prefix("k").limit(4) };
            assert_eq!(scan_all_pages(store, scan).await, expected, "{scope:?}, descending: {descending}");
        }
    }
    let foreign = Scan::new(Table::State, Scope::Tenant(Tenant::new("other").expect("a valid name")));
    assert!(expect_ok(store.scan(foreign, NOW)).await.rows.is_empty());
    let other_table = Scan::new(Table::Calls, Scope::All);
    assert!(expect_ok(store.scan(other_table, NOW)).await.rows.is_empty());
}

/// A page ends with the row that makes it long enough, and has at least one.
pub(super) async fn end_at_a_size(store: &impl Backend) {
    for (id, text) in [("a", "12345"), ("b", "1234567890"), ("c", ""), ("d", "1")] {
        expect_ok(store.commit(Batch::new(thread("t")).with(put(id, text)), NOW)).await;
    }
    for scope in [Scope::All, Scope::Partition(thread("t"))] {
        for (max_bytes, expected) in [(0, 1), (5, 1), (6, 2), (15, 2), (16, 4), (17, 4)] {
            let page = expect_ok(store.scan(Scan::new(Table::State, scope.clone()).max_bytes(max_bytes), NOW)).await;
            assert_eq!((page.rows.len(), page.next.is_some()), (expected, expected < 4), "{max_bytes} bytes");
        }
        let scan = Scan::new(Table::State, scope).max_bytes(1);
        assert_eq!(scan_all_pages(store, scan).await.len(), 4, "no row is skipped");
    }
}

/// A cursor may be any position in the order: no row need exist there, and it may lie before or after the whole range.
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
        for (id, descending) in
            ["", "a1", "k", "k2", "k9", "l", "z1"].into_iter().flat_map(|id| [(id, false), (id, true)])
        {
            let last = RowKey { partition: thread("x"), table: Table::State, id: id.into() };
            let position = (id.to_owned(), last.partition.to_string());
            let mut expected = all.clone();
            expected.retain(|row| if descending { *row < position } else { *row > position });
            expected.retain(|(_, at)| !matches!(scope, Scope::Partition(_)) || *at == position.1);
            if descending {
                expected.reverse();
            }
            let scan = Scan::new(Table::State, scope.clone()).prefix("k").limit(2);
            let scan = Scan { descending, after: Some(Cursor(last)), ..scan };
            assert_eq!(scan_all_pages(store, scan).await, expected, "{scope:?} after `{id}`, descending: {descending}");
        }
    }
}

/// Rows are counted by id over all partitions; expired rows do not count.
pub(super) async fn counted_by_their_ids(store: &impl Backend) {
    for (thread_name, id) in [("x", "a/one"), ("y", "a/one"), ("z", "a/one"), ("x", "a/two"), ("y", "b/one")] {
        expect_ok(store.commit(Batch::new(thread(thread_name)).with(put(id, "1")), NOW)).await;
    }
    let soon = NOW + Duration::from_millis(10);
    let short_lived = write("a/two", Expect::Any, value("1", Some(soon)));
    expect_ok(store.commit(Batch::new(thread("y")).with(short_lived), NOW)).await;
    let counts = async |now| Vec::from_iter(expect_ok(store.count_by_id(Table::State, now)).await);
    let all = |two| vec![("a/one".into(), 3), ("a/two".into(), two), ("b/one".into(), 1)];
    assert_eq!(counts(NOW).await, all(2), "all rows are counted by id");
    assert_eq!(counts(soon).await, all(1), "an expired row is not counted");
    assert!(expect_ok(store.count_by_id(Table::Versions, NOW)).await.is_empty(), "other tables are not counted");
}

/// The ids and partitions of all pages.
async fn scan_all_pages(store: &impl Backend, mut scan: Scan) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    loop {
        let page = expect_ok(store.scan(scan.clone(), NOW)).await;
        assert!(page.rows.len() <= scan.limit, "a page respects the limit");
        rows.extend(page.rows.iter().map(|(key, _)| (key.id.to_string(), key.partition.to_string())));
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return rows,
        }
    }
}
