//! The file store passes the `Backend` contract and writes readable files.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use serde_json::Value;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Partition, PartitionKind, RowKey, Scan, Scope, StoreError, Table},
    testing::contract,
};
use toolhub_store::{
    Files,
    files::{Disk, OpenError, Options},
};
use toolhub_testkit::{TempFolder, soak};
use toolhub_types::ids::Tenant;

use crate::{
    fixtures::{NOW, commit, get, put, thread},
    simulated_disk::SimulatedDisk,
};

const UNCOMPRESSED: Options = Options { compression: false, backups: None };
const COMPRESSED: Options = Options { compression: true, backups: None };

fn open(folder: &Path) -> Files {
    Files::open(folder, UNCOMPRESSED).unwrap()
}

/// A function that creates a new empty store each time, on its own simulated disk.
fn stores(folder: &TempFolder, options: Options) -> impl AsyncFn() -> Arc<Files> {
    let count = AtomicU32::new(0);
    async move || {
        let (path, options) = (folder.join(count.fetch_add(1, Ordering::Relaxed).to_string()), options.clone());
        Arc::new(Files::open_on(path, options, Arc::new(SimulatedDisk::default())).unwrap())
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_files_keeps_every_promise() {
    let folder = TempFolder::in_memory();
    contract::check_with(async || Arc::new(open(&folder.join(fastrand::u64(..).to_string()))), Table::History).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_one_life_to_the_next_the_store_of_files_keeps_every_promise() {
    let folder = TempFolder::in_memory();
    contract::check_reopen(async |name: &str| Arc::new(open(&folder.join(name)))).await;
}

#[tokio::test]
async fn random_programs_find_no_difference_to_a_naive_model() {
    let programs = soak(250, 8_000);
    // A new random seed for every run; the message of a failure contains it.
    let seed = RandomState::new().build_hasher().finish();
    for options in [UNCOMPRESSED, COMPRESSED] {
        contract::check_against_model_with(stores(&TempFolder::in_memory(), options), programs, seed, Table::History)
            .await;
    }
}

#[tokio::test]
async fn what_was_written_is_there_when_the_folder_is_opened_again_compressed_or_not() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let values: [&[u8]; 7] = [
        b"{\"a\":[1.10,{}]}",
        b"null",
        b" 1",
        b"",
        b"{\"states\":[],\"x\":\"\\u0000\"}",
        &[0, 255],
        "\u{1f375}".as_bytes(),
    ];
    let mut before = Vec::new();
    for (round, options) in [UNCOMPRESSED, COMPRESSED, COMPRESSED, UNCOMPRESSED].into_iter().enumerate() {
        let store = Files::open(&path, options).unwrap();
        for (n, value) in values.iter().enumerate() {
            let row = get(&store, "t", &format!("s{n}/business")).await.unwrap();
            assert_eq!(row, before.get(n).cloned().flatten(), "round {round}, value {n}");
            // Some files are not rewritten.
            if (n + round) % 3 != 0 || round == 0 {
                let version = commit(&store, "t", vec![put(&format!("s{n}/business"), value)]).await.unwrap();
                assert_eq!(version, [before.get(n).cloned().flatten().map_or(1, |row| row.version.number + 1)]);
            }
        }
        before.clear();
        for n in 0..values.len() {
            before.push(get(&store, "t", &format!("s{n}/business")).await.unwrap());
            assert_eq!(before[n].as_ref().unwrap().value.to_vec(), values[n]);
        }
        assert_eq!(store.count(), values.len());
    }
    let names: Vec<PathBuf> = files(&path.join("contexts"));
    assert_eq!(names.len(), values.len(), "one file for each context: {names:?}");
    let compressed = names.iter().filter(|name| name.to_string_lossy().ends_with(".json.zst")).count();
    assert!(
        compressed > 0 && compressed < names.len(),
        "files that were not rewritten keep their format: {compressed}"
    );
}

#[tokio::test]
async fn a_context_is_one_file_that_people_can_read() {
    let folder = TempFolder::new();
    let store = open(&folder.join("state"));
    let mut writes = vec![
        put("cart/business", b"{\"tea\":1,\"cake\":null}"),
        put("cart/00001", b"{\"tea\":1}"),
        put("cart/e", b"1"),
    ];
    (writes[1].table, writes[2].table) = (Table::Versions, Table::History);
    let shared = Partition { tenant: Tenant::new("acme").unwrap(), kind: PartitionKind::State("rates".into()) };
    commit(&store, "T1", writes).await.unwrap();
    store.commit(Batch::new(shared).with(put("rates/business", b"{}")), NOW).await.unwrap();
    drop(store);
    let mut files = files(&folder.join("state/contexts"));
    files.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let json: Vec<Value> = texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(json.len(), 2);
    assert_eq!(
        (&json[0]["tenant"], &json[0]["shared"], &json[0]["state"]),
        (&"acme".into(), &"rates".into(), &"rates".into())
    );
    let cart = &json[1];
    assert_eq!((&cart["tenant"], &cart["thread"], &cart["state"]), (&"main".into(), &"T1".into(), &"cart".into()));
    assert_eq!(cart["states"][0]["data"], serde_json::json!({"tea": 1, "cake": null}));
    assert_eq!((&cart["versions"][0]["data"]["tea"], &cart["history"][0]["version"]), (&1.into(), &1.into()));
    assert!(texts[1].contains("        \"tea\": 1,\n"), "a state is pretty-printed: {}", texts[1]);
    let name = files[1].file_name().unwrap().to_string_lossy();
    assert!(name.starts_with("t1-cart-"), "{name}");
}

#[tokio::test]
async fn a_context_without_rows_leaves_no_file() {
    let folder = TempFolder::new();
    let store = open(&folder.join("state"));
    commit(&store, "t", vec![put("a/x", b"1"), put("b/x", b"1"), put("b/y", b"1")]).await.unwrap();
    let removal = |id| toolhub_storage::backend::Write { change: Change::Remove, ..put(id, b"") };
    assert_eq!(commit(&store, "t", vec![removal("a/x"), removal("b/x")]).await, Ok(vec![0, 0]));
    assert_eq!(files(&folder.join("state/contexts")).len(), 1);
    assert_eq!(commit(&store, "t", vec![removal("b/y")]).await, Ok(vec![0]));
    assert_eq!((files(&folder.join("state/contexts")).len(), store.count()), (0, 0));
    assert!(files(&folder.join("state/new")).is_empty(), "no staged file is left");
}

#[tokio::test]
async fn what_files_do_not_keep_is_refused_and_says_where_to_keep_it() {
    let folder = TempFolder::new();
    let store = open(&folder.join("state"));
    let mut call = put("call", b"{}");
    call.table = Table::Calls;
    let refused = commit(&store, "t", vec![put("a/b", b"1"), call]).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Refused(reason) if reason.contains("calls") && reason.contains("SQLite")),
        "{refused}"
    );
    let tool = Partition { tenant: Tenant::default(), kind: PartitionKind::Grants };
    let refused = store.commit(Batch::new(tool.clone()).with(put("a/b", b"1")), NOW).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Refused(reason) if reason.contains("main/g/")), "{refused}");
    assert_eq!(store.count(), 0, "nothing was written");
    let key = RowKey { partition: tool, table: Table::Calls, id: "a".into() };
    assert_eq!(store.load(&[key], NOW).await, Ok(vec![None]));
    for scan in [Scan::new(Table::Threads, Scope::All), Scan::new(Table::Calls, Scope::Partition(thread("t")))] {
        assert!(store.scan(scan, NOW).await.unwrap().rows.is_empty());
    }
}

