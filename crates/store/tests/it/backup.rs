//! SQLite backups are consistent snapshots; restoring one brings back that state in a new epoch.

use std::{fs, path::Path, sync::Arc, time::Duration};

use toolhub_storage::backend::{Backend, Change, Table, Write};
use toolhub_store::{
    Sqlite,
    sqlite::{self, Backup, BackupError, BackupOptions, OpenError, Options, RestoreError},
};
use toolhub_testkit::TempFolder;
use toolhub_types::store_role::StoreRole;

use crate::{
    failpoints::downgrade_to_first_schema,
    fixtures::{commit, get, open, put},
    kill::assert_integrity,
    vfs::FaultyDisk,
};

/// The value and version of a row.
async fn row(store: &impl Backend, id: &str) -> Option<(String, u64)> {
    let row = get(store, "t", id).await.unwrap()?;
    Some((String::from_utf8(row.value.to_vec()).unwrap(), row.version.number))
}

async fn write(store: &impl Backend, value: u64) -> u64 {
    let text = value.to_string();
    commit(store, "t", vec![put("a", text.as_bytes()), put("b", text.as_bytes())]).await.unwrap()[0]
}

fn names(folder: &TempFolder) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder.join("")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_of_one_moment_and_everybody_goes_on() {
    let (folder, backups) = (TempFolder::new(), TempFolder::new());
    let store = Arc::new(open(&folder.join("store.db")));
    // Enough pages for several steps.
    for n in 0..60 {
        commit(&*store, &format!("long-{n}"), vec![put("long", &vec![7; 60_000])]).await.unwrap();
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
        while row(&*store, "a").await.map_or(0, |(_, version)| version) < last + 5 {
            tokio::task::yield_now().await;
        }
        let path = backups.join(format!("{n}.db"));
        let before = row(&*store, "a").await.unwrap().1;
        let backup = store.backup(&path).await.unwrap();
        let after = row(&*store, "a").await.unwrap().1;
        assert_eq!(backup, Backup::read(&path).unwrap());
        assert_eq!((backup.rows, backup.schema, backup.bytes), (62, 4, fs::metadata(&path).unwrap().len()));
        assert_integrity(&path);

        let restored = folder.join(format!("restored-{n}.db"));
        sqlite::restore(&path, &restored, StoreRole::Hub).unwrap();
        let restored = open(&restored);
        let (value, version) = row(&restored, "a").await.unwrap();
        assert_eq!(row(&restored, "b").await, Some((value, version)), "both rows come from one batch");
        assert!(before <= version && version <= after, "{before} {version} {after}");
        last = after;
    }
    writer.abort();
    assert_eq!(
        names(&backups),
        ["0.db", "0.db.json", "1.db", "1.db.json", "2.db", "2.db.json"],
        "no other files are left"
    );
}

#[tokio::test]
async fn nothing_of_what_was_taken_away_or_replaced_is_in_a_backup() {
    const CANARY: &[u8] = b"a secret of a call that has ended";
    let (folder, backups) = (TempFolder::in_memory(), TempFolder::in_memory());
    let store = open(&folder.join("store.db"));
    // Rows of one page and of several, enough of both that pages are split, merged and freed.
    let long = |n: usize| CANARY.repeat(if n.is_multiple_of(10) { 400 } else { 1 + n % 20 });
    for n in 0..300 {
        let writes = vec![put("kept", b"harmless"), put(&format!("row-{n}"), &long(n))];
        commit(&store, &format!("t{}", n % 7), writes).await.unwrap();
    }
    for n in 0..300 {
        let (thread, id) = (format!("t{}", n % 7), format!("row-{n}"));
        let write =
            if n % 3 == 0 { put(&id, b"[redacted]") } else { Write { change: Change::Remove, ..put(&id, b"") } };
        commit(&store, &thread, vec![write]).await.unwrap();
    }
    let path = backups.join("store.db");
    store.backup(&path).await.unwrap();
    let copy = fs::read(&path).unwrap();
    let found = copy.windows(CANARY.len()).filter(|bytes| *bytes == CANARY).count();
    assert_eq!(found, 0, "in a backup of {} bytes", copy.len());
    assert!(copy.windows(10).any(|bytes| bytes == b"[redacted]"));
}

