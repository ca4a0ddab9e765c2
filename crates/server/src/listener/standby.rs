//! The standby acceptor: answers `/livez` on a thread of its own while the server's runtime does not respond.
//!
//! In: the listening socket and the hub. Out: answers to `GET /livez`, the connections of all other requests, to be served
//! once the runtime responds, and a warning that names each tool that blocks a worker. Accepts nothing while the runtime
//! responds.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{self, Handle},
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolhub_core::{PollWatch, ToolHub};

/// How often the runtime is asked to respond.
const PING_INTERVAL: Duration = Duration::from_millis(50);
/// How long it may take to respond. With the interval, a client waits at most 150 ms more for `/livez`.
const PING_TIMEOUT: Duration = Duration::from_millis(100);
/// How often tools that block a worker are looked for; also how long they may block one.
const POLL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a client may take to send its request line before its connection is left to the server.
const REQUEST_LINE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a client may take to send its headers and receive the answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection may wait for a place among those that wait for the server.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_HEAD: usize = 16 * 1024;
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

const LIVEZ_REQUEST: &[u8] = b"GET /livez ";
const LIVEZ_RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n";

/// A running standby acceptor; dropping it stops its thread.
pub(super) struct Standby {
    accepted: mpsc::Receiver<(StdStream, SocketAddr)>,
    stop: DropGuard,
    stopped: oneshot::Receiver<Infallible>,
}

impl Standby {
    /// Starts the thread, for the current runtime. At most `max_handovers` accepted connections wait for the server; more
    /// are closed.
    pub(super) fn start(listener: StdListener, hub: ToolHub, max_handovers: usize) -> io::Result<Self> {
        let (handover, accepted) = mpsc::channel(max_handovers);
        let (stop, (running, stopped)) = (CancellationToken::new(), oneshot::channel());
        let own_runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop_requested, watched) = (stop.clone(), Handle::current());
        std::thread::Builder::new().name("toolhub-standby".into()).spawn(move || {
            let work = async { tokio::join!(watch_runtime(&watched, &listener, &handover), watch_polls(&hub)) };
            own_runtime.block_on(stop_requested.run_until_cancelled(work));
            // Connections that are being examined are closed with the runtime.
            drop((own_runtime, listener, running));
        })?;
        Ok(Self { accepted, stop: stop.drop_guard(), stopped })
    }

    /// The next connection that was accepted for the server; `None` if the thread has ended.
    pub(super) async fn accepted(&mut self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let (tcp, peer) = self.accepted.recv().await?;
        Some(TcpStream::from_std(tcp).map(|tcp| (tcp, peer)))
    }

    /// Stops the thread and waits until it has closed its socket.
    pub(super) async fn stop(self) {
        drop(self.stop);
        let _ = self.stopped.await;
    }
}

/// Accepts connections whenever the runtime does not respond, until it does.
async fn watch_runtime(
    watched: &Handle,
    listener: &StdListener,
    handover: &mpsc::Sender<(StdStream, SocketAddr)>,
) -> Infallible {
    loop {
        sleep(PING_INTERVAL).await;
        let mut ping = watched.spawn(async {});
        if timeout(PING_TIMEOUT, &mut ping).await.is_err() {
            tokio::select! {
                _ = &mut ping => {}
                never = accept(listener, handover) => match never {},
            }
        }
    }
}

/// Logs the tools that have blocked a worker of the runtime for a while.
async fn watch_polls(hub: &ToolHub) -> Infallible {
    let mut watch = PollWatch::default();
    loop {
        sleep(POLL_CHECK_INTERVAL).await;
        for tool in hub.blocking_polls(&mut watch) {
            tracing::warn!(%tool, "tool blocks a worker of the async runtime; make it a blocking function or let it await");
        }
    }
}

async fn accept(listener: &StdListener, handover: &mpsc::Sender<(StdStream, SocketAddr)>) -> Infallible {
    // Registered only for now: otherwise each connection would wake this thread too.
    let listener = loop {
        match listener.try_clone().and_then(TcpListener::from_std) {
            Ok(listener) => break listener,
            Err(_) => sleep(ACCEPT_RETRY).await,
        }
    };
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => drop(tokio::spawn(answer_or_hand_over(tcp, peer, handover.clone()))),
            Err(_) => sleep(ACCEPT_RETRY).await,
        }
    }
}

/// Answers `GET /livez`; a connection with another request is left to the server, with nothing read from it.
async fn answer_or_hand_over(tcp: TcpStream, peer: SocketAddr, handover: mpsc::Sender<(StdStream, SocketAddr)>) {
    if timeout(REQUEST_LINE_TIMEOUT, requests_livez(&tcp)).await == Ok(true) {
        // A client that is too slow or gone gets no answer.
        let _ = timeout(RESPONSE_TIMEOUT, answer_livez(tcp)).await;
    } else if let Ok(tcp) = tcp.into_std() {
        // A server that is busy takes it soon. With too many of them, the connection is closed.
        let _ = handover.send_timeout((tcp, peer), HANDOVER_TIMEOUT).await;
    }
}

/// Whether the client asks for `/livez`. Resolves as soon as it is known.
async fn requests_livez(tcp: &TcpStream) -> bool {
    let mut start = [0; LIVEZ_REQUEST.len()];
    loop {
        match tcp.peek(&mut start).await {
            Ok(len) if len == start.len() => return start == LIVEZ_REQUEST,
            Ok(len @ 1..) if LIVEZ_REQUEST.starts_with(&start[..len]) => sleep(ACCEPT_RETRY).await,
            _ => return false,
        }
    }
}

async fn answer_livez(mut tcp: TcpStream) -> io::Result<()> {
    // Read first: closing a socket with unread data could reset the connection before the client has read the answer.
    let mut head = Vec::with_capacity(1024);
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD && tcp.read_buf(&mut head).await? > 0 {}
    tcp.write_all(LIVEZ_RESPONSE).await?;
    tcp.shutdown().await
}
