//! Contract of index terms: a scan with terms finds exactly the rows that have them, in the order and pages of any scan.

use std::time::Duration;

use smol_str::SmolStr;

use super::{NOW, expect_ok, put, thread, value, write};
use crate::backend::{Backend, Batch, Change, Cursor, Expect, Partition, Scan, Scope, Table, Terms, Write};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

/// A batch with one write of a row that has these terms.
pub(super) fn indexed(partition: Partition, write: Write, terms: &[&str]) -> Batch {
    let key = (write.table, write.id.clone());
    let mut batch = Batch::new(partition).with(write);
    batch.terms.insert(key, Terms::new(terms.iter().copied()));
    batch
}

/// The ids of all rows with these terms, with pages of two rows.
pub(super) async fn find(store: &impl Backend, scope: Scope, terms: &[&str], now: Timestamp) -> Vec<String> {
    let terms = terms.iter().map(SmolStr::new).collect();
    pages(store, Scan { terms, ..Scan::new(Table::State, scope).limit(2) }, now).await
}

async fn pages(store: &impl Backend, mut scan: Scan, now: Timestamp) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let page = expect_ok(store.scan(scan.clone(), now)).await;
        assert!(page.rows.len() <= scan.limit, "a page respects the limit");
        let may_be_short = page.next.is_none() || scan.read_limit < usize::MAX;
        assert!(page.rows.len() == scan.limit || may_be_short, "only the last page is short");
        assert!(scan.after.is_none() || page.next != scan.after, "a cursor advances");
        ids.extend(page.rows.iter().map(|(key, _)| key.id.to_string()));
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return ids,
        }
    }
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("a valid name")
}

/// Ids that differ early, late and only in their length, in three threads of two tenants.
pub(super) async fn found_in_order_and_pages(store: &impl Backend) {
    let (mut all, mut number) = (Vec::new(), 0);
    for prefix in ["a", "ab", "call_0199a5c0-1e240-7000-8000", "call_0199a5c0-1e241-7000-8000", "x\u{10ffff}"] {
        for tail in ["", "1", "22222222222222222222"] {
            let (id, partition) = (format!("{prefix}{tail}"), number % 3);
            let partition = match partition {
                0 => Partition::for_thread(tenant("b"), ThreadId::new("t").expect("a valid id")),
                1 => thread("t"),
                _ => thread("u"),
            };
            let terms: &[&str] = [&["even", "all"][..], &["odd", "all"], &["all"], &[]][number % 4];
            expect_ok(store.commit(indexed(partition.clone(), put(&id, "1"), terms), NOW)).await;
            all.push((id, partition, terms));
            number += 1;
        }
    }
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    for scope in
        [Scope::All, Scope::Tenant(Tenant::default()), Scope::Tenant(tenant("b")), Scope::Partition(thread("t"))]
    {
        let in_scope = |partition: &Partition| match &scope {
            Scope::All => true,
            Scope::Tenant(tenant) => partition.tenant == *tenant,
            Scope::Partition(only) => partition == only,
        };
        for wanted in [&["all"][..], &["even"], &["all", "odd"], &["odd", "even"], &["al"], &["none"]] {
            for (prefix, descending) in
                [("", false), ("", true), ("call_0199a5c0-1e2", true), ("a", false), ("ab1", true)]
            {
                let matches = |(id, partition, terms): &&(String, Partition, &[&str])| {
                    in_scope(partition) && id.starts_with(prefix) && wanted.iter().all(|term| terms.contains(term))
                };
                let mut expected: Vec<String> = all.iter().filter(matches).map(|(id, ..)| id.clone()).collect();
                if descending {
                    expected.reverse();
                }
                let terms: Vec<SmolStr> = wanted.iter().map(SmolStr::new).collect();
                let scan = Scan { terms, descending, ..Scan::new(Table::State, scope.clone()).prefix(prefix).limit(2) };
                let context = format!("{wanted:?} in {scope:?} with prefix `{prefix}`, descending: {descending}");
                for read_limit in [usize::MAX, 1, 2, 5, 1000] {
                    let scan = Scan { read_limit, ..scan.clone() };
                    assert_eq!(pages(store, scan, NOW).await, expected, "{context}, reading {read_limit}");
                }
                // A cursor may be any position, also one without a row.
                for after in ["", "ab", "call_0199a5c0-1e240-7000-8000", "call_0199a5c0-1e240-9", "z"] {
                    let last = crate::backend::RowKey { partition: thread("t"), table: Table::State, id: after.into() };
                    let position = (after.to_owned(), thread("t").to_string());
                    let is_after = |id: &String| {
                        let at = all.iter().find(|(row, ..)| row == id).map(|(_, partition, _)| partition.to_string());
                        let at = (id.clone(), at.unwrap_or_default());
                        if descending { at < position } else { at > position }
                    };
                    let expected: Vec<String> = expected.iter().filter(|id| is_after(id)).cloned().collect();
                    let scan = Scan { after: Some(Cursor(last)), ..scan.clone() };
                    assert_eq!(pages(store, scan, NOW).await, expected, "{context} after `{after}`");
                }
            }
        }
    }
    let other = Scan { terms: vec!["all".into()], ..Scan::new(Table::Versions, Scope::All) };
    assert!(expect_ok(store.scan(other, NOW)).await.rows.is_empty(), "terms belong to a table");
}

