//! Write-behind store: immediate acknowledgement, complete and ordered flushes, and unique versions.

use std::{
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_core::future::BoxFuture;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Expect, Memory, Page, Row, RowKey, Scan, Scope, StoreError, Table, Watcher},
    clock::Timestamp,
    testing::contract,
};
use toolhub_store::{WriteBehind, sqlite, write_behind::Options};
use toolhub_testkit::{TempFolder, soak};
use toolhub_types::store_role::StoreRole;

use crate::{
    fixtures::{NOW, commit, get, open, put, thread},
    kill::run_and_kill,
};

/// No scheduled flush.
const NEVER: Duration = Duration::MAX;

async fn open_write_behind(inner: Arc<dyn Backend>) -> WriteBehind {
    WriteBehind::open(inner, Options { flush_interval: NEVER, ..Options::default() }).await.unwrap()
}

/// The value and version of a row.
async fn row(store: &impl Backend, id: &str) -> Option<(Vec<u8>, u64)> {
    get(store, "t", id).await.unwrap().map(|row| (row.value.to_vec(), row.version.number))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_written_behind_keeps_every_promise() {
    contract::check(async || Arc::new(open_write_behind(Arc::new(Memory::new())).await)).await;
    let (folder, count) = (TempFolder::in_memory(), AtomicU32::new(0));
    contract::check(async || {
        let path = folder.join(count.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(open_write_behind(Arc::new(open(&path))).await)
    })
    .await;
}

#[tokio::test]
async fn random_programs_find_no_difference_whenever_it_is_written() {
    let programs = soak(300, 20_000);
    let options = Options { flush_interval: Duration::from_millis(1), ..Options::default() };
    let make = async || Arc::new(WriteBehind::open(Arc::new(Memory::new()), options.clone()).await.unwrap());
    contract::check_against_model(make, programs, fastrand::u64(..)).await;
}

/// An inner store with fault injection.
#[derive(Default)]
struct FaultyBackend {
    inner: Memory,
    fault: AtomicU8,
}

const NO_FAULT: u8 = 0;
/// Commits fail and write nothing.
const UNAVAILABLE: u8 = 1;
/// Commits are written, but their replies are lost.
const LOSE_REPLY: u8 = 2;
/// Only the state table is accepted.
const ONLY_STATE: u8 = 3;
/// Commits panic and write nothing.
const PANIC: u8 = 4;
/// Commits are written and panic afterwards.
const PANIC_AFTERWARDS: u8 = 5;

impl Backend for FaultyBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.inner.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            match self.fault.load(Ordering::SeqCst) {
                UNAVAILABLE => Err(StoreError::Unavailable("simulated outage".into())),
                LOSE_REPLY => {
                    self.inner.commit(batch, now).await?;
                    Err(StoreError::Unknown("simulated lost reply".into()))
                }
                ONLY_STATE if batch.writes.iter().any(|write| write.table == Table::Calls) => {
                    Err(StoreError::Refused("only state is supported".into()))
                }
                PANIC => panic!("simulated panic"),
                PANIC_AFTERWARDS => {
                    self.inner.commit(batch, now).await?;
                    panic!("simulated panic")
                }
                _ => self.inner.commit(batch, now).await,
            }
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.inner.scan(scan, now)
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.inner.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.inner.watch(table)
    }
}

