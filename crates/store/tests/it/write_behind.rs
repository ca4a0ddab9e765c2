//! A store that is written behind: acknowledged at once, whole and in order later, and no version comes twice.

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

use crate::{
    fixtures::{NOW, commit, get, open, put, thread},
    kill::run_and_kill,
};

/// Nothing is written in such a time unless somebody asks.
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
    let (folder, made) = (TempFolder::in_memory(), AtomicU32::new(0));
    contract::check(async || {
        let path = folder.join(made.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(open_write_behind(Arc::new(open(&path))).await)
    })
    .await;
}

#[tokio::test]
async fn random_programs_find_no_difference_whenever_it_is_written() {
    let programs = soak(300, 20_000);
    let often = Options { flush_interval: Duration::from_millis(1), ..Options::default() };
    let make = async || Arc::new(WriteBehind::open(Arc::new(Memory::new()), often.clone()).await.unwrap());
    contract::check_against_model(make, programs, fastrand::u64(..)).await;
}

/// A store behind that can be told to make trouble.
#[derive(Default)]
struct FaultyBackend {
    inner: Memory,
    fault: AtomicU8,
}

const NO_FAULT: u8 = 0;
/// Nothing is written.
const UNAVAILABLE: u8 = 1;
/// It is written, but nobody hears of it.
const LOSE_REPLY: u8 = 2;
/// Only state is taken.
const ONLY_STATE: u8 = 3;

impl Backend for FaultyBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.inner.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            match self.fault.load(Ordering::SeqCst) {
                UNAVAILABLE => Err(StoreError::Unavailable("away".into())),
                LOSE_REPLY => {
                    self.inner.commit(batch, now).await?;
                    Err(StoreError::Unknown("mute".into()))
                }
                ONLY_STATE if batch.writes.iter().any(|write| write.table == Table::Calls) => {
                    Err(StoreError::Refused("only state is kept here".into()))
                }
                _ => self.inner.commit(batch, now).await,
            }
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.inner.scan(scan, now)
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.inner.sweep(most, now)
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
    let seen = get(&store, "t", "a").await.unwrap().unwrap().version;
    let mut careful = put("a", b"2");
    careful.expect = Expect::Same(seen);
    assert_eq!(commit(&store, "t", vec![careful.clone(), put("c", b"1")]).await, Ok(vec![2, 1]));
    assert!(matches!(commit(&store, "t", vec![careful]).await, Err(StoreError::Conflict { found: Some(2), .. })));
    let mut gone = put("b", b"");
    gone.change = Change::Remove;
    commit(&store, "t", vec![gone]).await.unwrap();
    let rows = async |store: &dyn Backend| {
        let keys = ["a", "b", "c"].map(|id| RowKey { partition: thread("t"), table: Table::State, id: id.into() });
        store.load(&keys, NOW).await.unwrap()
    };
    let all = rows(&store).await;
    assert_eq!(all.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert!(rows(&*inner).await.iter().all(Option::is_none), "nothing is written yet");
    assert!(store.pending_bytes() > 0);
    store.flush().await.unwrap();
    assert_eq!(store.pending_bytes(), 0);
    assert_eq!(rows(&*inner).await, all, "what is written is what was seen, with versions, stamps and times");
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
    assert_eq!(row(&store, "a").await.unwrap().1, last, "reads go on");
    assert!(store.flush().await.is_err());
    assert!(store.scan(Scan::new(Table::State, Scope::All), NOW).await.is_err(), "a scan would not see all");
    inner.fault.store(NO_FAULT, Ordering::SeqCst);
    assert_eq!(commit(&store, "t", vec![put("a", b"1")]).await, Ok(vec![last + 1]), "it goes on unaided");
    store.close().await.unwrap();
    assert_eq!(row(&*inner, "a").await, Some((b"1".to_vec(), last + 1)));
    let all = inner.scan(Scan::new(Table::State, Scope::All).prefix("row-"), NOW).await.unwrap();
    assert_eq!(all.rows.len() as u64, last - 1, "nothing that was acknowledged is missing");
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
        // Dropped or closed, it is a clean end.
        if version % 2 == 0 {
            store.close().await.unwrap();
        }
    }
    let backup = folder.join("backup.db");
    let store = Arc::new(open(&path));
    store.backup(&backup).await.unwrap();
    drop(store);
    sqlite::restore(&backup, &path).unwrap();
    let inner = Arc::new(open(&path));
    let store = open_write_behind(inner.clone()).await;
    let told = commit(&store, "t", vec![put("a", b"1")]).await.unwrap()[0];
    let again = commit(&store, "t", vec![put("a", b"2"), put("new", b"2")]).await.unwrap();
    assert!(told > 1 << 32);
    store.flush().await.unwrap();
    assert_eq!(row(&*inner, "a").await.unwrap().1, again[0], "what was told is what is written");
    assert_eq!(row(&*inner, "new").await.unwrap().1, again[1]);
}

/// Tells the test binary that it is the process to be killed, and which file it writes.
const FILE: &str = "TOOLHUB_BEHIND_TO_BE_KILLED";

/// Not a test but the process that is killed; it does nothing unless it is told its file.
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
        let test = "behind::writes_behind_until_it_is_killed";
        let told = run_and_kill(test, (FILE, &path), lines, |sort, version| {
            if sort == 0 {
                assert!(version > highest, "version {version} was given out before {highest}");
                highest = version;
            }
        });
        let store = open(&path);
        let a = row(&store, "a").await;
        assert_eq!(a, row(&store, "b").await, "nothing by halves");
        let version = a.map_or(0, |(_, version)| version);
        let synced = told.get(&1).copied().unwrap_or(0);
        assert!(synced <= version && version <= highest + 1, "{synced} {version} {highest}");
        // One more may have been acknowledged than could be told.
        highest = highest.max(version);
        // Also without anything before it, the store gives no version out twice.
        if fastrand::bool() {
            let version = commit(&store, "t", vec![put("a", b"plain"), put("b", b"plain")]).await.unwrap()[0];
            assert!(version > highest, "version {version} was given out before {highest}");
            highest = version;
        }
    }
}