/// The terms of a row follow its puts, and a row that is gone is not found.
pub(super) async fn replaced_kept_and_removed(store: &impl Backend) {
    let found = async |term: &str, now| find(store, Scope::All, &[term], now).await;
    let commit = async |batch: Batch, now| expect_ok(store.commit(batch, now)).await;
    let (soon, later) = (NOW + Duration::from_secs(1), NOW + Duration::from_secs(9));
    for id in ["a", "b", "c"] {
        commit(indexed(thread("t"), put(id, "1"), &["old"]), NOW).await;
    }
    assert_eq!(found("old", NOW).await, ["a", "b", "c"]);
    commit(indexed(thread("t"), put("a", "2"), &["new"]), NOW).await;
    commit(Batch::new(thread("t")).with(put("b", "2")), NOW).await;
    assert_eq!(
        (found("old", NOW).await, found("new", NOW).await),
        (vec!["c".into()], vec!["a".into()]),
        "a put replaces the terms"
    );
    let touch = write("c", Expect::Any, Change::Touch { expires: Some(soon) });
    commit(indexed(thread("t"), touch, &["touched"]), NOW).await;
    assert_eq!(
        (found("old", NOW).await, found("touched", NOW).await),
        (vec!["c".to_owned()], vec![]),
        "a touch keeps the terms"
    );
    assert!(found("old", soon).await.is_empty(), "an expired row is not found");
    let restore = Change::Restore { value: b"3".as_slice().into(), schema: 1, expires: Some(later), version: 7 };
    commit(indexed(thread("t"), write("c", Expect::Any, restore), &["old", "new"]), soon).await;
    assert_eq!(
        (found("old", soon).await, found("new", soon).await),
        (vec!["c".into()], vec!["a".to_owned(), "c".into()])
    );
    commit(Batch::new(thread("t")).with(write("a", Expect::Any, Change::Remove)), soon).await;
    assert_eq!(found("new", soon).await, ["c"], "a removed row is not found");
    commit(indexed(thread("t"), write("a", Expect::Absent, value("4", None)), &["new"]), soon).await;
    assert_eq!(found("new", soon).await, ["a", "c"], "a recreated row is found again");
    assert_eq!(store.sweep(10, later).await, Ok(1));
    assert_eq!(
        (found("new", later).await, found("old", later).await),
        (vec!["a".to_owned()], vec![]),
        "a swept row is not found"
    );
    commit(indexed(thread("t"), put("c", "5"), &["old"]), later).await;
    assert_eq!(found("old", later).await, ["c"]);
    let refused = indexed(thread("t"), write("c", Expect::Absent, value("6", None)), &["refused"]);
    assert!(store.commit(refused, later).await.is_err());
    assert!(found("refused", later).await.is_empty(), "nothing of a refused batch is found");
}
