//! Scans: page after page, without gap or repetition, in both directions.

use std::time::Duration;

use super::{NOW, answered, put, thread, value, write};
use crate::backend::{Backend, Batch, Cursor, Expect, Key, Scan, Scope, Table};
use toolhub_types::ids::Tenant;

pub(super) async fn without_gap_or_repetition(store: &impl Backend) {
    let mut all = Vec::new();
    for n in 0..25 {
        let partition = thread(["x", "y", "z"][n % 3]);
        answered(store.commit(Batch::on(partition.clone()).with(put(&format!("k{:02}", n / 2), "1")), NOW)).await;
        all.push((format!("k{:02}", n / 2), partition.to_string()));
        answered(store.commit(Batch::on(partition).with(put("other", "1")), NOW)).await;
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
            let scan = Scan { newest, ..Scan::of(Table::State, scope.clone()).prefix("k").limit(4) };
            assert_eq!(pages(store, scan).await, expected, "{scope:?}, newest first: {newest}");
        }
    }
    let foreign = Scan::of(Table::State, Scope::Tenant(Tenant::new("other").expect("a good name")));
    assert!(answered(store.scan(foreign, NOW)).await.rows.is_empty());
    let other_table = Scan::of(Table::Calls, Scope::All);
    assert!(answered(store.scan(other_table, NOW)).await.rows.is_empty());
}

/// A cursor is any place in the order: no row need lie there, and it may lie ahead of all that is asked for or behind it.
pub(super) async fn behind_any_cursor(store: &impl Backend) {
    let mut all = Vec::new();
    for partition in [thread("x"), thread("y")] {
        for id in ["a1", "k1", "k2", "k3", "k\u{10ffff}", "z1"] {
            answered(store.commit(Batch::on(partition.clone()).with(put(id, "1")), NOW)).await;
            all.push((id.to_owned(), partition.to_string()));
        }
    }
    all.retain(|(id, _)| id.starts_with('k'));
    all.sort();
    for scope in [Scope::All, Scope::Tenant(Tenant::default()), Scope::Partition(thread("x"))] {
        for (id, newest) in ["", "a1", "k", "k2", "k9", "l", "z1"].into_iter().flat_map(|id| [(id, false), (id, true)])
        {
            let last = Key { partition: thread("x"), table: Table::State, id: id.into() };
            let place = (id.to_owned(), last.partition.to_string());
            let mut expected = all.clone();
            expected.retain(|row| if newest { *row < place } else { *row > place });
            expected.retain(|(_, at)| !matches!(scope, Scope::Partition(_)) || *at == place.1);
            if newest {
                expected.reverse();
            }
            let scan = Scan::of(Table::State, scope.clone()).prefix("k").limit(2);
            let scan = Scan { newest, after: Some(Cursor(last)), ..scan };
            assert_eq!(pages(store, scan).await, expected, "{scope:?} behind `{id}`, newest first: {newest}");
        }
    }
}

/// Rows are counted by their ids over all partitions; one whose time has passed does not count.
pub(super) async fn counted_by_their_ids(store: &impl Backend) {
    for (home, id) in [("x", "a/one"), ("y", "a/one"), ("z", "a/one"), ("x", "a/two"), ("y", "b/one")] {
        answered(store.commit(Batch::on(thread(home)).with(put(id, "1")), NOW)).await;
    }
    let soon = NOW + Duration::from_millis(10);
    let brief = write("a/two", Expect::Any, value("1", Some(soon)));
    answered(store.commit(Batch::on(thread("y")).with(brief), NOW)).await;
    let many = async |now| Vec::from_iter(answered(store.tally(Table::State, now)).await);
    let all = |two| vec![("a/one".into(), 3), ("a/two".into(), two), ("b/one".into(), 1)];
    assert_eq!(many(NOW).await, all(2), "how many rows have each id");
    assert_eq!(many(soon).await, all(1), "one whose time has passed is not counted");
    assert!(answered(store.tally(Table::Versions, NOW)).await.is_empty(), "other tables are not counted");
}

/// The ids and partitions of all pages.
async fn pages(store: &impl Backend, mut scan: Scan) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    loop {
        let page = answered(store.scan(scan.clone(), NOW)).await;
        assert!(page.rows.len() <= scan.limit, "a page is no longer than asked");
        seen.extend(page.rows.iter().map(|(key, _)| (key.id.to_string(), key.partition.to_string())));
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return seen,
        }
    }
}
