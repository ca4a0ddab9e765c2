//! Write-behind over every store: clean and unclean shutdowns, power failures, damage.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use fastrand::Rng;
use futures_core::future::BoxFuture;
use toolhub_storage::{
    backend::{
        Backend, Batch, Memory, Page, Partition, PartitionKind, Row, RowKey, Scan, SizeLimit, StoreError, Table,
        Watcher,
    },
    clock::Timestamp,
};
use toolhub_store::{Compressed, Files, WriteBehind, files::Options, write_behind};
use toolhub_testkit::TempFolder;
use toolhub_types::ids::{CallId, Tenant};

use crate::{
    fixtures::{NOW, commit, get, open, put},
    simulated_disk::SimulatedDisk,
};

/// Opens a store in a folder.
type OpenStore = fn(&Path) -> Arc<dyn Backend>;

const STORES: [(&str, OpenStore); 4] = [
    ("files", |path| Arc::new(Files::open(path, Options::default()).unwrap())),
    ("compressed files", |path| Arc::new(Files::open(path, Options { compression: true, backups: None }).unwrap())),
    ("sqlite", |path| Arc::new(open(&path.join("store.db")))),
    ("compressed sqlite", |path| Arc::new(Compressed(open(&path.join("store.db"))))),
];

async fn open_write_behind(inner: Arc<dyn Backend>) -> WriteBehind {
    let options =
        write_behind::Options { flush_interval: std::time::Duration::MAX, ..write_behind::Options::default() };
    WriteBehind::open(inner, options).await.unwrap()
}

/// Copies the folder as a process that crashes now would leave it.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn create_subfolder(root: &TempFolder, name: &str) -> PathBuf {
    let path = root.join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Writes a state that is long enough to be compressed; returns its version.
async fn write(store: &impl Backend) -> u64 {
    commit(store, "t", vec![put("cart/business", format!("\"{}\"", "tea ".repeat(100)).as_bytes())]).await.unwrap()[0]
}

/// Adapter for `Arc<dyn Backend>`.
struct DynBackend(Arc<dyn Backend>);

impl Backend for DynBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.0.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        self.0.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.0.scan(scan, now)
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.0.watch(table)
    }
}

// A single-threaded runtime: dropping the store joins the flusher, which must not need this thread.
#[tokio::test]
async fn a_clean_end_counts_on_and_after_an_unclean_one_no_version_comes_twice() {
    for (name, open) in STORES {
        let root = TempFolder::in_memory();
        let first = create_subfolder(&root, "first");
        for version in 1..=3 {
            let store = open_write_behind(open(&first)).await;
            assert_eq!(write(&store).await, version, "{name}");
            // Both drop and close are a clean shutdown.
            if version == 2 {
                store.close().await.unwrap();
            }
        }
        let plain = open(&first);
        assert_eq!(write(&DynBackend(plain)).await, 4, "{name}: it may be used without write-behind");

        let store = open_write_behind(open(&first)).await;
        let acknowledged = (write(&store).await, write(&store).await).1;
        assert_eq!(acknowledged, 6, "{name}");
        for next in ["plain", "behind"] {
            copy_folder(&first, &root.join(next));
            let mut last = acknowledged;
            for _ in 0..3 {
                let version = if next == "plain" {
                    write(&DynBackend(open(&root.join(next)))).await
                } else {
                    let store = open_write_behind(open(&root.join(next))).await;
                    let version = write(&store).await;
                    store.close().await.unwrap();
                    version
                };
                assert!(version > last && version < 1 << 53, "{name}, {next}: {version} after {last}");
                assert!(last == acknowledged || version == last + 1, "{name}, {next}: the epoch is raised only once");
                last = version;
            }
            let store = open_write_behind(open(&root.join(next))).await;
            assert!(write(&store).await > last, "{name}, {next}");
        }
    }
}

