//! A server with the keys of hostile and of normal clients, and requests of those that do nothing wrong.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    time::{Instant, timeout},
};
use toolhub_testkit::{TempFolder, is_soak};

use super::process::Process;
use crate::config::run_toolhub;

/// Longer than any request takes; only a failing test waits this long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The process stays below this.
const MAX_MEMORY: u64 = 1 << 30;

/// A server, and the keys of its clients.
pub(super) struct Target {
    pub(super) server: Process,
    pub(super) hostile_key: String,
    /// Of another tenant.
    pub(super) normal_key: String,
    admin_key: String,
    _folder: TempFolder,
}

impl Target {
    /// Starts a server with the calculator and what else the config says.
    pub(super) fn start(config: &str) -> Self {
        let folder = TempFolder::new();
        let mut config = format!("{config}\n[tools.calculator]\nbuiltin = \"calculator\"\n[auth]\nmode = \"keys\"\n");
        let mut key = |name: &str, tenant: &str, scopes: &str| {
            let created = run_toolhub(folder.path(), &["--json", "keys", "create", name], &[]);
            let created: Value = serde_json::from_str(&created.out).unwrap_or_else(|_| panic!("{}", created.err));
            config += &format!("[[auth.keys]]\nname = \"{name}\"\ntenant = \"{tenant}\"\n");
            config += &format!("hash = {}\nscopes = [{scopes}]\n", created["hash"]);
            created["key"].as_str().expect("a key").to_owned()
        };
        let hostile_key = key("hostile", "a", "\"tools:read\", \"tools:call\"");
        let normal_key = key("normal", "b", "\"tools:read\", \"tools:call\"");
        let admin_key = key("ops", "main", "\"admin\"");
        folder.write("toolhub.toml", &config);
        let quiet = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "error")];
        let server = Process::start(folder.path(), &["serve", "--port", "0"], &quiet);
        Self { server, hostile_key, normal_key, admin_key, _folder: folder }
    }

    pub(super) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.server.port).into()
    }

    /// Sends one request on its own connection from an address of this machine; returns the response and its latency.
    pub(super) async fn request(&self, from: &str, what: &str, key: Option<&str>, body: &str) -> (String, Duration) {
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
    pub(super) async fn check_others(&self, worst: &mut Latencies) {
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

    /// Prints the worst latencies and the peak memory, and checks the memory.
    pub(super) fn report(&self, attack: &str, worst: &Latencies) {
        let memory = self.server.peak_memory().unwrap_or(0);
        if is_soak() {
            println!("{attack}: worst latencies {worst:?}, peak memory {} MiB", memory >> 20);
        }
        assert!(memory < MAX_MEMORY, "{} MiB", memory >> 20);
    }
}

/// The worst latency of each kind of client.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    pub(super) livez: Duration,
    pub(super) other_key: Duration,
    pub(super) other_address: Duration,
    pub(super) admin: Duration,
}
