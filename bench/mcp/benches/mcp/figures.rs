//! Times of one hub: how long a long list takes, what a server that never answers costs at the start, and what a hostile server does to
//! the calls of another one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use toolhub::{SourceConnection, ToolHub, mcp::McpServer};

use crate::{
    resident_kilobytes,
    server::{Server, TOOLS_VARIABLE, VARIABLE},
};

const ROUNDS: usize = 5;
/// Calls at once, and calls per measurement, of the server beside the hostile one.
const CONCURRENCY: usize = 8;

pub(crate) async fn print(server: &Server, calls: usize) {
    println!("\n| figure | value | target |");
    println!("|---|---|---|");
    let mut long = Vec::new();
    let mut silent = Vec::new();
    for _ in 0..ROUNDS {
        let short = connect_time(server, "1").await;
        long.push((connect_time(server, "1000").await - short) * 1e3);
        let without = build_time(None).await;
        silent.push((build_time(Some(settings(server, "silent", "silent"))).await - without) * 1e3);
    }
    row("1,000 tools registered, after their list was sent", crate::median(long), 300.0, "ms");
    row("the hub is ready later with a server that never answers", crate::median(silent), 100.0, "ms");

    let hub = ToolHub::builder().source(source(settings(server, "good", "stdio"))).build().await.unwrap();
    connected(&hub).await;
    let alone = p99(&hub, calls).await;
    hub.add_source(Arc::new(source(settings(server, "hostile", "flood")))).unwrap();
    connected(&hub).await;
    let (before, flood) = (resident_kilobytes(), hub.call("hostile__echo", json!({"text": "x"})).start());
    let beside = p99(&hub, calls).await;
    let grown = (resident_kilobytes() - before) / 1024.0;
    flood.cancel();
    row(
        &format!("p99 beside a server that floods ({:.2} ms, alone {:.2} ms)", beside * 1e3, alone * 1e3),
        beside / alone,
        1.5,
        "×",
    );
    row("memory grown meanwhile", grown, 64.0, "MiB");
}

fn row(figure: &str, value: f64, target: f64, unit: &str) {
    let verdict = if value <= target { "met" } else { "MISSED" };
    println!("| {figure} | {value:.2} {unit} | ≤ {target} {unit}, {verdict} |");
}

fn settings(server: &Server, name: &str, mode: &str) -> McpServer {
    McpServer::stdio(name, &server.program).env(VARIABLE, mode).trust().max_tools(2_000)
}

fn source(server: McpServer) -> toolhub::mcp::McpSource {
    server.source().unwrap()
}

async fn connected(hub: &ToolHub) {
    while !hub.sources().iter().all(|source| source.info().status.connection == SourceConnection::Connected) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Seconds until a server with a number of tools is connected.
async fn connect_time(server: &Server, tools: &str) -> f64 {
    let start = Instant::now();
    let settings = settings(server, "long", "stdio").env(TOOLS_VARIABLE, tools);
    let hub = ToolHub::builder().source(source(settings)).build().await.unwrap();
    connected(&hub).await;
    start.elapsed().as_secs_f64()
}

/// Seconds until a hub is ready.
async fn build_time(server: Option<McpServer>) -> f64 {
    let start = Instant::now();
    let builder = server.into_iter().fold(ToolHub::builder(), |builder, server| builder.source(source(server)));
    let hub = builder.build().await.unwrap();
    let time = start.elapsed().as_secs_f64();
    hub.shutdown(Duration::from_secs(1)).await;
    time
}

/// The 99th percentile of the calls of the good server, in seconds.
async fn p99(hub: &ToolHub, calls: usize) -> f64 {
    let tasks: Vec<_> = (0..CONCURRENCY)
        .map(|_| {
            let hub = hub.clone();
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(calls);
                for _ in 0..calls {
                    let start = Instant::now();
                    let outcome = hub.call("good__echo", json!({"text": "hello"})).await;
                    assert!(outcome.is_success(), "{outcome:?}");
                    times.push(start.elapsed().as_secs_f64());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}
