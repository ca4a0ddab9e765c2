//! Load generator: closed-loop clients, each with its own connection and, before 2026-07-28, its own session.
//!
//! They send constant bytes and parse as little of the answers as possible, so that the gateway dominates the measurement.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::gateway::Gateway;

/// The result of one round.
#[derive(Clone, Copy)]
pub(super) struct Measurement {
    pub(super) rate: f64,
    pub(super) p99: Duration,
}

/// Clients of a gateway.
pub(super) struct Load {
    gateway: Gateway,
    clients: Vec<Client>,
}

impl Load {
    /// Connects the clients, as soon as the gateway answers a call.
    pub(super) async fn new(gateway: Gateway, clients: usize) -> Self {
        let start = Instant::now();
        while let Err(answer) = Client::try_new(&gateway).await {
            assert!(start.elapsed() < Duration::from_secs(30), "{}: {answer}", gateway.kind.name());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut connected = Vec::new();
        for _ in 0..clients {
            connected.push(Client::try_new(&gateway).await.unwrap());
        }
        Self { gateway, clients: connected }
    }

    /// Runs one round.
    pub(super) async fn run(&mut self, duration: Duration) -> Measurement {
        let start = Instant::now();
        let end = start + duration;
        let name = self.gateway.kind.name();
        let tasks: Vec<_> = self.clients.drain(..).map(|client| tokio::spawn(call_until(client, end, name))).collect();
        let mut times = Vec::new();
        for task in tasks {
            let (client, measured) = task.await.unwrap();
            self.clients.push(client);
            times.extend(measured);
        }
        let elapsed = start.elapsed();
        times.sort_unstable();
        Measurement { rate: times.len() as f64 / elapsed.as_secs_f64(), p99: times[times.len() * 99 / 100] }
    }
}

async fn call_until(mut client: Client, end: Instant, gateway: &str) -> (Client, Vec<Duration>) {
    let mut times = Vec::new();
    let mut sent_at = Instant::now();
    while sent_at < end {
        client.call().await.unwrap_or_else(|answer| panic!("{gateway}: {answer}"));
        let now = Instant::now();
        times.push(now - sent_at);
        sent_at = now;
    }
    (client, times)
}

struct Client {
    tcp: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    /// A complete request.
    call: Vec<u8>,
}

impl Client {
    /// Connects, and makes one call.
    async fn try_new(gateway: &Gateway) -> Result<Self, String> {
        let tcp = TcpStream::connect(gateway.address).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).unwrap();
        let mut client = Self { tcp, buffer: vec![0; 64 << 10], filled: 0, call: Vec::new() };
        let (tool, path) = (gateway.kind.tool(), gateway.kind.path());
        let mut params = json!({"name": tool, "arguments": {"text": "hello"}});
        let mut headers = String::new();
        if gateway.kind.is_modern() {
            headers = format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n");
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            });
        } else {
            let params = json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
            });
            client
                .send(&request(path, "", &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})))
                .await?;
            let session = client.header("mcp-session-id").ok_or_else(|| client.text())?;
            headers.push_str(&format!("mcp-protocol-version: 2025-06-18\r\nmcp-session-id: {session}\r\n"));
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            client.send(&request(path, &headers, &initialized)).await?;
        }
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        client.call = request(path, &headers, &message);
        client.call().await?;
        Ok(client)
    }

    async fn call(&mut self) -> Result<(), String> {
        let call = std::mem::take(&mut self.call);
        let sent = self.send(&call).await;
        self.call = call;
        sent?;
        match self.buffer[..self.filled].windows(7).any(|part| part == b"\"hello\"") {
            true => Ok(()),
            false => Err(self.text()),
        }
    }

    /// Sends a request and reads the answer, which must be a success.
    async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.tcp.write_all(request).await.map_err(|error| error.to_string())?;
        self.filled = 0;
        while !self.is_complete() {
            let count = self.tcp.read(&mut self.buffer[self.filled..]).await.map_err(|error| error.to_string())?;
            if count == 0 {
                return Err(format!("the gateway closed the connection: {}", self.text()));
            }
            self.filled += count;
        }
        match self.buffer.starts_with(b"HTTP/1.1 20") {
            true => Ok(()),
            false => Err(self.text()),
        }
    }

    fn is_complete(&self) -> bool {
        let received = &self.buffer[..self.filled];
        let Some(head) = received.windows(4).position(|part| part == b"\r\n\r\n") else { return false };
        match self.header("content-length") {
            Some(length) => self.filled >= head + 4 + length.parse::<usize>().unwrap(),
            None if self.header("transfer-encoding").is_some() => received.ends_with(b"\r\n0\r\n\r\n"),
            None => true,
        }
    }

    fn header(&self, name: &str) -> Option<String> {
        let received = &self.buffer[..self.filled];
        let head = received.windows(4).position(|part| part == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&received[..head]).unwrap();
        head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer[..self.filled]).into_owned()
    }
}

fn request(path: &str, headers: &str, message: &Value) -> Vec<u8> {
    let body = message.to_string();
    let head = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                accept: application/json, text/event-stream\r\n";
    format!("POST {path} {head}{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
