//! Clients that ask as fast as they are answered: each with one connection, one request at a time.
//!
//! They write the same bytes again and again and read as little of the answer as they can, so that what is measured is the
//! server.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Who is asked, and what is hoped for.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// A whole request.
    pub(crate) request: Vec<u8>,
    /// How long the body of an answer is.
    pub(crate) body_len: usize,
    pub(crate) min_rate_ratio: Option<f64>,
    pub(crate) max_p99_ratio: Option<f64>,
}

/// What one turn gave.
#[derive(Clone, Copy)]
pub(crate) struct Measurement {
    pub(crate) rate: f64,
    pub(crate) p99: Duration,
}

/// The request every server gets.
pub(crate) fn request(key: Option<&str>) -> Vec<u8> {
    let body = r#"{"arguments":{"a":17,"b":25}}"#;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = "POST /api/v1/tools/add/calls HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("{head}\r\n{key}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Asks once, and sees that the answer is right; how long its body is.
pub(crate) async fn probe(address: SocketAddr, request: &[u8]) -> usize {
    let mut client = Client::new(address).await;
    let many = client.send(request).await;
    let text = String::from_utf8_lossy(&client.buffer[..client.filled]);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"sum\":42"), "{text}");
    many
}

/// One turn.
pub(crate) async fn run(target: &Target, clients: usize, long: Duration) -> Measurement {
    let begun = Instant::now();
    let end = begun + long;
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (address, request) = (target.address, target.request.clone());
        tasks.push(tokio::spawn(async move {
            let mut client = Client::new(address).await;
            let mut times = Vec::new();
            let mut before = Instant::now();
            while before < end {
                client.send(&request).await;
                let now = Instant::now();
                times.push(now - before);
                before = now;
            }
            times
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let took = begun.elapsed();
    times.sort_unstable();
    Measurement { rate: times.len() as f64 / took.as_secs_f64(), p99: times[times.len() * 99 / 100] }
}

struct Client {
    tcp: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Client {
    async fn new(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        Self { tcp, buffer: vec![0; 16 << 10], filled: 0 }
    }

    /// One request and its answer; how long its body is.
    async fn send(&mut self, request: &[u8]) -> usize {
        self.tcp.write_all(request).await.unwrap();
        self.filled = 0;
        loop {
            let many = self.tcp.read(&mut self.buffer[self.filled..]).await.unwrap();
            assert!(many > 0, "the server hung up");
            self.filled += many;
            let so_far = &self.buffer[..self.filled];
            if let Some(head) = so_far.windows(4).position(|part| part == b"\r\n\r\n") {
                let body = content_length(&so_far[..head]);
                if self.filled >= head + 4 + body {
                    return body;
                }
            }
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(head));
    let head = std::str::from_utf8(head).unwrap();
    head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap()
}
