//! Killed at any moment, the store of files has everything it acknowledged, and nothing by halves.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use toolhub_core::backend::{Backend, Scan, Scope, Table};
use toolhub_store::{Files, files::Options};

use crate::shelf::{Folder, NOW, commit, get, put, thread};

const WRITERS: u64 = 6;
/// Tells the test binary that it is the process to be killed, and which folder it writes.
const FOLDER: &str = "TOOLHUB_FILES_TO_BE_KILLED";

fn open(path: &Path) -> Files {
    Files::open(path, Options { compression: fastrand::bool(), backups: None }).unwrap()
}

/// Counts for ever, in two contexts at once.
async fn count(store: &Files, writer: u64) {
    let partition = format!("writer-{writer}");
    loop {
        let next = get(store, &partition, "one/n").await.unwrap().map_or(0, |row| row.seen.version) + 1;
        let mut entry = put(&format!("two/{next:08}"), b"{}");
        entry.table = Table::History;
        let writes = vec![put("one/n", next.to_string().as_bytes()), entry];
        assert_eq!(commit(store, &partition, writes).await, Ok(vec![next, 1]));
        // One write to the pipe, so that no line is cut in two.
        std::io::stdout().write_all(format!("acknowledged {writer} {next}\n").as_bytes()).unwrap();
    }
}

/// Not a test but the process that is killed; it does nothing unless it is told its folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FOLDER) else { return };
    let store = Arc::new(open(Path::new(&path)));
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move { count(&store, writer).await })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Runs the process above for so many acknowledgements, kills it, and answers the last number of each writer.
fn run_and_kill(path: &Path, acknowledgements: usize) -> HashMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["files_kill::writes_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut last, mut seen) = (HashMap::new(), 0);
    // After the kill the pipe still holds what was acknowledged before it.
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let mut words = line.split(' ').skip_while(|word| *word != "acknowledged").skip(1).map(|w| w.parse().unwrap());
        let (Some(writer), Some(number)) = (words.next(), words.next()) else { continue };
        last.insert(writer, number);
        seen += 1;
        if seen == acknowledgements {
            child.kill().unwrap();
        }
    }
    assert!(seen >= acknowledgements, "it ended by itself after {seen}: {:?}", child.wait());
    child.wait().unwrap();
    last
}

#[tokio::test]
async fn whatever_was_acknowledged_is_there_after_a_kill() {
    let kills = if std::env::var_os("TOOLHUB_SOAK").is_some() { 300 } else { 10 };
    let mut folder = Folder::in_memory();
    for kill in 1..=kills {
        // Every entry lies in the same file, and each makes it longer: begun anew before that is all that takes time.
        if kill % 20 == 0 {
            folder = Folder::in_memory();
        }
        let path = folder.path("state");
        let acknowledged = run_and_kill(&path, fastrand::usize(1..300));
        let store = open(&path);
        assert_eq!(store.damaged(), []);
        for writer in 0..WRITERS {
            let partition = format!("writer-{writer}");
            let version = get(&store, &partition, "one/n").await.unwrap().map_or(0, |row| row.seen.version);
            let last = acknowledged.get(&writer).copied().unwrap_or(0);
            assert!(version >= last, "writer {writer} was told of {last}, and {version} is there");
            let scan = Scan::of(Table::History, Scope::Partition(thread(&partition))).limit(usize::MAX);
            let rows = store.scan(scan, NOW).await.unwrap().rows;
            let numbers: Vec<u64> =
                rows.iter().map(|(key, _)| key.id.rsplit('/').next().unwrap().parse().unwrap()).collect();
            assert_eq!(numbers, (1..=version).collect::<Vec<_>>(), "no gap, and nothing by halves");
        }
    }
}
