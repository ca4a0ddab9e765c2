//! Aborts the process at every failpoint and checks that the step was applied completely or not at all.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use toolhub_store::{
    WriteBehind, files,
    sqlite::{self, Backup},
    write_behind,
};
use toolhub_testkit::{TempFolder, soak};
use toolhub_types::store_role::StoreRole;

use crate::{
    files_backup,
    fixtures::{commit, get, open, put},
    kill::{assert_integrity, check, count_all, parse_acknowledgement},
    vfs::FaultyDisk,
};

/// The work and the path of the process that aborts.
const WORK_ENV: &str = "TOOLHUB_STORE_WORK";
const FILE_ENV: &str = "TOOLHUB_STORE_FILE";
/// The number of SQLite writes and syncs after which it aborts, instead of a failpoint.
const STEPS_ENV: &str = "TOOLHUB_STORE_STEPS";

/// Not a test but the process that aborts; does nothing without the environment variable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the tests below, in a process of its own"]
async fn works_until_it_dies() {
    let Ok(work) = std::env::var(WORK_ENV) else { return };
    let path = PathBuf::from(std::env::var_os(FILE_ENV).unwrap());
    if let Ok(steps) = std::env::var(STEPS_ENV) {
        FaultyDisk::watch(path.parent().unwrap()).die_after(steps.parse().unwrap());
    }
    match work.as_str() {
        "count" => count_all(Arc::new(open(&path))).await,
        "open" => drop(open(&path)),
        "backup" => drop(open(&path).backup(path.with_extension("backup")).await.unwrap()),
        "restore" => drop(sqlite::restore(path.with_extension("backup"), &path, StoreRole::Hub).unwrap()),
        "files backup" => drop(files_backup::open(&path).backup(path.with_extension("backup")).await.unwrap()),
        "files restore" => drop(files::restore(path.with_extension("backup"), &path).unwrap()),
        "write-behind" => {
            let options =
                write_behind::Options { flush_interval: Duration::from_millis(2), ..write_behind::Options::default() };
            let store = WriteBehind::open(Arc::new(open(&path)), options).await.unwrap();
            for number in 0..500_u32 {
                let text = number.to_string();
                let writes = vec![put("a", text.as_bytes()), put("b", text.as_bytes())];
                println!("\nacknowledged 0 {}", commit(&store, "t", writes).await.unwrap()[0]);
                tokio::task::yield_now().await;
            }
            store.close().await.unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Runs the process above until it aborts at the failpoint; returns the last number of each writer.
pub(crate) fn run_until_failpoint(work: &str, path: &Path, failpoint: &str) -> HashMap<u64, u64> {
    let (aborted, last) = run_child(work, path, ("TOOLHUB_FAILPOINT", failpoint));
    assert!(aborted, "failpoint `{failpoint}` was never reached, or the build has no failpoints");
    last
}

/// The command line of the process above.
pub(crate) fn child_command(work: &str, path: &Path) -> Command {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["failpoints::works_until_it_dies", "--exact", "--ignored", "--nocapture"]);
    process.env(WORK_ENV, work).env(FILE_ENV, path).stderr(Stdio::null());
    process
}

/// Runs the process above; returns whether it aborted, and the last number of each writer.
fn run_child(work: &str, path: &Path, (variable, value): (&str, &str)) -> (bool, HashMap<u64, u64>) {
    let output = child_command(work, path).env(variable, value).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A failed test exits with a code; an aborted one ends by a signal.
    assert!(output.status.success() || output.status.code().is_none(), "{work}, {value}: {text}");
    let mut last = HashMap::new();
    last.extend(text.lines().filter_map(parse_acknowledgement));
    (!output.status.success(), last)
}

pub(crate) fn rounds() -> usize {
    soak(1, 50)
}

#[tokio::test]
async fn a_process_that_dies_while_it_writes_loses_nothing_it_acknowledged() {
    for failpoint in [
        "writer: before a write",
        "writer: before the commit",
        "writer: after the commit",
        "writer: after the replies",
        "checkpoint: before",
        "checkpoint: after",
    ] {
        let folder = TempFolder::new();
        let path = folder.join("store.db");
        for _ in 0..rounds() {
            let visits = if failpoint.starts_with("checkpoint") { 3 } else { 100 };
            let acknowledged =
                run_until_failpoint("count", &path, &format!("{failpoint}#{}", fastrand::u32(1..=visits)));
            check(&path, &acknowledged).await;
        }
    }
}

/// Reverts a file to the first schema version.
pub(crate) fn downgrade_to_first_schema(path: &Path) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(
        "DROP INDEX by_id; CREATE INDEX by_id ON rows (tab, id, partition);
         DROP TRIGGER remove_blocks; DROP TABLE term_blocks; ALTER TABLE rows DROP COLUMN terms;
         DROP TABLE facts; DROP TABLE damaged; DELETE FROM steps WHERE version > 1",
    )
    .unwrap();
}

async fn value(path: &Path) -> (String, u64) {
    let store = open(path);
    let row = get(&store, "t", "a").await.unwrap().unwrap();
    assert_eq!(get(&store, "t", "b").await.unwrap().unwrap().value, row.value);
    (String::from_utf8(row.value.to_vec()).unwrap(), row.version.number)
}

async fn write(path: &Path, value: &str) {
    let store = open(path);
    commit(&store, "t", vec![put("a", value.as_bytes()), put("b", value.as_bytes())]).await.unwrap();
}

#[tokio::test]
async fn a_process_that_dies_during_a_migration_leaves_a_file_that_opens() {
    for failpoint in ["before the copy", "after the copy", "inside the step", "after the step"] {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let path = folder.join("store.db");
            write(&path, "old").await;
            downgrade_to_first_schema(&path);
            run_until_failpoint("open", &path, &format!("migration: {failpoint}"));
            assert_eq!(value(&path).await, ("old".into(), 1), "{failpoint}");
            assert_integrity(&path);
            assert_integrity(&folder.join("store.db.before-2"));
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_during_a_backup_leaves_a_whole_one_or_none() {
    let failpoints = ["before the copy", "after the copy", "after the sync", "after the manifest", "after the name"];
    for failpoint in failpoints {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let (path, backup) = (folder.join("store.db"), folder.join("store.backup"));
            write(&path, "here").await;
            run_until_failpoint("backup", &path, &format!("backup: {failpoint}"));
            assert_eq!(value(&path).await, ("here".into(), 1));
            assert_eq!(backup.exists(), failpoint == "after the name", "{failpoint}");
            if !backup.exists() {
                open(&path).backup(&backup).await.unwrap();
            }
            assert_eq!(Backup::read(&backup).unwrap().bytes, fs::metadata(&backup).unwrap().len());
            write(&path, "later").await;
            sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
            assert_eq!(value(&path).await.0, "here", "{failpoint}");
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_during_a_restore_leaves_the_old_store_or_the_new_one() {
    for (failpoint, swapped) in [
        ("after the copy", false),
        ("after the WAL checkpoint", false),
        ("after the sync", false),
        ("after the old store was archived", false),
        ("after the swap", true),
    ] {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let path = folder.join("store.db");
            write(&path, "backed up").await;
            open(&path).backup(folder.join("store.backup")).await.unwrap();
            write(&path, "later").await;
            // The old store crashed too: part of it is in its WAL.
            let acknowledged = run_until_failpoint("count", &path, "writer: after the replies#30");
            assert!(fs::metadata(folder.join("store.db-wal")).unwrap().len() > 10_000);
            run_until_failpoint("restore", &path, &format!("restore: {failpoint}"));
            if swapped {
                assert_eq!(value(&path).await, ("backed up".into(), 1), "{failpoint}");
            } else {
                assert_eq!(value(&path).await, ("later".into(), 2), "{failpoint}");
                check(&path, &acknowledged).await;
            }
            assert_integrity(&path);
            sqlite::restore(folder.join("store.backup"), &path, StoreRole::Hub).unwrap();
            assert_eq!(value(&path).await, ("backed up".into(), 1), "{failpoint}");
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_while_it_writes_behind_leaves_whole_batches_and_a_new_epoch() {
    for failpoint in
        ["write-behind: before a write", "write-behind: after a write", "write-behind: before the shutdown record"]
    {
        let folder = TempFolder::new();
        let path = folder.join("store.db");
        let mut highest = 0;
        for _ in 0..rounds().max(2) {
            let visit = if failpoint.ends_with("record") { 1 } else { fastrand::u32(1..40) };
            let acknowledged = run_until_failpoint("write-behind", &path, &format!("{failpoint}#{visit}"))
                .get(&0)
                .copied()
                .unwrap_or(0);
            assert!(acknowledged == 0 || acknowledged > highest, "{failpoint}: {acknowledged} after {highest}");
            highest = highest.max(acknowledged);
            let store = open(&path);
            let row = get(&store, "t", "a").await.unwrap();
            let value = row.as_ref().map(|row| row.value.to_vec());
            assert_eq!(get(&store, "t", "b").await.unwrap().map(|row| row.value.to_vec()), value, "{failpoint}");
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_at_any_write_or_sync_of_sqlite_leaves_everything_whole() {
    let mut aborts = 0;
    for _ in 0..rounds().max(4) {
        let folder = TempFolder::in_memory();
        let path = folder.join("store.db");
        let mut abort_during = |work: &str, max_steps: u32| {
            let (aborted, last) = run_child(work, &path, (STEPS_ENV, &fastrand::u32(0..max_steps).to_string()));
            aborts += usize::from(aborted);
            last
        };
        let acknowledged = abort_during("count", 4000);
        check(&path, &acknowledged).await;
        write(&path, "old").await;
        downgrade_to_first_schema(&path);
        abort_during("open", 40);
        assert_eq!(value(&path).await, ("old".into(), 1), "after a migration");
        abort_during("backup", 150);
        assert_eq!(value(&path).await, ("old".into(), 1), "after a backup");
        let backup = folder.join("store.backup");
        if !backup.exists() {
            open(&path).backup(&backup).await.unwrap();
        }
        write(&path, "new").await;
        abort_during("restore", 20);
        let found = value(&path).await;
        assert!(["old", "new"].contains(&found.0.as_str()), "{found:?}");
        check(&path, &acknowledged).await;
        sqlite::restore(&backup, &path, StoreRole::Hub).unwrap();
        assert_eq!(value(&path).await.0, "old");
    }
    assert!(aborts > 0, "no process aborted");
}
