//! The binary under clients that hold more connections, streams and unread answers than it has room for.
//!
//! With `TOOLHUB_SOAK` set, they hold 4,200 connections against the default limits, and each test prints the worst latency
//! of the others and the peak memory of the process.

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::Instant};
use toolhub_testkit::{http2, is_soak, soak};

use super::hostile::{Latencies, Target};

/// A server with few connections, except in a soak.
fn start() -> Target {
    Target::start(if is_soak() { "" } else { "[server]\nmax_connections = 64" })
}

/// Opens connections on which `request` is sent and nothing is read, twice as many as the server has room for, while
/// other clients are served.
async fn flood(target: &Target, name: &str, request: &[u8]) {
    let (count, mut worst) = (soak(150, 4_200), Latencies::default());
    let (address, request, begun) = (target.address(), request.to_vec(), Instant::now());
    let hostile = tokio::spawn(async move {
        let mut open: Vec<TcpStream> = Vec::new();
        for number in 0..count * 2 {
            let mut tcp = TcpStream::connect(address).await.expect("the limit of open files suffices");
            // The server may have closed it already.
            let _ = tcp.write_all(&request).await;
            match open.get_mut(number % count) {
                Some(old) => *old = tcp,
                None => open.push(tcp),
            }
        }
        open
    });
    // With a small limit, a connection whose request arrives a moment later could be closed in the burst.
    while is_soak() && !hostile.is_finished() {
        target.check_others(&mut worst).await;
    }
    let open = hostile.await.expect("the connections were opened");
    let name = format!("{name} opened twice in {:.1?}", begun.elapsed());
    for _ in 0..soak(3, 100) {
        target.check_others(&mut worst).await;
    }
    target.report(&format!("{} × {name}", open.len()), &worst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_clients_that_grant_no_window_lock_no_client_out() {
    let target = start();
    let requests = (0..8).flat_map(|number| http2::get(number * 2 + 1, "/openapi.json", None));
    flood(&target, "HTTP/2 without a window", &[http2::preface(0), requests.collect()].concat()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_no_answers_lock_no_client_out() {
    let target = start();
    let requests = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
    flood(&target, "unread pipelined answers", &requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_of_one_key_lock_no_client_out() {
    let target = start();
    let key = &target.hostile_key;
    let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n");
    flood(&target, "event streams", request.as_bytes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_unread_answers_take_bounded_memory() {
    let target = start();
    let call = "POST /api/v1/tools/calculator/calls";
    let body = json!({"arguments": {"expression": format!("1{}", "+1".repeat(900))}}).to_string();
    for _ in 0..soak(20, 1_000) {
        let (made, _) = target.request("127.0.0.1", call, Some(&target.hostile_key), &body).await;
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    }
    let (connections, streams) = soak((5, 20), (60, 128));
    let requests = (0..streams)
        .flat_map(|number: u32| http2::get(number * 2 + 1, "/api/v1/calls?limit=500", Some(&target.hostile_key)));
    let request = [http2::preface(0), requests.collect()].concat();
    let (mut open, mut worst) = (Vec::new(), Latencies::default());
    for _ in 0..connections {
        let mut tcp = TcpStream::connect(target.address()).await.expect("a connection");
        tcp.write_all(&request).await.expect("the requests are sent");
        open.push(tcp);
        target.check_others(&mut worst).await;
    }
    for _ in 0..soak(3, 100) {
        target.check_others(&mut worst).await;
    }
    target.report(&format!("{} × HTTP/2 with {streams} large answers", open.len()), &worst);
}
