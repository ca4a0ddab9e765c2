//! A mock server that sends exactly the given bytes, one response per connection.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The response of one connection.
#[derive(Debug, Clone)]
pub(super) enum CannedResponse {
    /// These bytes; then the connection is closed.
    Bytes(Vec<u8>),
    /// A chunked response with these chunks; then the end.
    Chunks(Vec<Vec<u8>>),
    /// The same without an end, while the connection stays open.
    Stall(Vec<Vec<u8>>),
    /// No response: the connection is closed.
    HangUp,
}

impl CannedResponse {
    /// A status, more headers, and a JSON body.
    pub(super) fn json(status: u16, headers: &str, body: &Value) -> Self {
        Self::body(status, &format!("content-type: application/json\r\n{headers}"), &body.to_string())
    }

    pub(super) fn body(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status} Canned\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        Self::Bytes(format!("{head}{body}").into_bytes())
    }

    /// A stream of events in one chunk.
    pub(super) fn events(text: &str) -> Self {
        Self::Chunks(vec![text.as_bytes().to_vec()])
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) head: String,
    pub(super) body: Value,
}

/// The server. It stops when it is dropped.
pub(super) struct MockServer {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: tokio::task::JoinHandle<()>,
}

impl MockServer {
    pub(super) async fn start(responses: impl IntoIterator<Item = CannedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = requests.clone();
        let responses: Vec<CannedResponse> = responses.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                if let Some(request) = read(&mut stream).await {
                    received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                }
                // The client may have closed the connection; that is no failure.
                let _ = write(&mut stream, &response).await;
                if matches!(response, CannedResponse::Stall(_)) {
                    open.push(stream);
                }
            }
            // From now on connections to this address are refused.
            drop(listener);
            std::future::pending::<()>().await;
        });
        Self { address, requests, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(ReceivedRequest {
                    head,
                    body: serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default(),
                });
            }
        }
        match stream.read(&mut chunk).await.ok()? {
            0 => return None,
            length => bytes.extend_from_slice(&chunk[..length]),
        }
    }
}

async fn write(stream: &mut TcpStream, response: &CannedResponse) -> std::io::Result<()> {
    let (chunks, ends) = match response {
        CannedResponse::HangUp => return Ok(()),
        CannedResponse::Bytes(bytes) => {
            stream.write_all(bytes).await?;
            return stream.shutdown().await;
        }
        CannedResponse::Chunks(chunks) => (chunks, true),
        CannedResponse::Stall(chunks) => (chunks, false),
    };
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    if ends {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&bytes).await?;
    if ends { stream.shutdown().await } else { stream.flush().await }
}
