//! Commits that the store lost are told to those whom they concern, and counted.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use toolhub::{
    BoxFuture, CallQuery, Status,
    backend::{Backend, Batch, Change, LossReport, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher, Write},
    clock::Timestamp,
    events::EventKind,
    prelude::*,
};

/// A memory store that claims to have lost commits.
#[derive(Default)]
struct LossyStore {
    memory: Memory,
    losses: Mutex<Vec<LossReport>>,
    /// Whether it acknowledges the ends of calls without keeping them.
    loses_ends: AtomicBool,
}

impl LossyStore {
    fn lose(&self, commits: u64, since: i64, changed: &[(&str, &[CallId])]) {
        let report = LossReport::new(commits, Timestamp::from_millis(since), changed.iter().copied());
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    }
}

impl Backend for LossyStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.memory.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        let is_record = |write: &Write| write.table == Table::Calls && write.change != Change::Keep;
        if self.loses_ends.load(Ordering::Relaxed) && batch.writes.iter().any(is_record) {
            return Box::pin(async move { Ok(vec![1; batch.writes.len()]) });
        }
        self.memory.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.memory.scan(scan, now)
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).iter().skip(seen).cloned().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn each_tenant_hears_of_its_own_lost_commits_once_and_finds_them_later() {
    let store = std::sync::Arc::new(LossyStore::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let mut events = hub.subscribe();
    let ids: Vec<CallId> = (0..30).map(|n| CallId::mint(Timestamp::from_millis(n))).collect();
    store.lose(2, 9_000, &[("main/t/a", &ids[..1]), ("other/t/b", &ids[1..2])]);
    store.lose(1, 5_000, &[("main/t/a", &ids[..1]), ("main/t/c", &ids[2..])]);
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let event = events.next().await;
        if let EventKind::StoreLost { commits, since, partitions, calls, other_calls, .. } = &event.kind {
            let tenant = event.tenant.as_ref().map(ToString::to_string).unwrap_or_default();
            assert_eq!((*commits, since.millis()), (3, 5_000));
            heard.push((tenant, partitions.join(" "), calls.clone(), *other_calls));
        }
    }
    let of_main = [&ids[..1], &ids[2..21]].concat();
    let expected = [("main", "main/t/a main/t/c", of_main, 9), ("other", "other/t/b", ids[1..2].to_vec(), 0)];
    let owned = |(tenant, partitions, calls, others): (&str, &str, Vec<CallId>, u64)| {
        (tenant.to_owned(), partitions.to_owned(), calls, others)
    };
    assert_eq!(heard, expected.map(owned));
    assert_eq!(hub.lost_commits(), 3);

    store.lose(4, 9_000, &[("main/t/d", &[])]);
    let event = events.next().await;
    assert!(matches!(&event.kind, EventKind::StoreLost { commits: 4, .. }), "each loss is told once: {event:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let stored = hub.events_since(&Tenant::default(), 0).await.unwrap();
    let lost = stored.events.iter().filter(|event| event.event == "store.lost");
    assert_eq!(lost.map(|event| event.data["commits"].clone()).collect::<Vec<_>>(), [json!(3), json!(4)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_end_was_lost_does_not_stay_open() {
    let store = std::sync::Arc::new(LossyStore::default());
    let pay = tool("pay", async |_: NoArguments| Ok::<_, ToolError>("paid"));
    let hub = ToolHub::builder().store(store.clone()).tool(pay).build().await.unwrap();
    store.loses_ends.store(true, Ordering::Relaxed);
    let paid = hub.call("pay", json!({})).thread("a").await;
    assert_eq!(paid.status, Status::Success, "{paid:?}");
    store.loses_ends.store(false, Ordering::Relaxed);
    let (tenant, query) = (Tenant::default(), CallQuery { status: Some(Status::Executing), ..CallQuery::default() });
    let open = async || hub.calls(&tenant, &query).await.unwrap().calls.len();
    assert_eq!(open().await, 1, "its opening record is there again");

    store.lose(1, 5_000, &[("main/t/a", &[paid.id])]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(open().await, 0);
    let outcome = hub.call_record(&tenant, paid.id).await.unwrap().unwrap().outcome.unwrap();
    assert_eq!(outcome.error_kind(), Some(ErrorKind::Interrupted));
}