#[tokio::test]
async fn a_backup_takes_the_place_of_no_file_and_leaves_nothing_when_it_fails() {
    let (folder, backups) = (TempFolder::new(), TempFolder::in_memory());
    let disk = FaultyDisk::watch(&backups.join(""));
    let store = open(&folder.join("store.db"));
    write(&store, 1).await;
    fs::write(backups.join("taken"), "precious").unwrap();
    let refused = store.backup(backups.join("taken")).await.unwrap_err();
    assert!(matches!(refused, BackupError::Exists(_)), "{refused}");
    assert_eq!(fs::read(backups.join("taken")).unwrap(), b"precious");
    fs::write(backups.join("other.json"), "precious").unwrap();
    assert!(matches!(store.backup(backups.join("other")).await, Err(BackupError::Exists(_))));
    assert_eq!(fs::read(backups.join("other.json")).unwrap(), b"precious");
    fs::remove_file(backups.join("other.json")).unwrap();
    for reserved in ["store.db", "store.db-wal", "store.db-journal", "store.db.lock"] {
        assert!(store.backup(folder.join(reserved)).await.is_err(), "{reserved}");
    }
    assert!(matches!(store.backup(backups.join("no/such/folder")).await, Err(BackupError::Io { .. })));

    disk.set_full(true);
    let refused = store.backup(backups.join("full.db")).await.unwrap_err();
    assert!(matches!(refused, BackupError::Sqlite(_)), "{refused}");
    disk.set_full(false);
    assert_eq!(names(&backups), ["taken"]);
    assert_eq!(write(&store, 2).await, 2, "the store still works");
    store.backup(backups.join("full.db")).await.unwrap();
}

#[tokio::test]
async fn the_store_makes_backups_of_itself_and_keeps_the_last_however_old() {
    let (folder, backups) = (TempFolder::new(), TempFolder::new());
    let settings = BackupOptions {
        interval: Duration::from_millis(5),
        retention: Duration::ZERO,
        ..BackupOptions::new(backups.join("made"))
    };
    let store = Sqlite::open(folder.join("store.db"), Options::default().backups(settings)).unwrap();
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
    let remaining = fs::read_dir(backups.join("made")).unwrap().count();
    assert!((2..=4).contains(&remaining), "{remaining} files");
}

#[tokio::test]
async fn the_next_backup_is_due_an_interval_after_the_last_and_trouble_is_told() {
    let (folder, backups) = (TempFolder::new(), TempFolder::new());
    let settings = BackupOptions::new(backups.join(""));
    let store = open(&folder.join("store.db"));
    store.backup(backups.join("first.db")).await.unwrap();
    drop(store);
    let store = Sqlite::open(folder.join("store.db"), Options::default().backups(settings.clone())).unwrap();
    for n in 0..3 {
        store.backup(folder.join(format!("other-{n}"))).await.unwrap();
    }
    assert_eq!(store.backups().unwrap().len(), 1, "no backup is due within the hour");
    drop(store);

    fs::write(folder.join("no-folder"), "").unwrap();
    let settings = BackupOptions { folder: folder.join("no-folder"), ..settings };
    let store = Sqlite::open(folder.join("store.db"), Options::default().backups(settings)).unwrap();
    while store.last_backup_error().is_none() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(store.last_backup_error().unwrap().contains("no-folder"));
    assert!(write(&store, 1).await > 0, "the store still works");
}

