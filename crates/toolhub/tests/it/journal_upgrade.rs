//! Calls that an earlier version recorded, without the index terms of today, are found by every filter.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    BoxFuture, CallQuery, Sqlite, StatusScope, ToolName,
    backend::{Backend, Batch, Change, Expect, Page, Row, RowKey, Scan, Scope, StoreError, Table, Watcher},
    clock::Timestamp,
    ids::CallId,
    prelude::*,
    sqlite::Options,
    testing::{AssertOutcome, ScriptStep, scripted},
};
use toolhub_testkit::TempFolder;

use crate::intercepted_store::{CommitAction, InterceptedStore};

/// A store as an earlier version wrote it: calls have the first layout and no terms.
struct EarlierVersion(Arc<dyn Backend>);

impl Backend for EarlierVersion {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.0.load(keys, now)
    }
    fn commit(&self, mut batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        batch.terms.clear();
        for write in batch.writes.iter_mut().filter(|write| write.table == Table::Calls) {
            if let Change::Put { schema, .. } = &mut write.change {
                *schema = 1;
            }
        }
        self.0.commit(batch, now)
    }
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.0.scan(scan, now)
    }
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(most, now)
    }
    fn watch(&self, table: Table) -> Watcher {
        self.0.watch(table)
    }
}

fn tools() -> [ToolBuilder; 2] {
    [scripted("pay", [ScriptStep::Fail(ToolError::new("no money"))]).0, scripted("look", []).0.read_only()]
}

/// Makes seven calls: `pay` fails once and succeeds twice, `look` succeeds four times. Returns the id of the failed one.
async fn make_calls_as_earlier_version(store: Arc<dyn Backend>) -> CallId {
    let hub = ToolHub::builder().shared_store(Arc::new(EarlierVersion(store))).tools(tools()).build().await.unwrap();
    let failed = hub.call("pay", json!({})).thread("t").await.id;
    for tool in ["pay", "pay", "look", "look", "look", "look"] {
        hub.call(tool, json!({})).thread("t").await.assert_success();
    }
    hub.shutdown(Duration::from_secs(60)).await;
    failed
}

/// Every filter finds what it found before the upgrade.
async fn check_filters(hub: &ToolHub, failed: CallId, context: &str) {
    let tenant = Tenant::default();
    let pay = || Some(ToolName::new("pay").unwrap());
    let (error, thread) = (Some(toolhub::Status::Error), Some(ThreadId::new("t").unwrap()));
    let all = CallQuery::default;
    for (query, expected) in [
        (all(), 7),
        (CallQuery { tool: pay(), ..all() }, 3),
        (CallQuery { tool: pay(), limit: 1, ..all() }, 1),
        (CallQuery { status: error, ..all() }, 1),
        (CallQuery { tool: pay(), status: error, ..all() }, 1),
        (CallQuery { thread: thread.clone(), status: error, ..all() }, 1),
        (CallQuery { code: Some(ErrorKind::ToolError), ..all() }, 1),
        (CallQuery { tool: Some(ToolName::new("look").unwrap()), status: error, ..all() }, 0),
        (CallQuery { tool: pay(), status: Some(toolhub::Status::Success), thread, ..all() }, 2),
    ] {
        let found = hub.calls(&tenant, &query).await.unwrap().calls;
        assert_eq!(found.len(), expected, "{context}: {query:?}");
        if query.status == error && expected == 1 {
            assert_eq!(found[0].id, failed, "{context}: {query:?}");
        }
    }
    let caller = hub.calls(&tenant, &all()).await.unwrap().calls[0].caller.clone();
    let of_caller = hub.calls(&tenant, &CallQuery { caller: Some(caller), ..all() }).await.unwrap();
    assert_eq!(of_caller.calls.len(), 7, "{context}");
    let stats = hub.recent_stats("pay", Duration::from_secs(3600)).await.unwrap().unwrap();
    assert_eq!((stats.calls, stats.errors.get("tool_error")), (3, Some(&1)), "{context}");
    let thread = ThreadId::new("t").unwrap();
    for scope in [StatusScope::Thread(&tenant, &thread), StatusScope::Shared] {
        let status = hub.tool_status("pay", scope).await.unwrap();
        assert_eq!(status.reason, "executed successfully", "{context}");
        assert!(status.last_success_time.is_some(), "{context}");
    }
}

