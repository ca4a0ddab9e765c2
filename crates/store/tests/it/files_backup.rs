//! Backups of the file store are consistent snapshots; restoring one brings back that state in a new epoch.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use toolhub_storage::backend::{Backend, StoreError, Table};
use toolhub_store::{
    Files,
    files::{self, Backup, BackupError, BackupOptions, Disk, LocalDisk, OpenError, Options, RestoreError},
};
use toolhub_testkit::TempFolder;

use crate::fixtures::{commit, get, put};

pub(crate) fn open(folder: &Path) -> Files {
    Files::open(folder, Options::default()).unwrap()
}

/// The value and version of a row.
pub(crate) async fn row(store: &impl Backend, id: &str) -> Option<(String, u64)> {
    let row = get(store, "t", id).await.unwrap()?;
    Some((String::from_utf8(row.value.to_vec()).unwrap(), row.version.number))
}

/// Writes two files in one batch; returns the version.
pub(crate) async fn write(store: &impl Backend, value: u64) -> u64 {
    let text = value.to_string();
    commit(store, "t", vec![put("a/x", text.as_bytes()), put("b/x", text.as_bytes())]).await.unwrap()[0]
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum list of a backup: checksums and paths.
fn read_list(backup: &Path) -> Vec<(String, PathBuf)> {
    let list = fs::read_to_string(backup.join("SHA256SUMS")).unwrap();
    list.lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(checksum, path)| (checksum.into(), backup.join(path)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_of_one_moment_and_everybody_goes_on() {
    let (folder, backups) = (TempFolder::new(), TempFolder::new());
    let store = Arc::new(open(&folder.join("state")));
    for n in 0..60 {
        commit(&*store, &format!("long-{n}"), vec![put("long", &vec![7; 6_000])]).await.unwrap();
    }
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for value in 1.. {
                write(&*store, value).await;
            }
        }
    });
    let mut last = 0;
    for n in 0..3 {
        while row(&*store, "a/x").await.map_or(0, |(_, version)| version) < last + 5 {
            tokio::task::yield_now().await;
        }
        let path = backups.join(format!("backup-{n}"));
        let before = row(&*store, "a/x").await.unwrap().1;
        let backup = store.backup(&path).await.unwrap();
        let after = row(&*store, "a/x").await.unwrap().1;
        assert_eq!(backup, Backup::read(&path).unwrap());
        let files = read_list(&path);
        assert_eq!((backup.rows, backup.schema, files.len()), (62, 1, 62));
        assert_eq!(backup.bytes, files.iter().map(|(_, file)| fs::metadata(file).unwrap().len()).sum::<u64>());
        assert!(files.iter().all(|(checksum, file)| *checksum == sha256(&fs::read(file).unwrap())));

        let restored = folder.join(format!("restored-{n}"));
        assert_eq!(files::restore(&path, &restored).unwrap().previous_store, None);
        let restored = open(&restored);
        let (value, version) = row(&restored, "a/x").await.unwrap();
        assert_eq!(row(&restored, "b/x").await, Some((value, version)), "both rows come from one batch");
        assert!(before <= version && version <= after, "{before} {version} {after}");
        last = after;
    }
    writer.abort();
    let all = ["backup-0", "backup-0.json", "backup-1", "backup-1.json", "backup-2", "backup-2.json"];
    assert_eq!(names(&backups.join("")), all, "no other files are left");
    assert_eq!(names(&folder.join("state")), ["contexts", "format", "new", "store.lock"], "and none in the store");
}

/// A disk that a test can make full.
#[derive(Default)]
struct FillableDisk(AtomicBool);

impl FillableDisk {
    fn check_space(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for FillableDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        LocalDisk.read(path, limit)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        LocalDisk.list(folder)
    }

    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
        self.check_space()?;
        LocalDisk.write(path, content, sync)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalDisk.remove(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        LocalDisk.make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        LocalDisk.sync_folder(path)
    }
}

