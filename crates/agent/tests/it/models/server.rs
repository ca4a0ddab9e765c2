//! A server that sends exactly the bytes it is told to, one answer for each connection.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What is sent to one connection.
#[derive(Debug, Clone)]
pub(super) enum CannedResponse {
    /// These bytes; then the connection is closed.
    Bytes(Vec<u8>),
    /// An answer whose body comes in these pieces, each a chunk of HTTP; then the end.
    Chunks(Vec<Vec<u8>>),
    /// The same, and then nothing more, while the connection stays open.
    Stall(Vec<Vec<u8>>),
    /// Nothing: the connection is closed.
    HangUp,
}

impl CannedResponse {
    /// A status, more headers, and a body of JSON.
    pub(super) fn json(status: u16, headers: &str, body: &Value) -> Self {
        Self::body(status, &format!("content-type: application/json\r\n{headers}"), &body.to_string())
    }

    pub(super) fn body(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        Self::Bytes(format!("{head}{body}").into_bytes())
    }

    /// A stream of events, all at once.
    pub(super) fn events(text: &str) -> Self {
        Self::Chunks(vec![text.as_bytes().to_vec()])
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) head: String,
    pub(super) body: Value,
}

/// The server. It ends with the test.
pub(super) struct MockServer {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: tokio::task::JoinHandle<()>,
}

impl MockServer {
    pub(super) async fn start(answers: impl IntoIterator<Item = CannedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        let answers: Vec<CannedResponse> = answers.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                if let Some(asked) = read(&mut stream).await {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
                }
                // The other side may have gone away; that is its right.
                let _ = write(&mut stream, &answer).await;
                if matches!(answer, CannedResponse::Stall(_)) {
                    open.push(stream);
                }
            }
            // From now on nobody answers at this address.
            drop(listener);
            std::future::pending::<()>().await;
        });
        Self { address, requests: asked, task }
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
        let mut piece = [0; 4096];
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
        match stream.read(&mut piece).await.ok()? {
            0 => return None,
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

async fn write(stream: &mut TcpStream, answer: &CannedResponse) -> std::io::Result<()> {
    let (pieces, ends) = match answer {
        CannedResponse::HangUp => return Ok(()),
        CannedResponse::Bytes(bytes) => {
            stream.write_all(bytes).await?;
            return stream.shutdown().await;
        }
        CannedResponse::Chunks(pieces) => (pieces, true),
        CannedResponse::Stall(pieces) => (pieces, false),
    };
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    if ends {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&bytes).await?;
    if ends { stream.shutdown().await } else { stream.flush().await }
}
