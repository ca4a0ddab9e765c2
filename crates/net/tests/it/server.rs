//! A test HTTP server that records connections and requests; a function of connection number and request head gives the responses.

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

/// The response to a request; `None` closes the connection.
type Responder = dyn Fn(usize, &str) -> Option<String> + Send + Sync;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server whose responses depend on the number of the connection and the head of the request.
    pub(super) async fn start(respond: impl Fn(usize, &str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let closed = Arc::<AtomicUsize>::default();
        let closed_count = closed.clone();
        let (count, recorded, respond) =
            (connections.clone(), requests.clone(), Arc::<Responder>::from(Box::new(respond) as Box<Responder>));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let (recorded, respond, closed) = (recorded.clone(), respond.clone(), closed_count.clone());
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while let Ok(1..) = stream.read_buf(&mut bytes).await {
                        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                        let head = String::from_utf8(bytes.drain(..end + 4).collect()).unwrap();
                        recorded.lock().unwrap().push(head.clone());
                        let Some(response) = respond(number, &head) else { return };
                        stream.write_all(response.as_bytes()).await.unwrap();
                    }
                    closed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, connections, closed, requests }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many connections the client has closed.
    pub(super) fn closed_connections(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A 200 response with this body.
pub(super) fn ok_response(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
