//! Load generator: closed-loop clients, each with one keep-alive connection and one request at a time.
//!
//! They send constant bytes and parse as little of the response as possible, so that the server dominates the measurement.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A server under test, and its targets.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// A complete request.
    pub(crate) request: Vec<u8>,
    /// The length of a response body.
    pub(crate) body_len: usize,
    pub(crate) min_rate_ratio: Option<f64>,
    pub(crate) max_p99_ratio: Option<f64>,
}

/// The result of one round.
#[derive(Clone, Copy)]
pub(crate) struct Measurement {
    pub(crate) rate: f64,
    pub(crate) p99: Duration,
}

/// The request for all servers.
pub(crate) fn request(key: Option<&str>) -> Vec<u8> {
    let body = r#"{"arguments":{"a":17,"b":25}}"#;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = "POST /api/v1/tools/add/calls HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("{head}\r\n{key}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends one request and checks the response; returns the length of its body.
pub(crate) async fn probe(address: SocketAddr, request: &[u8]) -> usize {
    let mut client = Client::new(address).await;
    let body_len = client.send(request).await;
    let text = String::from_utf8_lossy(&client.buffer[..client.filled]);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"sum\":42"), "{text}");
    body_len
}

/// Runs one round.
pub(crate) async fn run(target: &Target, clients: usize, duration: Duration) -> Measurement {
    let start = Instant::now();
    let end = start + duration;
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (address, request) = (target.address, target.request.clone());
        tasks.push(tokio::spawn(async move {
            let mut client = Client::new(address).await;
            let mut times = Vec::new();
            let mut sent_at = Instant::now();
            while sent_at < end {
                client.send(&request).await;
                let now = Instant::now();
                times.push(now - sent_at);
                sent_at = now;
            }
            times
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let elapsed = start.elapsed();
    times.sort_unstable();
    Measurement { rate: times.len() as f64 / elapsed.as_secs_f64(), p99: times[times.len() * 99 / 100] }
}

pub(crate) struct Client {
    tcp: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Client {
    pub(crate) async fn new(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        Self { tcp, buffer: vec![0; 16 << 10], filled: 0 }
    }

    /// Sends a request and reads the response, which must be a success; returns the length of its body.
    async fn send(&mut self, request: &[u8]) -> usize {
        let body_len = self.send_any(request).await;
        let response = &self.buffer[..self.filled];
        assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(response));
        body_len
    }

    /// Sends a request and reads the response; returns the length of its body.
    pub(crate) async fn send_any(&mut self, request: &[u8]) -> usize {
        self.tcp.write_all(request).await.unwrap();
        self.filled = 0;
        loop {
            let count = self.tcp.read(&mut self.buffer[self.filled..]).await.unwrap();
            assert!(count > 0, "the server closed the connection");
            self.filled += count;
            let received = &self.buffer[..self.filled];
            if let Some(head) = received.windows(4).position(|part| part == b"\r\n\r\n") {
                let body_len = content_length(&received[..head]);
                if self.filled >= head + 4 + body_len {
                    return body_len;
                }
            }
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).unwrap();
    head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap()
}