/// How many calls have the layout of an earlier version.
async fn earlier_calls(store: &dyn Backend) -> usize {
    let page = store.scan(Scan::new(Table::Calls, Scope::All), Timestamp::default()).await.unwrap();
    page.rows.iter().filter(|(_, row)| row.schema == 1).count()
}

fn is_rewrite(batch: &Batch) -> bool {
    batch.writes.iter().any(|write| write.table == Table::Calls && matches!(write.expect, Expect::Same(_)))
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_earlier_version_are_found_before_and_after_they_are_indexed() {
    let store: Arc<InterceptedStore> = Arc::default();
    let failed = make_calls_as_earlier_version(store.memory.clone()).await;
    let (is_blocked, rewrites) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (blocked, counted) = (is_blocked.clone(), rewrites.clone());
    store.before_commits(move |batch| {
        let is_rewrite = is_rewrite(batch);
        counted.fetch_add(usize::from(is_rewrite), Ordering::Relaxed);
        let fails = is_rewrite && blocked.load(Ordering::Relaxed);
        Box::pin(async move { if fails { CommitAction::Unavailable } else { CommitAction::Apply } })
    });
    let build = async || ToolHub::builder().shared_store(store.clone()).tools(tools()).build().await.unwrap();

    let hub = build().await;
    check_filters(&hub, failed, "not indexed").await;
    assert_eq!(earlier_calls(&*store.memory).await, 7);
    is_blocked.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(earlier_calls(&*store.memory).await, 0, "all calls are rewritten");
    check_filters(&hub, failed, "indexed").await;
    hub.shutdown(Duration::from_secs(60)).await;

    rewrites.store(0, Ordering::Relaxed);
    let hub = build().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    check_filters(&hub, failed, "restarted").await;
    assert_eq!(rewrites.load(Ordering::Relaxed), 0, "the store tells that it is done");
}

/// Makes a file one of schema 2, which had no terms.
fn downgrade(path: &Path) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(
        "DROP INDEX by_id; CREATE INDEX by_id ON rows (tab, id, partition);
         DROP TRIGGER remove_blocks; DROP TABLE term_blocks; ALTER TABLE rows DROP COLUMN terms;
         DELETE FROM steps WHERE version > 2",
    )
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_an_earlier_schema_is_indexed_in_the_background() {
    let folder = TempFolder::new();
    let path = folder.path().join("store.db");
    let failed = make_calls_as_earlier_version(Arc::new(Sqlite::open(&path, Options::default()).unwrap())).await;
    downgrade(&path);
    let store = Arc::new(Sqlite::open(&path, Options::default()).unwrap());
    let hub = ToolHub::builder().shared_store(store.clone()).tools(tools()).build().await.unwrap();
    check_filters(&hub, failed, "whatever is indexed by now").await;
    while earlier_calls(&*store).await > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check_filters(&hub, failed, "indexed").await;
}

#[tokio::test]
async fn the_usual_pairs_of_filters_are_one_term_and_others_have_a_read_limit() {
    let store: Arc<InterceptedStore> = Arc::default();
    let hub = ToolHub::builder().shared_store(store.clone()).tools(tools()).build().await.unwrap();
    hub.call("pay", json!({})).await.assert_error(ErrorKind::ToolError);
    let pay = || Some(ToolName::new("pay").unwrap());
    let error = Some(toolhub::Status::Error);
    let caller = hub.calls(&Tenant::default(), &CallQuery::default()).await.unwrap().calls[0].caller.clone();
    let all = CallQuery::default;
    for (query, terms) in [
        (CallQuery { tool: pay(), ..all() }, 1),
        (CallQuery { tool: pay(), status: error, ..all() }, 1),
        (CallQuery { tool: pay(), code: Some(ErrorKind::ToolError), ..all() }, 1),
        (CallQuery { tool: pay(), caller: Some(caller.clone()), ..all() }, 2),
        (CallQuery { tool: pay(), status: error, caller: Some(caller), ..all() }, 2),
    ] {
        store.scanned.lock().unwrap().clear();
        assert_eq!(hub.calls(&Tenant::default(), &query).await.unwrap().calls.len(), 1, "{query:?}");
        let scans = store.scanned.lock().unwrap();
        let scan = scans.iter().find(|scan| scan.table == Table::Calls).unwrap();
        assert_eq!(scan.terms.len(), terms, "{query:?}: {:?}", scan.terms);
        assert_eq!(scan.read_limit < usize::MAX, terms > 1, "{query:?}");
    }
}
