//! A whole hub under load, killed at any time: no acknowledged write is lost, no key has two effects, every open call
//! ends once, and the next process continues immediately.
//!
//! The tools append every effect to their own ledger, which is synced before they return. Acknowledgements are lines on
//! the process's standard output. The store is compared with both afterwards.

mod http;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use toolhub::{
    HistoryEvent, Sqlite,
    backend::{Backend, Scan, Scope, Table},
    clock::{Clock, SystemClock},
    prelude::*,
    sqlite::Options,
};

use toolhub_testkit::{TempFolder, kill_after, soak};

/// Environment of the process to be killed: its folder, and its generation.
const FOLDER_VARIABLE: &str = "TOOLHUB_HUB_TO_BE_KILLED";
const GENERATION_VARIABLE: &str = "TOOLHUB_HUB_LIFE";
const WRITERS: usize = 8;

/// The effects that really happened, independent of the hub.
struct EffectLog(Mutex<File>);

impl EffectLog {
    fn append(&self, line: &str) {
        let mut file = self.0.lock().unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        file.sync_data().unwrap();
    }
}

/// Pay for an order.
#[derive(Deserialize, JsonSchema)]
struct Order {
    order: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Paid {
    orders: u64,
}
impl ToolState for Paid {
    const NAME: &'static str = "paid";
}

async fn pay(order: Order, mut paid: State<Paid>, ledger: Shared<EffectLog>) -> Result<u64, ToolError> {
    ledger.append(&order.order);
    paid.orders += 1;
    Ok(paid.orders)
}

async fn paid_orders(_: NoArguments, paid: State<Paid>) -> Result<u64, ToolError> {
    Ok(paid.orders)
}

fn store_path(folder: &Path) -> PathBuf {
    folder.join("hub.db")
}

fn open_store(folder: &Path) -> Sqlite {
    Sqlite::open(store_path(folder), Options::default()).unwrap()
}

async fn hub(folder: &Path, store: Arc<Sqlite>) -> ToolHub {
    let ledger = OpenOptions::new().create(true).append(true).open(folder.join("ledger")).unwrap();
    ToolHub::builder()
        .store(store)
        .resource(EffectLog(Mutex::new(ledger)))
        .tool(tool("pay", pay))
        .tool(tool("look", paid_orders).read_only())
        .build()
        .await
        .unwrap()
}

fn writer_thread(writer: usize) -> String {
    format!("writer-{writer}")
}

/// One write to the pipe, so that no line is split.
fn print_line(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Places orders in a loop, each once; first repeats those that the previous process left without an answer.
async fn place_orders(hub: ToolHub, writer: usize, life: usize, unanswered: Vec<String>) {
    let fresh = (0..).map(|number| format!("{writer}-{life}-{number}"));
    for (number, key) in unanswered.into_iter().chain(fresh).enumerate() {
        print_line(&format!("attempt {key}"));
        let call = hub.call("pay", json!({"order": key})).thread(writer_thread(writer)).idempotency_key(key.clone());
        let outcome = call.await;
        match (&outcome.error, outcome.is_success()) {
            (_, true) => print_line(&format!("paid {key} {}", outcome.output)),
            (Some(error), _) if error.kind == ErrorKind::Interrupted => print_line(&format!("interrupted {key}")),
            _ => print_line(&format!("unexpected {key} {outcome:?}")),
        }
        if number % 8 == 3 {
            // Calls without a key must end too.
            let call = hub.call("pay", json!({"order": format!("plain-{key}")})).thread(writer_thread(writer));
            print_line(&format!("plain {}", call.await.is_success()));
            hub.call("look", json!({})).thread(writer_thread(writer)).await;
        }
    }
}

/// Not a test but the process that is killed; it does nothing without the environment variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn works_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let life: usize = std::env::var(GENERATION_VARIABLE).unwrap().parse().unwrap();
    let began = tokio::time::Instant::now();
    let hub = hub(&folder, Arc::new(open_store(&folder))).await;
    print_line(&format!("ready {}", began.elapsed().as_millis()));
    let unanswered = fs::read_to_string(folder.join("left")).unwrap_or_default();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let mine = format!("{writer}-");
        let unanswered = unanswered.lines().filter(|key| key.starts_with(&mine)).map(String::from).collect();
        writers.spawn(place_orders(hub.clone(), writer, life, unanswered));
    }
    writers.join_all().await;
}

/// What a process acknowledged before it was killed.
#[derive(Default)]
struct ProcessReport {
    attempted: BTreeSet<String>,
    paid: BTreeMap<String, u64>,
    interrupted: BTreeSet<String>,
    ready_after: Duration,
}

