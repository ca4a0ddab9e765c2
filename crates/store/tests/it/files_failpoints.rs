//! The process dies at every step of a backup of files and of a restore, and afterwards everything is whole.

use std::{fs, path::Path};

use toolhub_store::files::{self, Backup};
use toolhub_testkit::TempFolder;

use crate::{
    failpoints::{rounds, run_until_failpoint},
    files_backup::{open, row, write},
};

/// The value of both files of the store.
async fn value(folder: &Path) -> String {
    let store = open(folder);
    assert_eq!(store.quarantined_files(), []);
    let (value, version) = row(&store, "a/x").await.unwrap();
    assert_eq!(row(&store, "b/x").await, Some((value.clone(), version)));
    value
}

#[tokio::test]
async fn a_process_that_dies_during_a_backup_leaves_a_whole_one_or_none() {
    let places = ["before the moment", "after the moment", "after the copy", "after the manifest", "after the name"];
    for place in places {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let (path, backup) = (folder.join("state"), folder.join("state.backup"));
            write(&open(&path), 1).await;
            run_until_failpoint("backup of files", &path, &format!("backup of files: {place}"));
            assert_eq!(value(&path).await, "1", "{place}");
            assert!(!path.join("moment").exists(), "{place}");
            assert_eq!(backup.exists(), place == "after the name", "{place}");
            if !backup.exists() {
                open(&path).backup(&backup).await.unwrap();
            }
            assert_eq!(Backup::read(&backup).unwrap().rows, 2);
            write(&open(&path), 2).await;
            files::restore(&backup, &path).unwrap();
            assert_eq!(value(&path).await, "1", "{place}");
            let mut left: Vec<_> =
                fs::read_dir(folder.join("")).unwrap().map(|file| file.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["state", "state.backup", "state.backup.json"], "{place}");
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_during_a_restore_leaves_the_old_store_or_the_new_one() {
    for (place, counts) in [
        ("after the copy", false),
        ("before it counts", false),
        ("after it counts", true),
        ("after the old was kept", true),
        ("after the swap", true),
    ] {
        for _ in 0..rounds() {
            let folder = TempFolder::new();
            let (path, backup) = (folder.join("state"), folder.join("state.backup"));
            let store = open(&path);
            write(&store, 1).await;
            store.backup(&backup).await.unwrap();
            let given = write(&store, 2).await;
            drop(store);
            run_until_failpoint("restore of files", &path, &format!("restore of files: {place}"));
            assert_eq!(value(&path).await, if counts { "1" } else { "2" }, "{place}");
            assert_eq!(path.join("contexts.before-restore").exists(), counts, "{place}");
            assert_eq!(
                write(&open(&path), 3).await > given + 1,
                counts,
                "{place}: it is in a new epoch, or in the old"
            );
            files::restore(&backup, &path).unwrap();
            assert_eq!(value(&path).await, "1", "{place}");
            assert!(!path.join("contexts.restoring").exists());
        }
    }
}

/// The system takes no more than so many bytes of any file, which is how a full disk looks to whoever writes.
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
    let work = child_command("restore of files", &path);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\""])
        .arg(work.get_program())
        .args(work.get_args());
    limited.envs(work.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("contexts.restoring"), "{told}");
    assert_eq!(value(&path).await, "2");
    assert!(!path.join("contexts.restoring").exists());
    files::restore(&backup, &path).unwrap();
    assert_eq!(value(&path).await, "1");
}