#[tokio::test]
async fn ids_of_any_sort_have_files_inside_the_folder() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let long = "x".repeat(5_000);
    let ids = ["../../etc/x", "..", "/", "", "a/../../b", "ü\u{10ffff}/ß", "A/b", "a/b", "con/x", "a\0/\n", &long];
    let store = open(&path);
    for id in ids {
        commit(&store, "t", vec![put(id, id.as_bytes())]).await.unwrap();
        let shared = Partition { tenant: Tenant::default(), kind: PartitionKind::State(id.into()) };
        store.commit(Batch::new(shared).with(put(id, id.as_bytes())), NOW).await.unwrap();
    }
    drop(store);
    let store = open(&path);
    assert_eq!(store.quarantined_files(), []);
    for id in ids {
        let shared = Partition { tenant: Tenant::default(), kind: PartitionKind::State(id.into()) };
        let keys = [thread("t"), shared].map(|partition| RowKey { partition, table: Table::State, id: id.into() });
        let rows = store.load(&keys, NOW).await.unwrap();
        assert!(rows.iter().all(|row| row.as_ref().unwrap().value.to_vec() == id.as_bytes()), "{id}");
    }
    let page = store.scan(Scan::new(Table::State, Scope::All), NOW).await.unwrap();
    assert_eq!(page.rows.len(), 2 * ids.len());
    assert!(page.rows.is_sorted_by_key(|(key, _)| (key.id.clone(), key.partition.to_string())));
    let names: Vec<_> = fs::read_dir(folder.join("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["state"], "nothing was written outside the folder");
}

#[tokio::test]
async fn one_process_at_a_time_has_a_folder() {
    let folder = TempFolder::new();
    let store = open(&folder.join("state"));
    let refused = Files::open(folder.join("state/../state"), UNCOMPRESSED).unwrap_err();
    let OpenError::InUse { holder, .. } = &refused else { panic!("{refused}") };
    assert_eq!(holder.process, Some(std::process::id()));
    drop(store);
    drop(open(&folder.join("state")));
    fs::write(folder.join("file"), "").unwrap();
    assert!(matches!(Files::open(folder.join("file"), UNCOMPRESSED), Err(OpenError::Io { .. })));
}

#[tokio::test]
async fn a_later_format_is_refused_loudly() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    drop(open(&path));
    fs::write(path.join("format"), "toolhub-files 2\n").unwrap();
    let refused = Files::open(&path, UNCOMPRESSED).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 2, known: 1, .. }), "{refused}");
    fs::write(path.join("format"), "\0\0").unwrap();
    drop(open(&path));
    assert_eq!(
        fs::read_to_string(path.join("format")).unwrap(),
        "toolhub-files 1\n",
        "an unreadable format file is recreated"
    );
}

