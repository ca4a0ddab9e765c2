//! Contract of watching: the versions of a row arrive in order, and only for the watched table.

use std::time::Duration;

use futures_util::StreamExt;

use super::{NOW, expect_ok, put, thread, write};
use crate::backend::{Backend, Batch, Change, Durability, Expect, Table, WatchEvent, Write};

pub(super) async fn in_order(store: &impl Backend, other: Table) {
    let mut watcher = store.watch(Table::State);
    let batch = |writes| Batch { writes, ..Batch::new(thread("t")) };
    expect_ok(store.commit(batch(vec![put("a", "1")]), NOW)).await;
    expect_ok(store.commit(batch(vec![put("a", "2"), put("b", "1")]), NOW)).await;
    let elsewhere = Write { table: other, durability: Durability::KillSafe, ..put("a", "1") };
    expect_ok(store.commit(batch(vec![elsewhere]), NOW)).await;
    let removals = vec![write("a", Expect::Any, Change::Remove), write("none", Expect::Any, Change::Remove)];
    expect_ok(store.commit(batch(removals), NOW)).await;
    let mut events = Vec::new();
    while events.len() < 4 {
        // A store that sends no event must not hang the suite.
        match tokio::time::timeout(Duration::from_secs(10), watcher.next()).await {
            Ok(Some(WatchEvent::Row(key, version))) => events.push((key.id.to_string(), version)),
            // A watcher that has just subscribed may receive `Lagged`.
            Ok(Some(WatchEvent::Lagged)) => {}
            other => panic!("unexpected {other:?} after {events:?}"),
        }
    }
    let versions =
        |id: &str| events.iter().filter(|(row, _)| row == id).map(|(_, version)| *version).collect::<Vec<_>>();
    assert_eq!(
        (versions("a"), versions("b")),
        (vec![Some(1), Some(2), None], vec![Some(1)]),
        "versions arrive in order"
    );
}
