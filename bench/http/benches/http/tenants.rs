//! Two tenants on one server: the latency of one while the other takes everything it can.
//!
//! In: nothing. Out: p99 of tenant `b` on a server that it has for itself, on one where tenant `a` has filled the queue of a tool and
//! the pending approvals, and on that one while `a` keeps sending calls that are refused. Measured interleaved.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::json;
use toolhub::{
    Sqlite,
    prelude::*,
    server::{Auth, KeySetting, NewKey, Scope, Server, Settings},
};

use crate::{
    hub_server::{Add, add},
    load::{self, Client, Target},
    median,
};

/// More calls than the limits allow to wait: 10,000 for approval, 1,000 for the slot of one tool.
const ASKING: usize = 10_500;
const QUEUED: usize = 1_500;
/// Connections of the other tenant that keep sending.
const SENDERS: usize = 2;
const MAX_RATIO: f64 = 1.5;

/// A server with the keys of both tenants.
struct TwoTenants {
    address: SocketAddr,
    keys: [NewKey; 2],
}

pub(crate) async fn run(rounds: usize, duration: Duration, folder: &toolhub_testkit::TempFolder) {
    let alone = start(folder.join("alone.db")).await;
    let full = start(folder.join("full.db")).await;
    // Without `--bench` only a few, to see that it runs.
    let share = if rounds > 1 { 1 } else { 100 };
    send(&full, "slow", QUEUED / share).await;
    send(&full, "ask", ASKING / share).await;
    let mut measured: [Vec<f64>; 3] = Default::default();
    for round in 0..=rounds {
        let alone_p99 = p99(&alone, duration).await;
        let full_p99 = p99(&full, duration).await;
        let stop = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> = (0..SENDERS).map(|_| tokio::spawn(keep_sending(&full, stop.clone()))).collect();
        let sending_p99 = p99(&full, duration).await;
        stop.store(true, Relaxed);
        for sender in senders {
            sender.await.unwrap();
        }
        // The first round is a warm-up.
        if round > 0 {
            for (measured, p99) in measured.iter_mut().zip([alone_p99, full_p99, sending_p99]) {
                measured.push(p99);
            }
        }
    }
    println!("\n| p99 of a tenant's calls, one at a time | ms | times alone | target |\n|---|---|---|---|");
    let names = ["alone on the server", "another tenant waits with all it can", "… and keeps sending"];
    for (name, values) in names.iter().zip(&measured) {
        let ratio = median(values.iter().zip(&measured[0]).map(|(other, alone)| other / alone).collect());
        let verdict = if ratio <= MAX_RATIO { "met" } else { "MISSED" };
        println!("| {name} | {:.2} | {ratio:.2} | ≤ {MAX_RATIO}, {verdict} |", median(values.clone()) * 1e3);
    }
}

async fn start(path: std::path::PathBuf) -> TwoTenants {
    let store = Arc::new(Sqlite::open(path, Default::default()).unwrap());
    let hub = ToolHub::builder()
        .shared_store(store.clone())
        .tool(tool("add", add).read_only())
        .tool(
            tool("slow", async |_: Add| std::future::pending::<Result<(), ToolError>>().await)
                .read_only()
                .max_concurrency(1)
                .queue_timeout(Duration::from_secs(3600))
                .timeout(Duration::from_secs(3600)),
        )
        .tool(tool("ask", async |_: Add| Ok::<(), ToolError>(())).confirm())
        .build()
        .await
        .unwrap();
    let keys = [NewKey::make().unwrap(), NewKey::make().unwrap()];
    let setting = |(tenant, key): (&str, &NewKey)| KeySetting {
        name: tenant.into(),
        tenant: tenant.into(),
        hash: key.hash.clone(),
        scopes: vec![Scope::ToolsCall],
        expires: None,
    };
    let mut settings = Settings::default();
    settings.port = 0;
    settings.auth = Auth::Keys(["a", "b"].into_iter().zip(&keys).map(setting).collect());
    let bound = Server::new(hub, store, settings).bind().await.unwrap();
    let address = bound.address();
    tokio::spawn(bound.serve(std::future::pending()));
    TwoTenants { address, keys }
}

/// Tenant `a` makes calls that do not end.
async fn send(server: &TwoTenants, tool: &str, calls: usize) {
    let mut client = Client::new(server.address).await;
    for number in 0..calls {
        client.send_any(&request(server, tool, number)).await;
    }
}

fn keep_sending(server: &TwoTenants, stop: Arc<AtomicBool>) -> impl Future<Output = ()> + Send + use<> {
    let (address, request) = (server.address, request(server, "ask", usize::MAX >> 16));
    async move {
        let mut client = Client::new(address).await;
        while !stop.load(Relaxed) {
            client.send_any(&request).await;
        }
    }
}

fn request(server: &TwoTenants, tool: &str, number: usize) -> Vec<u8> {
    let body = json!({"arguments": {"a": number, "b": 0}, "threadId": format!("t{}", number % 50)}).to_string();
    let head = format!("POST /api/v1/tools/{tool}/calls HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json");
    let key = &server.keys[0].key;
    let length = body.len();
    format!("{head}\r\nauthorization: Bearer {key}\r\nprefer: respond-async\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The p99 of tenant `b` in seconds.
async fn p99(server: &TwoTenants, duration: Duration) -> f64 {
    let request = load::request(Some(&server.keys[1].key));
    let target =
        Target { name: "", address: server.address, request, body_len: 0, min_rate_ratio: None, max_p99_ratio: None };
    load::run(&target, 1, duration).await.p99.as_secs_f64()
}