#[tokio::test]
async fn many_that_wait_for_one_context_share_its_file() {
    let folder = TempFolder::in_memory();
    let disk = SimulatedDisk::default();
    let store = Files::open_on(folder.join("state"), UNCOMPRESSED, Arc::new(disk.clone())).unwrap();
    commit(&store, "t", vec![put("n/business", b"0")]).await.unwrap();
    disk.syncs();
    let commits = (0..200).map(|n| commit(&store, "t", vec![put("n/business", n.to_string().as_bytes())]));
    let mut versions: Vec<u64> =
        futures_util::future::join_all(commits).await.into_iter().map(|result| result.unwrap()[0]).collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..202).collect::<Vec<_>>());
    assert!(disk.syncs() < 40, "two syncs per group of commits");
}

#[tokio::test]
async fn a_write_costs_two_syncs_and_one_that_need_not_survive_a_loss_of_power_one() {
    let folder = TempFolder::in_memory();
    let disk = SimulatedDisk::default();
    let store = Files::open_on(folder.join("state"), UNCOMPRESSED, Arc::new(disk.clone())).unwrap();
    let kill_safe = |id: &str| {
        let mut write = put(id, b"1");
        write.durability = toolhub_storage::backend::Durability::KillSafe;
        write
    };
    commit(&store, "t", vec![put("a/x", b"1")]).await.unwrap();
    disk.syncs();
    commit(&store, "t", vec![put("a/x", b"2")]).await.unwrap();
    assert_eq!(disk.syncs(), 2, "the file and its folder");
    commit(&store, "t", vec![kill_safe("b/x")]).await.unwrap();
    disk.syncs();
    for _ in 0..3 {
        commit(&store, "t", vec![kill_safe("a/x")]).await.unwrap();
        commit(&store, "t", vec![kill_safe("b/x")]).await.unwrap();
    }
    assert_eq!(disk.syncs(), 6, "the content of a file is synced before the rename");
}

