//! After SIGKILL at any time, the file store contains every acknowledged batch, and no batch partially.

use std::{io::Write as _, path::Path, sync::Arc};

use toolhub_storage::backend::Table;
use toolhub_store::{Files, files::Options};
use toolhub_testkit::{TempFolder, soak};

use crate::{
    fixtures::{commit, get, put},
    kill::{assert_all_present, run_and_kill, run_writers},
};

const WRITERS: u64 = 6;
/// Makes the test binary act as the process to be killed; contains the folder to write.
const FOLDER_ENV: &str = "TOOLHUB_FILES_TO_BE_KILLED";

fn open(path: &Path) -> Files {
    Files::open(path, Options { compression: fastrand::bool(), backups: None }).unwrap()
}

/// Counts forever, in two contexts per batch.
async fn count(store: &Files, writer: u64) {
    let partition = format!("writer-{writer}");
    loop {
        let next = get(store, &partition, "one/n").await.unwrap().map_or(0, |row| row.version.number) + 1;
        let mut entry = put(&format!("two/{next:08}"), b"{}");
        entry.table = Table::History;
        let writes = vec![put("one/n", next.to_string().as_bytes()), entry];
        assert_eq!(commit(store, &partition, writes).await, Ok(vec![next, 1]));
        // One write to the pipe, so that no line is split.
        std::io::stdout().write_all(format!("acknowledged {writer} {next}\n").as_bytes()).unwrap();
    }
}

/// Not a test but the process that is killed; does nothing without the environment variable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FOLDER_ENV) else { return };
    let store = Arc::new(open(Path::new(&path)));
    run_writers(WRITERS, |writer| {
        let store = store.clone();
        async move { count(&store, writer).await }
    })
    .await;
}

#[tokio::test]
async fn whatever_was_acknowledged_is_there_after_a_kill() {
    let kills = soak(10, 300);
    let mut folder = TempFolder::in_memory();
    for kill in 1..=kills {
        // All entries are in the same file, which grows with each: start over before rewriting it dominates the run time.
        if kill % 20 == 0 {
            folder = TempFolder::in_memory();
        }
        let path = folder.join("state");
        let acknowledgements = fastrand::usize(1..300);
        let acknowledged =
            run_and_kill("files_kill::writes_until_it_is_killed", (FOLDER_ENV, &path), acknowledgements, |_, _| ());
        let store = open(&path);
        assert_eq!(store.quarantined_files(), []);
        for writer in 0..WRITERS {
            assert_all_present(&store, writer, "one/n", &acknowledged).await;
        }
    }
}