#[tokio::test]
async fn a_backup_takes_the_place_of_nothing_and_leaves_nothing_when_it_fails() {
    let (folder, backups, disk) = (TempFolder::new(), TempFolder::new(), Arc::new(FillableDisk::default()));
    let state = folder.join("state");
    // This disk has no hard links, so files are copied.
    let store = Files::open_on(&state, Options::default(), disk.clone()).unwrap();
    write(&store, 1).await;
    fs::create_dir(backups.join("taken")).unwrap();
    fs::write(backups.join("file"), "precious").unwrap();
    for taken in [backups.join("taken"), backups.join("file"), state.join("contexts/new"), state.join("moment")] {
        let refused = store.backup(&taken).await.unwrap_err();
        assert!(matches!(refused, BackupError::Exists(_)), "{}: {refused}", taken.display());
    }
    fs::write(backups.join("other.json"), "precious").unwrap();
    assert!(matches!(store.backup(backups.join("other")).await, Err(BackupError::Exists(_))));
    assert_eq!(fs::read(backups.join("other.json")).unwrap(), b"precious");
    fs::remove_file(backups.join("other.json")).unwrap();
    assert!(matches!(store.backup(backups.join("no/such/folder")).await, Err(BackupError::Io { .. })));

    disk.0.store(true, Ordering::Relaxed);
    let refused = store.backup(backups.join("full")).await.unwrap_err();
    let BackupError::Io { error, .. } = &refused else { panic!("{refused}") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(row(&store, "a/x").await.is_some(), "reads continue");
    disk.0.store(false, Ordering::Relaxed);
    assert_eq!(names(&backups.join("")), ["file", "taken"]);
    assert!(!state.join("moment").exists());
    assert_eq!(write(&store, 2).await, 2, "and so do writes after there is space");
    store.backup(backups.join("full")).await.unwrap();
    files::restore(backups.join("full"), folder.join("other")).unwrap();
    assert_eq!(row(&open(&folder.join("other")), "b/x").await, Some(("2".into(), 2)));
}

#[tokio::test]
async fn the_store_makes_backups_of_itself_and_keeps_the_last_however_old() {
    let folder = TempFolder::new();
    let backups = folder.join("state/backups");
    let settings =
        BackupOptions { interval: Duration::from_millis(5), retention: Duration::ZERO, ..BackupOptions::new(&backups) };
    // Leftovers of crashed processes, and foreign files.
    fs::create_dir_all(backups.join("state-2020-01-01T00-00-00.000Z.half/contexts")).unwrap();
    fs::create_dir_all(backups.join("notes-2020-01-01T00-00-00.000Z.half")).unwrap();
    fs::create_dir_all(folder.join("state/moment/ab")).unwrap();
    fs::write(backups.join("state-2020-01-02T00-00-00.000Z.json"), "{}").unwrap();
    let options = Options { backups: Some(settings), ..Options::default() };
    let store = Files::open(folder.join("state"), options).unwrap();
    write(&store, 1).await;
    let mut paths = Vec::new();
    while paths.len() < 4 {
        if let Some(latest) = store.backups().unwrap_or_default().first()
            && !paths.contains(&latest.path)
        {
            paths.push(latest.path.clone());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(store.last_backup_error(), None);
    drop(store);
    // The store may have been closed after a new backup was made and before the old one was removed.
    let remaining = names(&backups);
    assert!((3..=5).contains(&remaining.len()), "{remaining:?}");
    assert_eq!(remaining[0], "notes-2020-01-01T00-00-00.000Z.half");
    assert!(
        !remaining
            .iter()
            .any(|name| name.starts_with("state-2020") || name.ends_with("Z.half") && name != &remaining[0])
    );
    assert!(!folder.join("state/moment").exists());
}

#[tokio::test]
async fn a_restored_store_is_as_it_was_and_gives_no_version_out_twice() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let store = open(&path);
    for value in 1..=3 {
        write(&store, value).await;
    }
    let backup = path.join("backup");
    store.backup(&backup).await.unwrap();
    let mut highest = write(&store, 4).await;
    commit(&store, "u", vec![put("later/x", b"1")]).await.unwrap();

    let refused = files::restore(&backup, &path).unwrap_err();
    let RestoreError::Store(OpenError::InUse { holder, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(holder.process, Some(std::process::id()));
    drop(store);

    for round in 1..=3 {
        let restored = files::restore(&backup, &path).unwrap();
        let suffix = if round == 1 { String::new() } else { format!("-{round}") };
        assert_eq!(restored.previous_store, Some(path.join(format!("contexts.before-restore{suffix}"))));
        let store = open(&path);
        assert_eq!(row(&store, "a/x").await, Some(("3".into(), 3)), "the row has its old value and version");
        assert_eq!(get(&store, "u", "later/x").await, Ok(None), "later rows are gone");
        let versions = [write(&store, 5).await, commit(&store, "t", vec![put("new/x", b"")]).await.unwrap()[0]];
        for version in versions {
            assert!(version > highest && version < 1 << 53, "{version} after {highest}");
        }
        highest = write(&store, 6).await;
        assert_eq!(highest, versions[0] + 1, "versions continue from there");
    }
    // A backup of a restored store contains its epoch.
    let store = open(&path);
    store.backup(folder.join("second")).await.unwrap();
    drop(store);
    files::restore(folder.join("second"), folder.join("other")).unwrap();
    assert!(commit(&open(&folder.join("other")), "t", vec![put("fresh/x", b"")]).await.unwrap()[0] > highest);

    fs::create_dir(folder.join("before")).unwrap();
    fs::rename(path.join("contexts.before-restore"), folder.join("before/contexts")).unwrap();
    assert_eq!(row(&open(&folder.join("before")), "a/x").await, Some(("4".into(), 4)), "the replaced store is kept");
}

#[tokio::test]
async fn an_epoch_that_cannot_be_read_is_taken_for_a_late_one() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let store = open(&path);
    write(&store, 1).await;
    store.backup(folder.join("backup")).await.unwrap();
    drop(store);
    files::restore(folder.join("backup"), &path).unwrap();
    let highest = write(&open(&path), 2).await;
    fs::write(path.join("contexts/epoch"), "toolhub-epoch 0 00000000\n").unwrap();
    let fresh = commit(&open(&path), "t", vec![put("fresh/x", b"")]).await.unwrap()[0];
    assert!(fresh >> 32 >= highest >> 32, "{fresh} after {highest}");
}

#[tokio::test]
async fn what_was_set_aside_is_in_the_backup_and_its_key_stays_refused() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let store = open(&path);
    write(&store, 1).await;
    drop(store);
    let file = fs::read_dir(path.join("contexts")).unwrap().map(|folder| folder.unwrap().path()).find_map(|folder| {
        let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        file.to_string_lossy().contains("t-a-").then_some(file)
    });
    fs::write(file.unwrap(), "nonsense").unwrap();
    let store = open(&path);
    assert_eq!(store.quarantined_files().len(), 1);
    store.backup(folder.join("backup")).await.unwrap();
    files::restore(folder.join("backup"), folder.join("other")).unwrap();
    let other = open(&folder.join("other"));
    assert!(matches!(get(&other, "t", "a/x").await, Err(StoreError::Damaged { table: Table::State, .. })));
    assert_eq!(row(&other, "b/x").await, Some(("1".into(), 1)));
}

#[tokio::test]
async fn what_the_old_store_had_begun_is_not_done_to_the_new_one() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let store = open(&path);
    write(&store, 1).await;
    store.backup(folder.join("backup")).await.unwrap();
    write(&store, 2).await;
    drop(store);
    // Simulate a crash after the intent was written and before any file was renamed.
    let context = |store: &str, name: &str| {
        let files = read_list(&folder.join(store)).into_iter().map(|(_, file)| file);
        files.into_iter().find(|file| file.to_string_lossy().contains(name)).unwrap()
    };
    let file = context("backup", "t-a-");
    let file = file.strip_prefix(folder.join("backup/contexts")).unwrap();
    fs::copy(path.join("contexts").join(file), path.join("new/9-1")).unwrap();
    fs::remove_file(path.join("contexts").join(file)).unwrap();
    let ops = format!(r#"[{{"file":"{}","ready":"9-1","write":2}}]"#, file.display());
    let intent = format!("toolhub-intent 1 {:08x}\n{ops}\n", crc32fast::hash(ops.as_bytes()));
    fs::write(path.join("new/intent"), intent).unwrap();

    files::restore(folder.join("backup"), &path).unwrap();
    assert_eq!(row(&open(&path), "a/x").await, Some(("1".into(), 1)));
    fs::create_dir(folder.join("before")).unwrap();
    fs::rename(path.join("contexts.before-restore"), folder.join("before/contexts")).unwrap();
    assert_eq!(
        row(&open(&folder.join("before")), "a/x").await,
        Some(("2".into(), 2)),
        "the intent was applied to the old store"
    );
}

/// Copies a backup to a new folder.
fn copy_backup(backup: &Path, to: &Path) {
    for (_, file) in read_list(backup) {
        let to = to.join(file.strip_prefix(backup).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    fs::copy(backup.join("SHA256SUMS"), to.join("SHA256SUMS")).unwrap();
    fs::copy(backup.with_extension("json"), to.with_extension("json")).unwrap();
}

/// Replaces the list of a backup and adapts the manifest.
fn replace_list(backup: &Path, list: &str) {
    fs::write(backup.join("SHA256SUMS"), list).unwrap();
    edit_manifest(backup, "sha256", sha256(list.as_bytes()).into());
    edit_manifest(backup, "rows", list.lines().count().into());
}

/// Changes a field of the manifest.
fn edit_manifest(backup: &Path, field: &str, value: serde_json::Value) {
    let manifest = backup.with_extension("json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    json[field] = value;
    fs::write(&manifest, json.to_string()).unwrap();
}

#[tokio::test]
async fn what_is_not_the_backup_that_was_made_is_refused_and_the_store_stays() {
    let folder = TempFolder::new();
    let path = folder.join("state");
    let store = open(&path);
    write(&store, 1).await;
    let good = folder.join("good");
    store.backup(&good).await.unwrap();
    write(&store, 2).await;
    drop(store);
    let bad = folder.join("bad");
    let check = async |case: &str, damaged: bool, corrupt: &dyn Fn()| {
        let _ = (fs::remove_dir_all(&bad), fs::remove_file(folder.join("bad.json")));
        copy_backup(&good, &bad);
        corrupt();
        let refused = files::restore(&bad, &path).unwrap_err();
        assert_eq!(matches!(refused, RestoreError::Damaged { .. }), damaged, "{case}: {refused}");
        assert!(!matches!(refused, RestoreError::Io { .. }), "{case}: {refused}");
        assert_eq!(row(&open(&path), "a/x").await, Some(("2".into(), 2)), "{case}");
        assert_eq!(names(&path), ["contexts", "format", "new", "store.lock"], "{case}");
        refused.to_string()
    };
    let first = || read_list(&bad)[0].1.clone();
    let list = || fs::read_to_string(bad.join("SHA256SUMS")).unwrap();
    let message = check("a bit is wrong", true, &|| {
        let mut content = fs::read(first()).unwrap();
        content[100] ^= 1;
        fs::write(first(), content).unwrap();
    })
    .await;
    assert!(message.contains("checksum mismatch"), "{message}");
    check("a file is missing", true, &|| fs::remove_file(first()).unwrap()).await;
    check("a file is longer", true, &|| fs::write(first(), [fs::read(first()).unwrap(), vec![32]].concat()).unwrap())
        .await;
    check("a file is cut", true, &|| fs::write(first(), &fs::read(first()).unwrap()[..50]).unwrap()).await;
    check("a line is missing", true, &|| fs::write(bad.join("SHA256SUMS"), list().lines().next().unwrap()).unwrap())
        .await;
    check("the list is missing", true, &|| fs::remove_file(bad.join("SHA256SUMS")).unwrap()).await;
    check("there is no manifest", false, &|| fs::remove_file(folder.join("bad.json")).unwrap()).await;
    check("the manifest is nonsense", false, &|| fs::write(folder.join("bad.json"), "{\"bytes\": \"../x\"}").unwrap())
        .await;
    check("it is a file", false, &|| {
        fs::remove_dir_all(&bad).unwrap();
        fs::write(&bad, "").unwrap();
    })
    .await;
    fs::remove_file(&bad).unwrap();
    check("a later version made it", false, &|| edit_manifest(&bad, "schema", 99.into())).await;
    check("there is less than it says", true, &|| edit_manifest(&bad, "bytes", 1_000_000_000.into())).await;
    check("there is more than it says", true, &|| edit_manifest(&bad, "bytes", 10.into())).await;

    // A consistent manifest and list made by an attacker.
    let precious = folder.join("precious.json");
    fs::write(&precious, "precious").unwrap();
    for escape in ["../precious.json", "contexts/../precious.json", "contexts/4e/../../precious.json", "/etc/passwd"] {
        let message =
            check(escape, true, &|| replace_list(&bad, &format!("{}{}  {escape}\n", list(), sha256(b"precious"))))
                .await;
        assert!(message.contains("is not a store file"), "{message}");
    }
    check("a file is listed twice", true, &|| replace_list(&bad, &list().repeat(2))).await;
    #[cfg(unix)]
    check("a file is a link to another", true, &|| {
        let name = format!("contexts/4e/t-x-{}.json", "4e".repeat(16));
        fs::create_dir_all(bad.join("contexts/4e")).unwrap();
        std::os::unix::fs::symlink(&precious, bad.join(&name)).unwrap();
        replace_list(&bad, &format!("{}{}  {name}\n", list(), sha256(b"precious")));
    })
    .await;
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(matches!(files::restore(folder.join("nowhere"), &path), Err(RestoreError::NoBackup { .. })));
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_may_read_a_copy_who_may_not_read_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::new();
    let path = folder.join("state");
    let store = open(&path);
    write(&store, 1).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    store.backup(folder.join("backup")).await.unwrap();
    files::restore(folder.join("backup"), folder.join("other")).unwrap();
    for name in ["backup", "other/contexts"] {
        let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{name}");
    }
}
