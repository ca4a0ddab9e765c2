//! A server that sends exactly the bytes it is told to, one answer for each connection.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What is sent to one connection.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// These bytes; then the connection is closed.
    Bytes(Vec<u8>),
    /// An answer whose body comes in these pieces, each a chunk of HTTP; then the end.
    Pieces(Vec<Vec<u8>>),
    /// The same, and then nothing more, while the connection stays open.
    Silent(Vec<Vec<u8>>),
    /// Nothing: the connection is closed.
    HangUp,
}

impl Answer {
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
        Self::Pieces(vec![text.as_bytes().to_vec()])
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) head: String,
    pub(super) body: Value,
}

/// The server. It ends with the test.
pub(super) struct Server {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        let answers: Vec<Answer> = answers.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                if let Some(asked) = read(&mut stream).await {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
                }
                // The other side may have gone away; that is its right.
                let _ = write(&mut stream, &answer).await;
                if matches!(answer, Answer::Silent(_)) {
                    open.push(stream);
                }
            }
            // From now on nobody answers at this address.
            drop(listener);
            std::future::pending::<()>().await;
        });
        Self { address, asked, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(Asked { head, body: serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default() });
            }
        }
        match stream.read(&mut piece).await.ok()? {
            0 => return None,
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

async fn write(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    let (pieces, ends) = match answer {
        Answer::HangUp => return Ok(()),
        Answer::Bytes(bytes) => {
            stream.write_all(bytes).await?;
            return stream.shutdown().await;
        }
        Answer::Pieces(pieces) => (pieces, true),
        Answer::Silent(pieces) => (pieces, false),
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
