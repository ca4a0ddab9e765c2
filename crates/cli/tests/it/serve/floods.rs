//! The binary under clients that hold more connections, streams and unread answers than it has room for.
//!
//! With `TOOLHUB_SOAK` set, they hold 4,200 connections against the default limits, and each test prints the worst latency
//! of the others and the peak memory of the process.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};
use toolhub_testkit::{TempFolder, http2, is_soak, soak};

use super::process::Process;
use crate::config::run_toolhub;

/// Longer than any request takes; only a failing test waits this long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The process stays below this.
const MAX_MEMORY: u64 = 1 << 30;

/// A server, and the keys of its clients.
struct Target {
    server: Process,
    hostile_key: String,
    normal_key: String,
    admin_key: String,
    _folder: TempFolder,
}

impl Target {
    fn start() -> Self {
        let folder = TempFolder::new();
        let mut config = String::from("[tools.calculator]\nbuiltin = \"calculator\"\n[auth]\nmode = \"keys\"\n");
        let mut key = |name: &str, scopes: &str| {
            let created = run_toolhub(folder.path(), &["--json", "keys", "create", name], &[]);
            let created: Value = serde_json::from_str(&created.out).unwrap_or_else(|_| panic!("{}", created.err));
            config += &format!("[[auth.keys]]\nname = \"{name}\"\nhash = {}\nscopes = [{scopes}]\n", created["hash"]);
            created["key"].as_str().expect("a key").to_owned()
        };
        let hostile_key = key("hostile", "\"tools:read\", \"tools:call\"");
        let normal_key = key("normal", "\"tools:read\", \"tools:call\"");
        let admin_key = key("ops", "\"admin\"");
        if !is_soak() {
            config += "[server]\nmax_connections = 64\n";
        }
        folder.write("toolhub.toml", &config);
        let quiet = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "error")];
        let server = Process::start(folder.path(), &["serve", "--port", "0"], &quiet);
        Self { server, hostile_key, normal_key, admin_key, _folder: folder }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.server.port).into()
    }

    /// Sends one request on its own connection from an address of this machine; returns the response and its latency.
    async fn request(&self, from: &str, what: &str, key: Option<&str>, body: &str) -> (String, Duration) {
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let length = body.len();
        let text = format!(
            "{what} HTTP/1.1\r\nhost: localhost\r\n{key}connection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let begun = Instant::now();
        let exchange = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(format!("{from}:0").parse().expect("an address"))?;
            let mut tcp = socket.connect(self.address()).await?;
            tcp.write_all(text.as_bytes()).await?;
            let mut response = String::new();
            tcp.read_to_string(&mut response).await?;
            std::io::Result::Ok(response)
        };
        let response = timeout(REQUEST_TIMEOUT, exchange).await;
        let response = response.unwrap_or_else(|_| panic!("no response to {what} from {from}"));
        let response = response.unwrap_or_else(|error| panic!("{what} from {from}: {error}"));
        assert!(!response.is_empty(), "{what} from {from}: closed after {:?}", begun.elapsed());
        (response, begun.elapsed())
    }

    /// One round of requests by clients that do nothing wrong.
    async fn check_others(&self, worst: &mut Latencies) {
        let expect = |(response, latency): (String, Duration), status: u16, slot: &mut Duration| {
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "not {status}: {response}");
            *slot = latency.max(*slot);
            response
        };
        expect(self.request("127.0.0.1", "GET /livez", None, "").await, 200, &mut worst.livez);
        let (call, key) = ("POST /api/v1/tools/calculator/calls", Some(self.normal_key.as_str()));
        let body = json!({"arguments": {"expression": "2+3*4"}}).to_string();
        expect(self.request("127.0.0.1", call, key, &body).await, 200, &mut worst.other_key);
        expect(self.request("127.0.0.2", call, key, &body).await, 200, &mut worst.other_address);
        let admin = Some(self.admin_key.as_str());
        let body = json!({"name": "leaked", "scopes": ["tools:read"]}).to_string();
        let created = self.request("127.0.0.1", "POST /api/v1/keys", admin, &body).await;
        let created = expect(created, 201, &mut worst.admin);
        let id = created.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
        let revoked = self.request("127.0.0.1", &format!("DELETE /api/v1/keys/{id}"), admin, "").await;
        expect(revoked, 204, &mut worst.admin);
    }

    /// Opens connections on which `request` is sent and nothing is read, twice as many as the server has room for, while
    /// other clients are served.
    async fn flood(&self, name: &str, request: &[u8]) {
        let (count, mut worst) = (soak(150, 4_200), Latencies::default());
        let (address, request, begun) = (self.address(), request.to_vec(), Instant::now());
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
            self.check_others(&mut worst).await;
        }
        let open = hostile.await.expect("the connections were opened");
        let name = format!("{name} opened twice in {:.1?}", begun.elapsed());
        for _ in 0..soak(3, 100) {
            self.check_others(&mut worst).await;
        }
        self.report(&name, open.len(), &worst);
    }

    fn report(&self, name: &str, connections: usize, worst: &Latencies) {
        let memory = self.server.peak_memory().unwrap_or(0);
        if is_soak() {
            println!("{connections} × {name}: {worst:?}, peak memory {} MiB", memory >> 20);
        }
        assert!(memory < MAX_MEMORY, "{} MiB", memory >> 20);
    }
}

/// The worst latency of each kind of client.
#[derive(Debug, Default)]
struct Latencies {
    livez: Duration,
    other_key: Duration,
    other_address: Duration,
    admin: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_clients_that_grant_no_window_lock_no_client_out() {
    let target = Target::start();
    let requests = (0..8).flat_map(|number| http2::get(number * 2 + 1, "/openapi.json", None));
    target.flood("HTTP/2 without a window", &[http2::preface(0), requests.collect()].concat()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_no_answers_lock_no_client_out() {
    let target = Target::start();
    let requests = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
    target.flood("unread pipelined answers", &requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_of_one_key_lock_no_client_out() {
    let target = Target::start();
    let key = &target.hostile_key;
    let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n");
    target.flood("event streams", request.as_bytes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_unread_answers_take_bounded_memory() {
    let target = Target::start();
    let call = "POST /api/v1/tools/calculator/calls";
    let body = json!({"arguments": {"expression": format!("1{}", "+1".repeat(900))}}).to_string();
    for _ in 0..soak(20, 1_000) {
        let (made, _) = target.request("127.0.0.1", call, Some(&target.hostile_key), &body).await;
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    }
    let (connections, streams) = soak((5, 20), (60, 128));
    let requests = (0..streams)
        .flat_map(|number: u32| http2::get(number * 2 + 1, "/api/v1/calls?limit=1000", Some(&target.hostile_key)));
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
    target.report("HTTP/2 with 128 large answers", open.len(), &worst);
}
