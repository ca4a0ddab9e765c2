//! A million stored calls: how long the first page takes, by each filter, for calls that are rare and old.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use toolhub::{
    CallQuery, ErrorKind, Sqlite, Status, ToolName,
    clock::{Clock, SystemClock},
    ids::RunId,
    prelude::*,
    sqlite::Options,
};

use crate::verdict;

const CALLS: usize = 1_000_000;
/// One in this many calls fails.
const FAILED_ONE_IN: usize = 100_000;
/// Buffered records are written before the buffer is full.
const CALLS_PER_FLUSH: usize = 2_000;
const ROUNDS: usize = 11;
const TARGET: Duration = Duration::from_millis(100);

async fn look(arguments: Value) -> Result<Value, ToolError> {
    if arguments["n"] == 0 { Err(ToolError::new("dark")) } else { Ok(arguments) }
}

pub(crate) async fn measure_all(folder: &Path) {
    let store = Sqlite::open(folder.join("calls.db"), Options::default()).unwrap();
    let tools = ["look", "rare"].map(|name| tool(name, look).read_only().parameters(json!({"type": "object"})));
    let hub = ToolHub::builder().store(store).tools(tools).build().await.unwrap();
    let (tenant, ann, run) = (Tenant::default(), Caller::new("ann").unwrap(), RunId::mint(SystemClock.now()));
    for n in 1..=10 {
        hub.call("rare", json!({"n": n})).caller(ann.clone()).run(run).thread("rare").await;
    }
    let start = Instant::now();
    for n in 0..CALLS {
        let call = hub.call("look", json!({"n": n % FAILED_ONE_IN}));
        // Half of them in threads.
        let call = if n % 2 == 0 { call } else { call.thread(format!("thread-{}", n / 100).as_str()) };
        call.await;
        if n % CALLS_PER_FLUSH == 0 {
            hub.calls(&tenant, &CallQuery { limit: 1, ..CallQuery::default() }).await.unwrap();
        }
    }
    println!("\n{:<44} {:>10.1} s", "making a million calls", start.elapsed().as_secs_f64());
    // Writes the records that are still buffered, which is not part of a search.
    hub.calls(&tenant, &CallQuery::default()).await.unwrap();
    let any = CallQuery::default;
    let by_tool = CallQuery { tool: Some(ToolName::new("rare").unwrap()), ..any() };
    let queries = [
        ("no filter", 100, any()),
        ("status success", 100, CallQuery { status: Some(Status::Success), ..any() }),
        ("status error", CALLS / FAILED_ONE_IN, CallQuery { status: Some(Status::Error), ..any() }),
        ("error code", CALLS / FAILED_ONE_IN, CallQuery { code: Some(ErrorKind::ToolError), ..any() }),
        ("tool", 10, by_tool.clone()),
        ("caller", 10, CallQuery { caller: Some(ann), ..any() }),
        ("run", 10, CallQuery { run: Some(run), ..any() }),
        ("thread", 10, CallQuery { thread: Some(ThreadId::new("rare").unwrap()), ..any() }),
        ("tool and status, none matches", 0, CallQuery { status: Some(Status::Error), ..by_tool }),
    ];
    for (name, expected, query) in queries {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let page = hub.calls(&tenant, &query).await.unwrap();
            times.push(start.elapsed());
            assert_eq!(page.calls.len(), expected, "{name}");
        }
        times.sort();
        let (median, max) = (times[ROUNDS / 2], times[ROUNDS - 1]);
        let name = format!("first page: {name}");
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        println!(
            "{name:<44} {:>10.2} ms, at most {:.2}  ≤ 100  {}",
            millis(median),
            millis(max),
            verdict(max <= TARGET)
        );
    }
    hub.shutdown(Duration::from_secs(10)).await;
}
