//! A TCP proxy that counts round trips: a request that was sent together, and the answer to it.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// A proxy in front of a server of this machine. It ends on drop, with its connections.
#[derive(Debug)]
pub struct CountingProxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    round_trips: AtomicU64,
    is_closed: AtomicBool,
}

impl CountingProxy {
    /// Starts a proxy to this port.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let shared = Arc::new(Shared::default());
        let counted = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if counted.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                // A target that refuses connections closes the client's connection.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", target)) {
                    connect(client, server, &counted);
                }
            }
        });
        Self { port, shared }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many round trips were begun on all connections. Requests that are sent before the answer to the first of them arrives, such
    /// as those of a pipeline, are one round trip.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.shared.round_trips.load(Ordering::SeqCst)
    }
}

impl Drop for CountingProxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        // Wakes up the thread that accepts connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Forwards both directions of a connection until one of its ends closes it.
fn connect(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) {
    let both = |stream: &TcpStream| stream.try_clone().expect("a socket can be cloned");
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket has options");
    }
    let is_waiting = Arc::new(AtomicBool::new(false));
    let (counted, is_sent) = (shared.clone(), is_waiting.clone());
    let (from, to) = (both(&client), both(&server));
    thread::spawn(move || {
        forward(from, to, || {
            if !is_sent.swap(true, Ordering::SeqCst) {
                counted.round_trips.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    thread::spawn(move || forward(server, client, || is_waiting.store(false, Ordering::SeqCst)));
}

/// Forwards one direction. `note` is called before bytes are passed on.
fn forward(mut from: TcpStream, mut to: TcpStream, note: impl Fn()) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        note();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // The other end may have closed it already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
