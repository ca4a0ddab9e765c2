//! A TCP proxy that counts round trips (a request that was sent together, and the answer to it), and can fail like a network.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// A proxy in front of a server of this machine. It ends on drop, with its connections.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    shared: Arc<Shared>,
}

/// How a network fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// Connections end, and new ones end at once.
    Cut,
    /// Connections stay, but nothing arrives at the server.
    RequestsLost,
    /// Connections stay and requests arrive, but no answer does.
    AnswersLost,
}

#[derive(Debug, Default)]
struct Shared {
    round_trips: AtomicU64,
    is_closed: AtomicBool,
    network: Mutex<Network>,
}

#[derive(Debug, Default)]
struct Network {
    fault: Option<NetworkFault>,
    connections: Vec<Arc<Connection>>,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Whether bytes are missing, so that what follows them makes no sense.
    has_lost: AtomicBool,
}

impl TcpProxy {
    /// Starts a proxy to this port.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                // A target that refuses connections closes the client's connection.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", target)) {
                    connect(client, server, &accepting);
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

    /// Fails in this way until [`repair`](Self::repair).
    pub fn fail(&self, fault: NetworkFault) {
        let mut network = self.shared.lock();
        network.fault = Some(fault);
        if fault == NetworkFault::Cut {
            network.connections.iter().for_each(|connection| connection.close());
        }
    }

    /// Forwards again. Connections that have lost bytes end.
    pub fn repair(&self) {
        let mut network = self.shared.lock();
        network.fault = None;
        let damaged = network.connections.iter().filter(|connection| connection.has_lost.load(Ordering::SeqCst));
        damaged.for_each(|connection| connection.close());
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.fail(NetworkFault::Cut);
        // Wakes up the thread that accepts connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether bytes that were read are lost because of this fault.
    fn loses(&self, connection: &Connection, fault: NetworkFault) -> bool {
        let network = self.lock();
        let is_lost = network.fault == Some(fault);
        if is_lost {
            connection.has_lost.store(true, Ordering::SeqCst);
        }
        // Everything after the lost bytes is lost, too.
        is_lost || connection.has_lost.load(Ordering::SeqCst) && network.fault.is_none()
    }
}

impl Connection {
    fn close(&self) {
        for stream in [&self.client, &self.server] {
            // The other end may have closed it already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Forwards both directions of a connection until one of its ends closes it.
fn connect(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket has options");
    }
    let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be cloned");
    let (requests, answers) = ((clone(&client), clone(&server)), (clone(&server), clone(&client)));
    let connection = Arc::new(Connection { client, server, has_lost: AtomicBool::new(false) });
    {
        let mut network = shared.lock();
        if network.fault == Some(NetworkFault::Cut) {
            connection.close();
            return;
        }
        network.connections.push(connection.clone());
    }
    let is_waiting = Arc::new(AtomicBool::new(false));
    let (of_requests, of_answers) = ((shared.clone(), connection.clone()), (shared.clone(), connection));
    let is_sent = is_waiting.clone();
    thread::spawn(move || {
        forward(requests, of_requests, NetworkFault::RequestsLost, |shared| {
            if !is_sent.swap(true, Ordering::SeqCst) {
                shared.round_trips.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    thread::spawn(move || {
        forward(answers, of_answers, NetworkFault::AnswersLost, |_| is_waiting.store(false, Ordering::SeqCst));
    });
}

/// Forwards one direction, in which bytes are lost because of `fault`. `note` is called before bytes are passed on.
fn forward(
    (mut from, mut to): (TcpStream, TcpStream),
    (shared, connection): (Arc<Shared>, Arc<Connection>),
    fault: NetworkFault,
    note: impl Fn(&Shared),
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if shared.loses(&connection, fault) {
            continue;
        }
        note(&shared);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    connection.close();
    shared.lock().connections.retain(|other| !Arc::ptr_eq(other, &connection));
}