#[tokio::test]
async fn what_is_acknowledged_is_seen_at_once_and_written_later_batch_by_batch() {
    let inner = Arc::new(FaultyBackend::default());
    let store = open_write_behind(inner.clone()).await;
    assert!(store.is_write_behind() && !inner.is_write_behind());
    commit(&store, "t", vec![put("first", b"")]).await.unwrap();
    assert_eq!(commit(&store, "t", vec![put("a", b"1"), put("b", b"1")]).await, Ok(vec![1, 1]));
    let version = get(&store, "t", "a").await.unwrap().unwrap().version;
    let mut conditional = put("a", b"2");
    conditional.expect = Expect::Same(version);
    assert_eq!(commit(&store, "t", vec![conditional.clone(), put("c", b"1")]).await, Ok(vec![2, 1]));
    assert!(matches!(commit(&store, "t", vec![conditional]).await, Err(StoreError::Conflict { found: Some(2), .. })));
    let mut removal = put("b", b"");
    removal.change = Change::Remove;
    commit(&store, "t", vec![removal]).await.unwrap();
    let rows = async |store: &dyn Backend| {
        let keys = ["a", "b", "c"].map(|id| RowKey { partition: thread("t"), table: Table::State, id: id.into() });
        store.load(&keys, NOW).await.unwrap()
    };
    let all = rows(&store).await;
    assert_eq!(all.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert!(rows(&*inner).await.iter().all(Option::is_none), "nothing is flushed yet");
    assert!(store.pending_bytes() > 0);
    store.flush().await.unwrap();
    assert_eq!(store.pending_bytes(), 0);
    assert_eq!(
        rows(&*inner).await,
        all,
        "the flushed rows equal the buffered ones, including versions, stamps and timestamps"
    );
    assert_eq!(rows(&store).await, all);
}

#[tokio::test]
async fn a_store_that_is_away_is_waited_for_within_bounds_and_reads_go_on() {
    let inner = Arc::new(FaultyBackend::default());
    let store =
        WriteBehind::open(inner.clone(), Options { flush_interval: NEVER, max_pending_bytes: 20_000 }).await.unwrap();
    commit(&store, "t", vec![put("a", b"0")]).await.unwrap();
    inner.fault.store(UNAVAILABLE, Ordering::SeqCst);
    let mut last = 1;
    let refused = loop {
        match commit(&store, "t", vec![put("a", &vec![b'x'; 1000]), put(&format!("row-{last}"), b"")]).await {
            Ok(versions) => {
                assert_eq!(versions, [last + 1, 1]);
                last += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    assert!(last > 5, "{last}");
    assert_eq!(row(&store, "a").await.unwrap().1, last, "reads continue");
    assert!(store.flush().await.is_err());
    assert!(store.scan(Scan::new(Table::State, Scope::All), NOW).await.is_err(), "a scan would miss buffered rows");
    inner.fault.store(NO_FAULT, Ordering::SeqCst);
    assert_eq!(commit(&store, "t", vec![put("a", b"1")]).await, Ok(vec![last + 1]), "it recovers by itself");
    store.close().await.unwrap();
    assert_eq!(row(&*inner, "a").await, Some((b"1".to_vec(), last + 1)));
    let all = inner.scan(Scan::new(Table::State, Scope::All).prefix("row-"), NOW).await.unwrap();
    assert_eq!(all.rows.len() as u64, last - 1, "no acknowledged row is missing");
}

#[tokio::test]
async fn after_a_panic_nothing_is_acknowledged_until_everything_is_written_once() {
    let inner = Arc::new(FaultyBackend::default());
    let store = open_write_behind(inner.clone()).await;
    let mut acknowledged = commit(&store, "t", vec![put("a", b"0")]).await.unwrap()[0];
    for fault in [PANIC, PANIC_AFTERWARDS] {
        acknowledged = commit(&store, "t", vec![put("a", b"1")]).await.unwrap()[0];
        commit(&store, "other", vec![put("b", b"1")]).await.unwrap();
        inner.fault.store(fault, Ordering::SeqCst);
        for _ in 0..2 {
            assert!(matches!(store.flush().await, Err(StoreError::Unknown(_))));
            assert!(store.write_error().is_some());
        }
        let refused = commit(&store, "t", vec![put("a", b"2")]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert_eq!(row(&store, "a").await, Some((b"1".to_vec(), acknowledged)), "reads continue");
        inner.fault.store(NO_FAULT, Ordering::SeqCst);
        store.flush().await.unwrap();
        assert!(store.write_error().is_none());
        assert_eq!(row(&*inner, "a").await, Some((b"1".to_vec(), acknowledged)), "it is written once");
    }
    assert_eq!(commit(&store, "t", vec![put("a", b"2")]).await, Ok(vec![acknowledged + 1]));
    store.close().await.unwrap();
    assert_eq!(row(&*inner, "a").await, Some((b"2".to_vec(), acknowledged + 1)));
}

#[tokio::test]
async fn the_flusher_restarts_by_itself_after_a_panic() {
    let inner = Arc::new(FaultyBackend::default());
    let options = Options { flush_interval: Duration::from_millis(1), ..Options::default() };
    let store = WriteBehind::open(inner.clone(), options).await.unwrap();
    commit(&store, "t", vec![put("a", b"0")]).await.unwrap();
    inner.fault.store(PANIC, Ordering::SeqCst);
    commit(&store, "t", vec![put("a", b"1")]).await.unwrap();
    let wait_until_writable = async |writable: bool| {
        while store.write_error().is_none() != writable {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    wait_until_writable(false).await;
    inner.fault.store(NO_FAULT, Ordering::SeqCst);
    wait_until_writable(true).await;
    assert_eq!(row(&*inner, "a").await, Some((b"1".to_vec(), 2)));
}

#[tokio::test]
async fn a_lost_answer_writes_nothing_twice_and_a_refusal_reaches_who_asked() {
    let inner = Arc::new(FaultyBackend::default());
    let store = open_write_behind(inner.clone()).await;
    commit(&store, "t", vec![put("a", b"0")]).await.unwrap();
    for value in [b"1", b"2", b"3"] {
        commit(&store, "t", vec![put("a", value)]).await.unwrap();
    }
    inner.fault.store(LOSE_REPLY, Ordering::SeqCst);
    for _ in 0..5 {
        let _ = store.flush().await;
    }
    inner.fault.store(ONLY_STATE, Ordering::SeqCst);
    store.flush().await.unwrap();
    assert_eq!(row(&*inner, "a").await, Some((b"3".to_vec(), 4)));
    assert_eq!(row(&store, "a").await, Some((b"3".to_vec(), 4)));

    let mut call = put("call", b"");
    call.table = Table::Calls;
    let refused = commit(&store, "t", vec![call, put("a", b"4")]).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(row(&store, "a").await, Some((b"3".to_vec(), 4)));
    assert_eq!(commit(&store, "t", vec![put("a", b"4")]).await, Ok(vec![5]));
}

#[tokio::test]
async fn a_clean_end_counts_on_and_a_restored_store_begins_a_new_epoch() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    for version in 1..=4 {
        let store = open_write_behind(Arc::new(open(&path))).await;
        assert_eq!(commit(&store, "t", vec![put("a", b"1")]).await, Ok(vec![version]));
        // Both drop and close are a clean shutdown.
        if version % 2 == 0 {
            store.close().await.unwrap();
        }
    }
    let backup = folder.join("backup.db");
    let store = Arc::new(open(&path));
    store.backup(&backup).await.unwrap();
    drop(store);
    sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
    let inner = Arc::new(open(&path));
    let store = open_write_behind(inner.clone()).await;
    let first = commit(&store, "t", vec![put("a", b"1")]).await.unwrap()[0];
    let second = commit(&store, "t", vec![put("a", b"2"), put("new", b"2")]).await.unwrap();
    assert!(first > 1 << 32);
    store.flush().await.unwrap();
    assert_eq!(row(&*inner, "a").await.unwrap().1, second[0], "the returned version is the stored one");
    assert_eq!(row(&*inner, "new").await.unwrap().1, second[1]);
}

/// Makes the test binary act as the process to be killed; contains the file to write.
const FILE: &str = "TOOLHUB_BEHIND_TO_BE_KILLED";

/// Not a test but the process that is killed; does nothing without the environment variable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn writes_behind_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let options = Options { flush_interval: Duration::from_millis(5), ..Options::default() };
    let store = WriteBehind::open(Arc::new(open(Path::new(&path))), options).await.unwrap();
    for number in 0_u64.. {
        let text = number.to_string();
        let writes = vec![put("a", text.as_bytes()), put("b", text.as_bytes())];
        let version = commit(&store, "t", writes).await.unwrap()[0];
        std::io::stdout().write_all(format!("acknowledged 0 {version}\n").as_bytes()).unwrap();
        if number % 50 == 49 {
            store.flush().await.unwrap();
            std::io::stdout().write_all(format!("acknowledged 1 {version}\n").as_bytes()).unwrap();
        }
    }
}

#[tokio::test]
async fn after_a_kill_what_was_synced_is_there_and_no_version_comes_twice() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let kills = soak(6, 100);
    let mut highest = 0;
    for _ in 0..kills {
        let lines = fastrand::usize(1..400);
        let test = "write_behind::writes_behind_until_it_is_killed";
        let last = run_and_kill(test, (FILE, &path), lines, |writer, version| {
            if writer == 0 {
                assert!(version > highest, "version {version} is not higher than {highest}");
                highest = version;
            }
        });
        let store = open(&path);
        let a = row(&store, "a").await;
        assert_eq!(a, row(&store, "b").await, "no partial batch");
        let version = a.map_or(0, |(_, version)| version);
        let synced = last.get(&1).copied().unwrap_or(0);
        assert!(synced <= version && version <= highest + 1, "{synced} {version} {highest}");
        // The last acknowledgement may not have been printed before the kill.
        highest = highest.max(version);
        // Also without write-behind, the store assigns no version twice.
        if fastrand::bool() {
            let version = commit(&store, "t", vec![put("a", b"plain"), put("b", b"plain")]).await.unwrap()[0];
            assert!(version > highest, "version {version} is not higher than {highest}");
            highest = version;
        }
    }
}
