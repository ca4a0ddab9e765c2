//! Aborts the process at every failpoint of a files backup and restore, and checks that the store is consistent.

use std::{fs, path::Path};

use toolhub_store::files::{self, Backup};
use toolhub_testkit::TempFolder;

use crate::{
    failpoints::{rounds, run_until_failpoint},
    files_backup::{open, row, write},
};

/// The value in both files of the store, which must be equal.
async fn value(folder: &Path) -> String {
    let store = open(folder);
    assert_eq!(store.quarantined_files(), []);
    let (value, version) = row(&store, "a/x").await.unwrap();
    assert_eq!(row(&store, "b/x").await, Some((value.clone(), version)));
    value
}

#[tokio::test]
async fn a_process_that_dies_during_a_backup_leaves_a_whole_one_or_none() {
    let failpoints =
        ["before the snapshot", "after the snapshot", "after the copy", "after the manifest", "after the name"];
    for failpoint in failpoints {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let (path, backup) = (folder.join("state"), folder.join("state.backup"));
            write(&open(&path), 1).await;
            run_until_failpoint("files backup", &path, &format!("files backup: {failpoint}"));
            assert_eq!(value(&path).await, "1", "{failpoint}");
            assert!(!path.join("moment").exists(), "{failpoint}");
            assert_eq!(backup.exists(), failpoint == "after the name", "{failpoint}");
            if !backup.exists() {
                open(&path).backup(&backup).await.unwrap();
            }
            assert_eq!(Backup::read(&backup).unwrap().rows, 2);
            write(&open(&path), 2).await;
            files::restore(&backup, &path).unwrap();
            assert_eq!(value(&path).await, "1", "{failpoint}");
            let mut names: Vec<_> =
                fs::read_dir(folder.join("")).unwrap().map(|file| file.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["state", "state.backup", "state.backup.json"], "{failpoint}");
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_during_a_restore_leaves_the_old_store_or_the_new_one() {
    for (failpoint, committed) in [
        ("after the copy", false),
        ("before the commit", false),
        ("after the commit", true),
        ("after the old store was archived", true),
        ("after the swap", true),
    ] {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let (path, backup) = (folder.join("state"), folder.join("state.backup"));
            let store = open(&path);
            write(&store, 1).await;
            store.backup(&backup).await.unwrap();
            let version = write(&store, 2).await;
            drop(store);
            run_until_failpoint("files restore", &path, &format!("files restore: {failpoint}"));
            assert_eq!(value(&path).await, if committed { "1" } else { "2" }, "{failpoint}");
            assert_eq!(path.join("contexts.before-restore").exists(), committed, "{failpoint}");
            assert_eq!(
                write(&open(&path), 3).await > version + 1,
                committed,
                "{failpoint}: the epoch is new only after the commit"
            );
            files::restore(&backup, &path).unwrap();
            assert_eq!(value(&path).await, "1", "{failpoint}");
            assert!(!path.join("contexts.restoring").exists());
        }
    }
}

/// A file size limit (`ulimit -f`) looks like a full disk to the writer.
#[cfg(unix)]
#[tokio::test]
async fn a_disk_that_takes_no_more_leaves_the_old_store_where_it_is() {
    use crate::{
        failpoints::child_command,
        fixtures::{commit, put},
    };
    let folder = TempFolder::new();
    let (path, backup) = (folder.join("state"), folder.join("state.backup"));
    let store = open(&path);
    write(&store, 1).await;
    commit(&store, "t", vec![put("long/x", &vec![b' '; 400_000])]).await.unwrap();
    store.backup(&backup).await.unwrap();
    write(&store, 2).await;
    drop(store);
    let work = child_command("files restore", &path);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\""])
        .arg(work.get_program())
        .args(work.get_args());
    limited.envs(work.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output_text.contains("contexts.restoring"), "{output_text}");
    assert_eq!(value(&path).await, "2");
    assert!(!path.join("contexts.restoring").exists());
    files::restore(&backup, &path).unwrap();
    assert_eq!(value(&path).await, "1");
}
