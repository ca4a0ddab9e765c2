//! After SIGKILL at any time, the SQLite store contains every acknowledged batch, and no batch partially.

use std::{collections::HashMap, io::Write as _, path::Path, time::Duration};

use toolhub_storage::backend::{Backend, Durability, Expect, Scan, Scope, Table};
use toolhub_testkit::{TempFolder, kill_after, soak};

use crate::fixtures::{NOW, commit, get, open, put, thread};

pub(crate) const WRITERS: u64 = 8;
/// Makes the test binary act as the process to be killed; contains the file to write.
const FILE_ENV: &str = "TOOLHUB_STORE_TO_BE_KILLED";

/// Counts forever: each number is a row of its own and the new value of a counter, both in one batch.
pub(crate) async fn count(store: &impl Backend, writer: u64) {
    let partition = format!("writer-{writer}");
    loop {
        let row = get(store, &partition, "counter").await.unwrap();
        let next = row.as_ref().map_or(0, |row| row.version.number) + 1;
        let text = next.to_string();
        let mut counter = put("counter", text.as_bytes());
        counter.expect = row.map_or(Expect::Absent, |row| Expect::Same(row.version));
        let mut number = put(&format!("{next:08}"), text.as_bytes());
        (number.table, number.expect) = (Table::History, Expect::Absent);
        if writer.is_multiple_of(2) {
            (counter.durability, number.durability) = (Durability::KillSafe, Durability::KillSafe);
        }
        assert_eq!(commit(store, &partition, vec![counter, number]).await, Ok(vec![next, 1]));
        // One write to the pipe, so that no line is split.
        std::io::stdout().write_all(format!("acknowledged {writer} {next}\n").as_bytes()).unwrap();
    }
}

/// Lets all writers count until the process ends.
pub(crate) async fn count_all(store: std::sync::Arc<impl Backend>) {
    run_writers(WRITERS, |writer| {
        let store = store.clone();
        async move { count(&*store, writer).await }
    })
    .await;
}

/// Not a test but the process that is killed; does nothing without the environment variable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE_ENV) else { return };
    count_all(std::sync::Arc::new(open(Path::new(&path)))).await;
}

/// Parses writer and number from an output line of the process.
pub(crate) fn parse_acknowledgement(line: &str) -> Option<(u64, u64)> {
    let mut words =
        line.split(' ').skip_while(|word| *word != "acknowledged").skip(1).map(|word| word.parse().unwrap());
    Some((words.next()?, words.next()?))
}

/// Runs a test of this binary as a child process with a path, kills it after this many acknowledgements, and returns the last number
/// of each writer.
pub(crate) fn run_and_kill(
    test: &str,
    (variable, path): (&str, &Path),
    acknowledgements: usize,
    mut on_acknowledged: impl FnMut(u64, u64),
) -> HashMap<u64, u64> {
    let mut last = HashMap::new();
    let path = path.to_str().expect("a temporary path is UTF-8");
    kill_after(test, &[(variable, path)], acknowledgements, |line| {
        let Some((writer, number)) = parse_acknowledgement(line) else { return false };
        on_acknowledged(writer, number);
        last.insert(writer, number);
        true
    });
    last
}

/// Runs this many writers concurrently until the process ends.
pub(crate) async fn run_writers<F: Future<Output = ()> + Send + 'static>(writers: u64, write: impl Fn(u64) -> F) {
    let mut tasks: tokio::task::JoinSet<()> = (0..writers).map(write).collect();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Asserts that the counter has at least the acknowledged value, and that the history contains every number up to it.
pub(crate) async fn assert_all_present(
    store: &impl Backend,
    writer: u64,
    counter: &str,
    acknowledged: &HashMap<u64, u64>,
) {
    let partition = format!("writer-{writer}");
    let version = get(store, &partition, counter).await.unwrap().map_or(0, |row| row.version.number);
    let last = acknowledged.get(&writer).copied().unwrap_or(0);
    assert!(version >= last, "writer {writer}: {last} was acknowledged, but {version} is stored");
    let scan = Scan::new(Table::History, Scope::Partition(thread(&partition))).limit(usize::MAX);
    let rows = store.scan(scan, NOW).await.unwrap().rows;
    let numbers: Vec<u64> = rows.iter().map(|(key, _)| key.id.rsplit('/').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (1..=version).collect::<Vec<_>>(), "no gap and no partial batch");
}

#[tokio::test]
async fn whatever_was_acknowledged_is_there_after_a_kill() {
    let folder = TempFolder::new();
    let path = folder.join("store.db");
    let kills = soak(10, 200);
    for _ in 0..kills {
        let acknowledgements = fastrand::usize(1..600);
        let acknowledged =
            run_and_kill("kill::writes_until_it_is_killed", (FILE_ENV, &path), acknowledgements, |_, _| ());
        check(&path, &acknowledged).await;
    }
}

/// Asserts that all acknowledged numbers are stored without gaps, that opening is fast, and that the file is intact.
pub(crate) async fn check(path: &Path, acknowledged: &HashMap<u64, u64>) {
    let started = tokio::time::Instant::now();
    let store = open(path);
    assert!(started.elapsed() < Duration::from_secs(2), "recovery is fast");
    for writer in 0..WRITERS {
        assert_all_present(&store, writer, "counter", acknowledged).await;
    }
    drop(store);
    assert_integrity(path);
}

pub(crate) fn assert_integrity(path: &Path) {
    let file = rusqlite::Connection::open(path).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
