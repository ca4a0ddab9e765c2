//! Killed at any moment, the store has everything it acknowledged, and nothing by halves.

use std::{collections::HashMap, io::Write as _, path::Path, time::Duration};

use toolhub_storage::backend::{Backend, Durability, Expect, Scan, Scope, Table};
use toolhub_testkit::{TempFolder, kill_after, soak};

use crate::fixtures::{NOW, commit, get, open, put, thread};

pub(crate) const WRITERS: u64 = 8;
/// Tells the test binary that it is the process to be killed, and which file it writes.
const FILE_ENV: &str = "TOOLHUB_STORE_TO_BE_KILLED";

/// Counts for ever: each number is a row of its own and the new value of a counter, both in one batch.
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
        // One write to the pipe, so that no line is cut in two.
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

/// Not a test but the process that is killed; it does nothing unless it is told its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE_ENV) else { return };
    count_all(std::sync::Arc::new(open(Path::new(&path)))).await;
}

/// The writer and the number in a line of the process.
pub(crate) fn parse_acknowledgement(line: &str) -> Option<(u64, u64)> {
    let mut words =
        line.split(' ').skip_while(|word| *word != "acknowledged").skip(1).map(|word| word.parse().unwrap());
    Some((words.next()?, words.next()?))
}

/// Runs a test of this binary as a process of its own that is told a path, kills it after so many acknowledgements, and answers the
/// last number of each writer.
pub(crate) fn run_and_kill(
    test: &str,
    (variable, path): (&str, &Path),
    acknowledgements: usize,
    mut heard: impl FnMut(u64, u64),
) -> HashMap<u64, u64> {
    let mut last = HashMap::new();
    let path = path.to_str().expect("a temporary path is UTF-8");
    kill_after(test, &[(variable, path)], acknowledgements, |line| {
        let Some((writer, number)) = parse_acknowledgement(line) else { return false };
        heard(writer, number);
        last.insert(writer, number);
        true
    });
    last
}

/// Has each of so many writers do something for ever, one beside the other.
pub(crate) async fn run_writers<F: Future<Output = ()> + Send + 'static>(writers: u64, write: impl Fn(u64) -> F) {
    let mut tasks: tokio::task::JoinSet<()> = (0..writers).map(write).collect();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// A writer finds all that was acknowledged, under this id, and in its history every number up to that.
pub(crate) async fn assert_all_present(
    store: &impl Backend,
    writer: u64,
    counter: &str,
    acknowledged: &HashMap<u64, u64>,
) {
    let partition = format!("writer-{writer}");
    let version = get(store, &partition, counter).await.unwrap().map_or(0, |row| row.version.number);
    let last = acknowledged.get(&writer).copied().unwrap_or(0);
    assert!(version >= last, "writer {writer} was told of {last}, and {version} is there");
    let scan = Scan::new(Table::History, Scope::Partition(thread(&partition))).limit(usize::MAX);
    let rows = store.scan(scan, NOW).await.unwrap().rows;
    let numbers: Vec<u64> = rows.iter().map(|(key, _)| key.id.rsplit('/').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (1..=version).collect::<Vec<_>>(), "no gap, and nothing by halves");
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

/// Everything that was acknowledged is there, without gaps, at once, in a sound file.
pub(crate) async fn check(path: &Path, acknowledged: &HashMap<u64, u64>) {
    let began = tokio::time::Instant::now();
    let store = open(path);
    assert!(began.elapsed() < Duration::from_secs(2), "it is ready again soon");
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
