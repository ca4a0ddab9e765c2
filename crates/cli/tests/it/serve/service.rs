//! A small HTTP service for tests that echoes requests, and can be made to fail and recover. It echoes `/binary` as bytes, refuses
//! `/refuse`, sets a cookie for `/session`, and does not echo `/quiet`.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

pub(super) struct Service {
    pub(super) port: u16,
    /// The heads and bodies of requests.
    requests: Arc<Mutex<Vec<String>>>,
    healthy: Arc<AtomicBool>,
}

impl Service {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let (requests, healthy) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(true)));
        let (log, is_healthy) = (requests.clone(), healthy.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (log, is_healthy) = (log.clone(), is_healthy.clone());
                thread::spawn(move || serve(client, &log, &is_healthy));
            }
        });
        Self { port, requests, healthy }
    }

    /// Whether it succeeds from now on, or fails with 503.
    pub(super) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::SeqCst);
    }

    /// All requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("the lock is not poisoned").clone()
    }
}

/// Reads one request and returns it as JSON.
fn serve(mut client: TcpStream, log: &Mutex<Vec<String>>, healthy: &AtomicBool) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    let text = loop {
        let Ok(count @ 1..) = client.read(&mut chunk) else { return };
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break text;
        }
    };
    let first = text.lines().next().unwrap_or_default().to_owned();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut status, mut kind) = ("200 OK", "application/json");
    let mut body = serde_json::json!({ "asked": first, "request": text }).to_string();
    log.lock().expect("the lock is not poisoned").push(text);
    match path.as_str() {
        "/binary" => (kind, body) = ("application/octet-stream", format!("\0\u{1}{body}\0")),
        "/session" => kind = "application/json\r\nset-cookie: sid=canary-cookie-of-service",
        "/refuse" => status = "400 Bad Request",
        "/quiet" => body = "{}".into(),
        _ => {}
    }
    if !healthy.load(Ordering::SeqCst) {
        status = "503 Service Unavailable";
    }
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close");
    let _ = write!(client, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
}