/// A disk on which every write waits for a permit.
struct BlockingDisk {
    disk: SimulatedDisk,
    started: Sender<()>,
    permits: Mutex<Receiver<()>>,
}

impl Disk for BlockingDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.disk.read(path, limit)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
        let _ = self.started.send(());
        // Once the test has dropped the sender, writes no longer wait.
        let _ = self.permits.lock().unwrap().recv();
        self.disk.write(path, content, sync)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_folder(path)
    }
}

#[tokio::test]
async fn whoever_writes_does_not_wait_for_a_whole_sweep() {
    let (folder, disk) = (TempFolder::in_memory(), SimulatedDisk::default());
    let store = Files::open_on(folder.join("state"), UNCOMPRESSED, Arc::new(disk.clone())).unwrap();
    for n in 0..10 {
        let mut expiring = put(&format!("s{n}/cache"), b"1");
        expiring.change = Change::Put { value: b"1".as_slice().into(), schema: 1, expires: Some(NOW) };
        commit(&store, "t", vec![expiring, put(&format!("s{n}/business"), b"1")]).await.unwrap();
    }
    drop(store);
    let ((started, on_start), (permit, permits)) = (channel(), channel());
    let blocking = BlockingDisk { disk, started, permits: Mutex::new(permits) };
    let store = Arc::new(Files::open_on(folder.join("state"), UNCOMPRESSED, Arc::new(blocking)).unwrap());
    let sweep = tokio::spawn({
        let store = store.clone();
        async move { store.sweep(100, NOW).await }
    });
    tokio::task::yield_now().await;
    on_start.recv().unwrap();
    // The sweep is writing its first file. The next file must be that of this commit.
    let write = tokio::spawn({
        let store = store.clone();
        async move { commit(&*store, "t", vec![put("new/business", b"1")]).await }
    });
    tokio::task::yield_now().await;
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    let written = tokio::time::timeout(std::time::Duration::from_secs(20), write).await;
    let is_swept = sweep.is_finished();
    drop(permit);
    assert_eq!(written.expect("the commit does not wait for the whole sweep").unwrap(), Ok(vec![1]));
    assert!(!is_swept);
    assert_eq!(sweep.await.unwrap(), Ok(10));
}

#[tokio::test]
async fn after_a_panic_of_the_writer_no_write_is_accepted_and_reads_go_on() {
    let (folder, disk) = (TempFolder::in_memory(), SimulatedDisk::default());
    let path = folder.join("state");
    let open = || Files::open_on(&path, UNCOMPRESSED, Arc::new(disk.clone())).unwrap();
    let store = open();
    commit(&store, "t", vec![put("a/x", b"1")]).await.unwrap();
    assert!(store.write_error().is_none());
    disk.panic_at_next_write();
    let unknown = commit(&store, "t", vec![put("a/x", b"2")]).await;
    assert!(matches!(unknown, Err(StoreError::Unknown(_))), "{unknown:?}");
    let refused = commit(&store, "t", vec![put("b/x", b"2")]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(store.write_error().is_some());
    assert_eq!(&*get(&store, "t", "a/x").await.unwrap().unwrap().value, b"1");
    drop(store);
    let store = open();
    assert!(store.write_error().is_none());
    assert_eq!(commit(&store, "t", vec![put("a/x", b"2")]).await, Ok(vec![2]));
}