/// Runs the process until it has acknowledged this many orders, and kills it.
fn run_and_kill(folder: &Path, life: usize, acknowledgements: usize) -> ProcessReport {
    let mut report = ProcessReport::default();
    let variables = [
        (FOLDER_VARIABLE, folder.to_str().expect("a temporary path is UTF-8")),
        (GENERATION_VARIABLE, &life.to_string()),
    ];
    kill_after("crash_recovery::works_until_it_is_killed", &variables, acknowledgements, |line| {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("ready"), Some(millis), _) => report.ready_after = Duration::from_millis(millis.parse().unwrap()),
            (Some("attempt"), Some(key), _) => {
                report.attempted.insert(key.into());
            }
            (Some("paid"), Some(key), Some(count)) => {
                report.paid.insert(key.into(), count.parse().unwrap());
                return true;
            }
            (Some("interrupted"), Some(key), _) => {
                report.interrupted.insert(key.into());
                return true;
            }
            (Some("unexpected"), ..) => panic!("{line}"),
            _ => {}
        }
        false
    });
    report
}

#[tokio::test]
async fn a_killed_hub_has_lost_nothing_it_acknowledged_and_done_nothing_twice() {
    let folder = TempFolder::new();
    let kills = soak(30, 1_000);
    let (mut paid, mut interrupted) = (BTreeMap::new(), BTreeSet::new());
    let mut slowest = Duration::ZERO;
    for life in 0..kills {
        let report = run_and_kill(folder.path(), life, fastrand::usize(1..60));
        slowest = slowest.max(report.ready_after);
        for (key, count) in &report.paid {
            let before = paid.insert(key.clone(), *count);
            assert!(before.is_none_or(|before| before == *count), "{key} was answered {before:?}, then {count}");
        }
        interrupted.extend(report.interrupted.iter().cloned());
        let answered = |key: &&String| !paid.contains_key(*key) && !interrupted.contains(*key);
        let unanswered: Vec<&str> = report.attempted.iter().filter(answered).map(String::as_str).collect();
        fs::write(folder.path().join("left"), unanswered.join("\n")).unwrap();
        if life % 10 == 9 || life + 1 == kills {
            verify_store(folder.path(), &paid, &interrupted).await;
        }
    }
    println!("{kills} kills, {} paid, {} interrupted, ready after {slowest:?}", paid.len(), interrupted.len());
}

/// Compares the store with what was acknowledged and what happened.
async fn verify_store(folder: &Path, paid: &BTreeMap<String, u64>, interrupted: &BTreeSet<String>) {
    let ledger = fs::read_to_string(folder.join("ledger")).unwrap();
    let mut effects: BTreeMap<&str, usize> = BTreeMap::new();
    // The last line may be incomplete if it was not synced; then its call was never answered.
    for order in ledger.lines() {
        *effects.entry(order).or_default() += 1;
    }
    for (key, times) in &effects {
        assert_eq!(*times, 1, "{key} took effect {times} times");
    }
    for key in paid.keys() {
        assert!(effects.contains_key(key.as_str()), "{key} was acknowledged and did not happen");
    }
    let hub = hub(folder, Arc::new(open_store(folder))).await;
    for (key, count) in paid {
        let writer: usize = key.split('-').next().unwrap().parse().unwrap();
        let call = hub.call("pay", json!({"order": key})).thread(writer_thread(writer)).idempotency_key(key.clone());
        let repeated = call.await;
        assert!(repeated.is_success() && repeated.replayed && repeated.output == *count, "{key}: {repeated:?}");
    }
    for key in interrupted {
        assert!(!paid.contains_key(key), "{key} has two ends");
    }
    for writer in 0..WRITERS {
        let (tenant, context) = (Tenant::default(), format!("{}/paid", writer_thread(writer)).parse().unwrap());
        let Some(entry) = hub.state().get_state(&tenant, &context, StateKind::Business).await.unwrap() else {
            continue;
        };
        assert_eq!(entry.data["orders"], entry.version, "a version for each order");
        let acknowledged = paid.iter().filter(|(key, _)| key.starts_with(&format!("{writer}-")));
        let last_acknowledged = acknowledged.map(|(_, count)| *count).max().unwrap_or(0);
        assert!(
            entry.version >= last_acknowledged,
            "writer {writer} got an acknowledgement for {last_acknowledged}, and the version is {}",
            entry.version
        );
        let history = hub.state().history(&tenant, &context, usize::MAX).await.unwrap();
        let updates: Vec<u64> = history
            .iter()
            .filter_map(
                |entry| if let HistoryEvent::Update { version, .. } = entry.event { Some(version) } else { None },
            )
            .collect();
        let first = entry.version + 1 - updates.len() as u64;
        assert_eq!(updates, (first..=entry.version).collect::<Vec<_>>(), "no gap in the history");
    }
    hub.shutdown(Duration::from_secs(5)).await;
    drop(hub);
    let store = open_store(folder);
    let all = async |table| {
        let scan = Scan::new(table, Scope::All).limit(usize::MAX);
        store.scan(scan, SystemClock.now()).await.unwrap().rows
    };
    assert_eq!(all(Table::OpenCalls).await.len(), 0, "every open call was closed");
    for (key, row) in all(Table::Calls).await {
        let record: Value = serde_json::from_slice(&row.value).unwrap();
        assert!(record["outcome"]["status"].is_string(), "{}: {record}", key.id);
        assert_eq!(row.version.number, 1, "{} was closed once", key.id);
    }
    drop(store);
    let file = rusqlite::Connection::open(store_path(folder)).unwrap();
    let verdict: String = file.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
