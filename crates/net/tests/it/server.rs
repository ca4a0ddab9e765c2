//! A server that answers each connection with a function of its number and of what was asked, and counts both.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// What is said in answer to a request: bytes, or nothing and the connection is closed.
type Responder = dyn Fn(usize, &str) -> Option<String> + Send + Sync;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// A server whose answers depend on the number of the connection and the head of the request.
    pub(super) async fn start(answer: impl Fn(usize, &str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (count, seen, answer) =
            (connections.clone(), requests.clone(), Arc::<Responder>::from(Box::new(answer) as Box<Responder>));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let (seen, answer) = (seen.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while let Ok(1..) = stream.read_buf(&mut bytes).await {
                        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                        let head = String::from_utf8(bytes.drain(..end + 4).collect()).unwrap();
                        seen.lock().unwrap().push(head.clone());
                        let Some(answer) = answer(number, &head) else { return };
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { address, connections, requests }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// An answer with this body.
pub(super) fn ok_response(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