#[tokio::test]
async fn a_damaged_mark_is_taken_for_an_unclean_end() {
    for (name, open) in STORES {
        let root = TempFolder::in_memory();
        let path = create_subfolder(&root, "first");
        // Start in an epoch after the first, so that no default is correct by chance.
        let store = open_write_behind(open(&path)).await;
        write(&store).await;
        let copied = create_subfolder(&root, "copied");
        copy_folder(&path, &copied);
        drop(store);
        let store = open_write_behind(open(&copied)).await;
        let acknowledged = write(&store).await;
        assert!(acknowledged > 1 << 32, "{name}");
        let dead = create_subfolder(&root, "dead");
        copy_folder(&copied, &dead);
        drop(store);
        if name.ends_with("sqlite") {
            let file = rusqlite::Connection::open(dead.join("store.db")).unwrap();
            let corrupt = "UPDATE rows SET value = x'00', stamp = 99 WHERE id = '~behind'";
            assert_eq!(file.execute(corrupt, ()).unwrap(), 1);
        } else {
            let folders = fs::read_dir(dead.join("contexts")).unwrap().map(|folder| folder.unwrap().path());
            let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()));
            let record = files.into_iter().find(|file| file.to_string_lossy().contains("behind")).unwrap();
            fs::write(record, "nonsense").unwrap();
        }
        let mut last = acknowledged;
        for _ in 0..2 {
            let store = open_write_behind(open(&dead)).await;
            let version = write(&store).await;
            assert!(version > last && version < 1 << 53, "{name}: {version} after {last}");
            last = version;
        }
        let plain = open(&dead);
        assert_eq!(write(&DynBackend(plain)).await, last + 1, "{name}");
    }
}

#[tokio::test]
async fn what_was_flushed_and_a_clean_end_survive_a_loss_of_power_together() {
    let (root, mut random) = (TempFolder::in_memory(), Rng::with_seed(7));
    for round in 0..60 {
        let (disk, path) = (SimulatedDisk::default(), root.join("state"));
        let open = |disk: &SimulatedDisk| {
            Arc::new(
                Files::open_on(&path, Options { compression: round % 2 == 0, backups: None }, Arc::new(disk.clone()))
                    .unwrap(),
            )
        };
        let store = open_write_behind(open(&disk)).await;
        write(&store).await;
        store.flush().await.unwrap();
        for n in 0..5 {
            commit(&store, "t", vec![put(&format!("s{n}/business"), b"1")]).await.unwrap();
        }
        let after = if round % 3 == 0 {
            store.flush().await.unwrap();
            let after = disk.cut_power(&mut random);
            drop(store);
            after
        } else {
            store.close().await.unwrap();
            disk.cut_power(&mut random)
        };
        let store = open(&after);
        for n in 0..5 {
            let found = get(&*store, "t", &format!("s{n}/business")).await.unwrap();
            assert!(found.is_some(), "round {round}: s{n} is missing");
        }
    }
}

#[tokio::test]
async fn what_the_store_behind_would_refuse_is_not_acknowledged() {
    let root = TempFolder::in_memory();
    let store = open_write_behind(Arc::new(Files::open(root.join("state"), Options::default()).unwrap())).await;
    write(&store).await;
    write(&store).await;
    // The file store supports only states of threads and shared states.
    let elsewhere = Partition { tenant: Tenant::default(), kind: PartitionKind::Call(CallId::mint(NOW)) };
    let refused = store.commit(Batch { writes: vec![put("a", b"1")], ..Batch::new(elsewhere) }, NOW).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let mut call = put("a", b"1");
    call.table = Table::Calls;
    assert!(matches!(commit(&store, "t", vec![call]).await, Err(StoreError::Refused(_))));
}

/// Panics at every commit after the first two.
struct PanickingBackend(Memory, std::sync::atomic::AtomicUsize);

impl Backend for PanickingBackend {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.0.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        let before = self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        assert!(before < 2, "the inner store panics");
        self.0.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.0.scan(scan, now)
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(limit, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.0.watch(table)
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_that_nobody_will_write() {
    let store = open_write_behind(Arc::new(PanickingBackend(Memory::new(), 0.into()))).await;
    assert_eq!((write(&store).await, write(&store).await), (1, 2));
    assert!(store.flush().await.is_err());
    let refused = commit(&store, "t", vec![put("a", b"1")]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn the_size_limit_of_a_store_is_seen_through_what_wraps_it() {
    let memory = || Arc::new(Memory::with_max_bytes(5_000_000)) as Arc<dyn Backend>;
    let limit = |store: &dyn Backend| store.size_limit().map(SizeLimit::limit);
    assert_eq!(limit(&open_write_behind(memory()).await), Some(5_000_000));
    assert_eq!(limit(&Compressed(memory())), Some(5_000_000));
    assert_eq!(limit(&Arc::new(memory())), Some(5_000_000));
}