#[tokio::test]
async fn what_a_process_that_died_left_of_a_backup_is_removed_with_the_next() {
    let (folder, backups) = (TempFolder::new(), TempFolder::new());
    let partial = ["store-2020-01-01T00-00-00.000Z.db.half", "store-2020-01-01T00-00-00.000Z.db.half-journal"];
    let orphaned = ["store-2020-01-02T00-00-00.000Z.db.json", "store-2020-01-02T00-00-00.000Z.db.json.half"];
    let others = ["notes.half", "store-notes.json", "other-2020-01-01T00-00-00.000Z.db.half"];
    for name in partial.iter().chain(&orphaned).chain(&others) {
        fs::write(backups.join(name), "{}").unwrap();
    }
    let store = Sqlite::open(folder.join("store.db"), Options::default().backups(BackupOptions::new(backups.join(""))));
    let store = store.unwrap();
    while store.backups().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // The backup thread handles one request at a time, so the scheduled run is complete after this.
    store.backup(folder.join("one more")).await.unwrap();
    let remaining = names(&backups);
    let is_leftover = |name: &str| partial.contains(&name) || orphaned.contains(&name);
    assert!(!remaining.iter().any(|name| is_leftover(name)), "{remaining:?}");
    assert_eq!(remaining.iter().filter(|name| others.contains(&name.as_str())).count(), 3, "{remaining:?}");
    assert_eq!(remaining.len(), 5, "{remaining:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_may_read_a_copy_who_may_not_read_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    write(&open(&path), 1).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    open(&path).backup(folder.join("backup.db")).await.unwrap();
    downgrade_to_first_schema(&path);
    write(&open(&path), 2).await;
    sqlite::restore(folder.join("backup.db"), &path, StoreRole::Hub).unwrap();
    for name in ["store.db", "backup.db", "store.db.before-2", "store.db.before-restore"] {
        let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_restored_store_is_as_it_was_and_gives_no_version_out_twice() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let store = open(&path);
    for value in 1..=3 {
        write(&store, value).await;
    }
    let backup = folder.join("backup.db");
    store.backup(&backup).await.unwrap();
    let mut highest = write(&store, 4).await;

    let refused = sqlite::restore(&backup, &path, StoreRole::Hub).unwrap_err();
    let RestoreError::Store(OpenError::InUse { holder, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(holder.process, Some(std::process::id()));
    drop(store);

    for round in 1..=3 {
        let restored = sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
        let archive =
            if round == 1 { "store.db.before-restore".into() } else { format!("store.db.before-restore-{round}") };
        assert_eq!(restored.previous_store, Some(fs::canonicalize(folder.join(&archive)).unwrap()));
        let store = open(&path);
        assert_eq!(row(&store, "a").await, Some(("3".into(), 3)), "the row has its old value and version");
        let versions = [write(&store, 5).await, commit(&store, "t", vec![put("new", b"")]).await.unwrap()[0]];
        for version in versions {
            assert!(version > highest && version < 1 << 53, "{version} after {highest}");
        }
        highest = write(&store, 6).await;
        assert_eq!(highest, versions[0] + 1, "versions continue from there");
    }
    let before = open(&folder.join("store.db.before-restore"));
    assert_eq!(row(&before, "a").await, Some(("4".into(), 4)), "the replaced store is kept");
}

/// Copies the files of a running store, as a crash would leave them: the last writes are in the WAL only.
async fn copy_crashed_store(path: &Path) {
    let running = TempFolder::new();
    let store = open(&running.join("store.db"));
    write(&store, 8).await;
    write(&store, 9).await;
    for suffix in ["", "-wal"] {
        let mut to = path.as_os_str().to_owned();
        to.push(suffix);
        fs::copy(running.join(format!("store.db{suffix}")), to).unwrap();
    }
}

#[tokio::test]
async fn the_log_of_the_old_store_is_never_applied_to_the_new_one() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let backup = folder.join("backup.db");
    let store = open(&folder.join("other.db"));
    write(&store, 3).await;
    store.backup(&backup).await.unwrap();
    copy_crashed_store(&path).await;
    let wal = fs::metadata(folder.join("store.db-wal")).unwrap().len();
    assert!(wal > 10_000, "{wal}");
    sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
    assert!(!folder.join("store.db-wal").exists());
    assert_eq!(row(&open(&path), "a").await, Some(("3".into(), 1)));
    assert_integrity(&path);
    assert_eq!(
        row(&open(&folder.join("store.db.before-restore")), "a").await,
        Some(("9".into(), 2)),
        "the WAL is archived"
    );

    // A store that SQLite cannot read is archived unchanged.
    let garbage = "no database ".repeat(1000);
    fs::write(&path, &garbage).unwrap();
    fs::write(folder.join("store.db-wal"), "no log ".repeat(1000)).unwrap();
    sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
    assert_eq!(row(&open(&path), "a").await, Some(("3".into(), 1)));
    assert_eq!(fs::read_to_string(folder.join("store.db.before-restore-2")).unwrap(), garbage);
}

#[tokio::test]
async fn a_log_whose_file_is_gone_is_not_applied_to_the_new_one_either() {
    let folder = TempFolder::new();
    let (path, backup) = (folder.join("store.db"), folder.join("backup.db"));
    let store = open(&folder.join("other.db"));
    write(&store, 3).await;
    store.backup(&backup).await.unwrap();
    copy_crashed_store(&path).await;
    let wal = fs::read(folder.join("store.db-wal")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(sqlite::restore(&backup, &path, StoreRole::Hub).unwrap().previous_store, None);
    assert_eq!(row(&open(&path), "a").await, Some(("3".into(), 1)));
    assert_integrity(&path);
    assert_eq!(fs::read(folder.join("store.db.before-restore-wal")).unwrap(), wal, "the WAL is archived");
}

#[tokio::test]
async fn a_backup_whose_manifest_does_not_say_of_what_is_restored_by_what_it_holds() {
    let folder = TempFolder::new();
    let cases = [
        ("hub", Table::Calls, StoreRole::Hub, StoreRole::State),
        ("state", Table::State, StoreRole::State, StoreRole::Hub),
    ];
    for (name, table, role, other) in cases {
        let backups = folder.join(format!("{name}-backups"));
        let options = Options::default().backups(BackupOptions::new(&backups));
        let store = Sqlite::open(folder.join(format!("{name}.db")), options).unwrap();
        commit(&store, "t", vec![put("a", b"1"), Write { table, ..put("b", b"2") }]).await.unwrap();
        fs::create_dir_all(&backups).unwrap();
        let backup = backups.join("made.db");
        store.backup(&backup).await.unwrap();
        let manifest = backups.join("made.db.json");
        let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        assert!(json.as_object_mut().unwrap().remove("store").is_some());
        fs::write(&manifest, json.to_string()).unwrap();

        let listed = store.backups().unwrap();
        assert!(listed.iter().any(|listed| listed.path.ends_with("made.db") && listed.store.is_none()), "{listed:?}");
        let restored = folder.join(format!("{name}-restored.db"));
        let refused = sqlite::restore(&backup, &restored, other).unwrap_err();
        assert!(matches!(refused, RestoreError::WrongStore { found, .. } if found == role), "{name}: {refused}");
        let report = sqlite::restore(&backup, &restored, role).unwrap();
        assert_eq!((report.backup.store, report.backup.rows), (Some(role), 2));
        assert!(row(&open(&restored), "a").await.is_some());
    }
}

#[tokio::test]
async fn what_is_not_the_backup_that_was_made_is_refused_and_the_store_stays() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let store = open(&path);
    write(&store, 1).await;
    let good = folder.join("good.db");
    store.backup(&good).await.unwrap();
    write(&store, 2).await;
    drop(store);
    let (bytes, manifest) = (fs::read(&good).unwrap(), fs::read_to_string(folder.join("good.db.json")).unwrap());
    let bad = folder.join("bad.db");
    let check = async |case: &str, file: Option<&[u8]>, manifest: Option<&str>, damaged: bool| {
        let _ = (fs::remove_file(&bad), fs::remove_file(folder.join("bad.db.json")));
        file.inspect(|bytes| fs::write(&bad, bytes).unwrap());
        manifest.inspect(|text| fs::write(folder.join("bad.db.json"), text).unwrap());
        let refused = sqlite::restore(&bad, &path, StoreRole::Hub).unwrap_err();
        assert_eq!(matches!(refused, RestoreError::Damaged { .. }), damaged, "{case}: {refused}");
        assert!(!matches!(refused, RestoreError::Store(OpenError::InUse { .. })), "{case}: {refused}");
        assert_eq!(row(&open(&path), "a").await, Some(("2".into(), 2)), "{case}");
        assert!(!names(&folder).iter().any(|name| name.contains("restor")), "{case}: {:?}", names(&folder));
    };
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    check("a bit is wrong", Some(&changed), Some(&manifest), true).await;
    check("the end is missing", Some(&bytes[..bytes.len() - 4096]), Some(&manifest), true).await;
    check("there is more", Some(&[bytes.as_slice(), b"more"].concat()), Some(&manifest), true).await;
    check("there is no manifest", Some(&bytes), None, false).await;
    check("the manifest is nonsense", Some(&bytes), Some("{\"bytes\": \"../../x\"}"), false).await;
    check("there is no file", None, Some(&manifest), false).await;

    let foreign = folder.join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE notes (text)").unwrap();
    let text = manifest_for(&fs::read(&foreign).unwrap());
    check("it is no store", Some(&fs::read(&foreign).unwrap()), Some(&text), false).await;
    fs::write(folder.join("later.db"), &bytes).unwrap();
    let later = rusqlite::Connection::open(folder.join("later.db")).unwrap();
    later.execute("INSERT INTO steps VALUES (99, 0)", ()).unwrap();
    drop(later);
    let later = fs::read(folder.join("later.db")).unwrap();
    check("a later version made it", Some(&later), Some(&manifest_for(&later)), false).await;
    assert!(
        matches!(sqlite::restore(folder.join(""), &path, StoreRole::Hub), Err(RestoreError::NoBackup { .. })),
        "a folder"
    );
}

/// A matching manifest for any bytes.
fn manifest_for(bytes: &[u8]) -> String {
    let sha256 = sha256(bytes);
    format!(
        r#"{{"store": "hub", "made_at": "2026-01-01T00:00:00.000Z", "schema": 2, "bytes": {}, "rows": 0, "sha256": "{sha256}"}}"#,
        bytes.len()
    )
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_store_where_it_is() {
    let folder = TempFolder::in_memory();
    let disk = FaultyDisk::watch(&folder.join(""));
    let (path, backup) = (folder.join("store.db"), folder.join("backup.db"));
    let store = open(&path);
    write(&store, 1).await;
    store.backup(&backup).await.unwrap();
    write(&store, 2).await;
    drop(store);
    disk.set_full(true);
    let refused = sqlite::restore(&backup, &path, StoreRole::Hub).unwrap_err();
    assert!(matches!(refused, RestoreError::PrepareFailed(_) | RestoreError::Store(_)), "{refused}");
    disk.set_full(false);
    assert_eq!(row(&open(&path), "a").await, Some(("2".into(), 2)));
    sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
    assert_eq!(row(&open(&path), "a").await, Some(("1".into(), 1)));
}

#[tokio::test]
async fn backups_at_the_same_time_get_names_of_their_own() {
    let folder = TempFolder::in_memory();
    let store = Sqlite::open(folder.path().join("store.db"), Options::default()).unwrap();
    let backups = futures_util::future::join_all((0..8).map(|_| store.backup_in(folder.path(), "copy-"))).await;
    let paths: std::collections::HashSet<_> = backups.into_iter().map(|backup| backup.unwrap().path).collect();
    assert_eq!(paths.len(), 8);
    assert!(paths.iter().all(|path| path.is_file() && path.extension().is_some_and(|suffix| suffix == "db")));
}
