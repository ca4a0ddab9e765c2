//! Scans: page after page, without gap or repetition, in both directions.

use super::{NOW, answered, put, thread};
use crate::{
    backend::{Backend, Batch, Scan, Scope, Table},
    ids::Tenant,
};

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
