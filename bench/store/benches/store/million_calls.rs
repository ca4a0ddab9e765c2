//! A million stored calls: how long the first page takes, by each filter, for calls that are rare and old; and by filters that many
//! calls have, but none has together.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use toolhub::{
    CallQuery, ErrorKind, Sqlite, Status, ToolName,
    backend::Memory,
    clock::{Clock, SystemClock},
    ids::RunId,
    prelude::*,
    sqlite::Options,
};

use crate::verdict;

const CALLS: usize = 1_000_000;
/// Further calls, of another tenant: one tool of one caller always succeeds, another of another caller always fails.
const CONTRARY_CALLS: usize = 200_000;
/// More than fit into the default limit of the memory store, which removes the oldest.
const MEMORY_CALLS: u64 = 500_000;
/// One in this many calls fails.
const FAILED_ONE_IN: usize = 100_000;
/// Buffered records are written before the buffer is full.
const CALLS_PER_FLUSH: usize = 2_000;
const ROUNDS: usize = 11;
const TARGET: Duration = Duration::from_millis(100);

async fn look(arguments: Value) -> Result<Value, ToolError> {
    if arguments["n"] == 0 { Err(ToolError::new("dark").uncounted()) } else { Ok(arguments) }
}

pub(crate) async fn measure_all(folder: &Path) {
    let store = Sqlite::open(folder.join("calls.db"), Options::default()).unwrap();
    let tools =
        ["look", "glance", "rare"].map(|name| tool(name, look).read_only().parameters(json!({"type": "object"})));
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
    let other = Tenant::new("other").unwrap();
    let callers = ["bob", "eve"].map(|name| Caller::new(name).unwrap());
    for n in 0..CONTRARY_CALLS {
        let call = hub.call(["look", "glance"][n % 2], json!({"n": 1 - n % 2}));
        call.tenant(other.clone()).caller(callers[n % 2].clone()).await;
        if n % CALLS_PER_FLUSH == 0 {
            hub.calls(&tenant, &CallQuery { limit: 1, ..CallQuery::default() }).await.unwrap();
        }
    }
    println!("\n{:<44} {:>10.1} s", "making the calls", start.elapsed().as_secs_f64());
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
    let look = || CallQuery { tool: Some(ToolName::new("look").unwrap()), ..any() };
    let contrary = [
        ("common tool and status, none matches", 0, CallQuery { status: Some(Status::Error), ..look() }),
        ("common tool and code, none matches", 0, CallQuery { code: Some(ErrorKind::ToolError), ..look() }),
        ("common tool and caller, none of 20,000", 0, CallQuery { caller: Some(callers[1].clone()), ..look() }),
    ];
    let queries = queries.map(|query| (&tenant, query)).into_iter();
    for (tenant, (name, expected, query)) in queries.chain(contrary.map(|query| (&other, query))) {
        measure(&hub, tenant, name, expected, &query).await;
    }
    hub.shutdown(Duration::from_secs(10)).await;
    measure_memory().await;
}

/// The memory store has no index of terms: a filter that matches nothing looks at every call. Its size limit bounds their number.
async fn measure_memory() {
    let tools = ["look", "rare"].map(|name| tool(name, look).read_only().parameters(json!({"type": "object"})));
    let hub = ToolHub::builder().store(Memory::new()).tools(tools).build().await.unwrap();
    let (tenant, mut n) = (Tenant::default(), 0);
    while hub.journal_stats().written < MEMORY_CALLS {
        n += 1;
        hub.call("look", json!({"n": n})).await;
        if n % CALLS_PER_FLUSH == 0 {
            hub.calls(&tenant, &CallQuery { limit: 1, ..CallQuery::default() }).await.unwrap();
        }
    }
    let rare = CallQuery { tool: Some(ToolName::new("rare").unwrap()), ..CallQuery::default() };
    measure(&hub, &tenant, "memory at its limit, none matches", 0, &rare).await;
    hub.shutdown(Duration::from_secs(10)).await;
}

async fn measure(hub: &ToolHub, tenant: &Tenant, name: &str, expected: usize, query: &CallQuery) {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let page = hub.calls(tenant, query).await.unwrap();
        times.push(start.elapsed());
        assert_eq!(page.calls.len(), expected, "{name}");
    }
    times.sort();
    let (median, max) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    let name = format!("first page: {name}");
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("{name:<52} {:>10.2} ms, at most {:.2}  ≤ 100  {}", millis(median), millis(max), verdict(max <= TARGET));
}
