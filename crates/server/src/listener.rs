//! The listener: accepts connections, serves each on its own task, and drains them at shutdown.
//!
//! In: the app, its router and a shutdown future. Out: served connections, within the limits of the settings. A client
//! that is slow, sends too much or stays idle loses its connection without affecting other clients.

mod body;
mod conn_service;
mod exposure;
mod standby;
mod tracked_io;

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tokio_util::task::TaskTracker;
use toolhub_core::backend::StoreError;

pub(crate) use conn_service::answer;

use crate::{
    app::App,
    connections::{ConnCommand, Connections, Registration},
    keys::{KeyError, watch_expiry},
    links,
    settings::Auth,
};
use conn_service::ConnService;
use exposure::{ExposureError, check_exposure};
use standby::Standby;
use tracked_io::TrackedIo;

/// How many connections may wait for the accept: a burst of them must not make others wait for a retransmission, which
/// takes a second. The system has a limit of its own.
const BACKLOG: u32 = 4_096;
/// How much of a response the system holds for a client that does not read it. Its own limit would be megabytes for each
/// of thousands of connections. Accepted connections inherit it.
const SEND_BUFFER: u32 = 128 << 10;
/// How many requests may be in flight on one HTTP/2 connection.
const MAX_HTTP2_STREAMS: u32 = 128;
/// How long partly received requests may still reach the hub after shutdown was requested.
const INFLIGHT_GRACE: Duration = Duration::from_secs(1);
/// First and longest wait after an accept that failed for lack of a resource (file descriptors, memory).
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The address is not loopback and no key is required.
    #[error(
        "refusing to listen on {0}: without keys, every client that reaches it could call tools. Create a key with \
         `toolhub keys create <name>` and set `auth.mode = \"keys\"`, or listen on 127.0.0.1"
    )]
    WithoutKeys(String),
    /// The address is not loopback and `allowed_hosts` names only loopback hosts.
    #[error(
        "refusing to listen on {0}: `server.allowed_hosts` names only loopback hosts. Add the host name or IP address \
         that clients use"
    )]
    WithoutHosts(String),
    /// The keys of the config are not valid.
    #[error("invalid keys in the config: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Keys(Vec<KeyError>),
    /// The keys in the store cannot be read.
    #[error("cannot read the API keys from the store: {0}")]
    Store(#[from] StoreError),
}

impl ServeError {
    /// Whether the config must change before the server can start.
    #[must_use]
    pub fn is_config(&self) -> bool {
        matches!(self, Self::WithoutKeys(_) | Self::WithoutHosts(_) | Self::Keys(_))
    }
}

/// A server that is bound to its address; `serve` starts accepting connections.
pub struct BoundServer {
    app: App,
    router: Router,
    listener: TcpListener,
    address: SocketAddr,
}

impl std::fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Binds the address of the settings. `router` answers the requests.
pub(crate) async fn bind(app: App, router: Router) -> Result<BoundServer, ServeError> {
    let settings = app.settings();
    if !app.keys().config_errors().is_empty() {
        return Err(ServeError::Keys(app.keys().config_errors().to_vec()));
    }
    // In keys mode the first request needs the stored keys: load them now, so that an unreadable store fails the start.
    if matches!(settings.auth, Auth::Keys(_)) {
        app.keys().key_store().await?;
    }
    let host = settings.host.trim_matches(['[', ']']);
    let host_port =
        if host.contains(':') { format!("[{host}]:{}", settings.port) } else { format!("{host}:{}", settings.port) };
    let listen_error = |source| ServeError::Listen { address: host_port.clone(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&host_port).await.map_err(listen_error)?.collect();
    for address in &addresses {
        check_exposure(*address, &settings.auth, app.keys(), app.origin_check()).map_err(|error| match error {
            ExposureError::WithoutKeys => ServeError::WithoutKeys(host_port.clone()),
            ExposureError::WithoutHosts => ServeError::WithoutHosts(host_port.clone()),
        })?;
    }
    let listener = listen(&addresses).map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    Ok(BoundServer { app, router, listener, address })
}

/// Listens on the first of the addresses that can be bound.
fn listen(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut last_error = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server must not wait until connections of the old one are forgotten. On Windows the option means
        // something else.
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        socket.set_send_buffer_size(SEND_BUFFER)?;
        match socket.bind(*address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

impl BoundServer {
    /// The address it is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves, then drains: running requests are answered, streams are closed, and the hub is
    /// shut down within the settings' `drain_timeout`.
    ///
    /// While the runtime does not respond because tools block it, `/livez` is still answered, on a thread of its own.
    ///
    /// # Errors
    /// When the listening socket cannot be shared with that thread; a failed accept is retried.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
        let Self { app, router, listener, address } = self;
        app.start_series();
        watch_expiry(app.hub().clone(), app.keys().clone(), app.stopping().clone());
        app.hub().set_approval_page_url(links::approval_pages(app.settings(), address));
        let shared = listener.into_std().and_then(|socket| Ok((socket.try_clone()?, TcpListener::from_std(socket)?)));
        let listen_error = |source| ServeError::Listen { address: address.to_string(), source };
        let (socket, listener) = shared.map_err(listen_error)?;
        let limits = app.settings().limits;
        let max_handovers = limits.connections.clamp(1, Semaphore::MAX_PERMITS);
        let mut standby = Standby::start(socket, app.hub().clone(), max_handovers).map_err(listen_error)?;
        let acceptor = Acceptor {
            router,
            builder: Arc::new(builder(&app)),
            connections: Connections::new(&limits),
            tasks: TaskTracker::new(),
            app,
        };
        let reaper = async {
            let shortest = limits.header_timeout.min(limits.idle_timeout).min(limits.body_timeout);
            let step = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
            loop {
                tokio::time::sleep(step).await;
                let aborted = acceptor.connections.abort_overdue(&limits);
                acceptor.app.meters().listener.timed_out.fetch_add(aborted as u64, Relaxed);
            }
        };
        let mut stop = pin!(stop);
        let stop_requested = async {
            stop.as_mut().await;
            acceptor.app.stopping().cancel();
            tokio::time::sleep(acceptor.app.settings().shutdown_notice).await;
        };
        let mut reaper = pin!(reaper);
        tokio::select! {
            never = acceptor.accept(&listener, &mut standby) => match never {},
            () = &mut reaper => {}
            () = stop_requested => {}
        }
        drop(listener);
        standby.stop().await;
        tokio::select! {
            () = acceptor.drain() => {}
            () = &mut reaper => {}
        }
        Ok(())
    }
}

/// State shared by all connections, and the accept loop.
struct Acceptor {
    app: App,
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    connections: Arc<Connections>,
    tasks: TaskTracker,
}

impl Acceptor {
    async fn accept(&self, listener: &TcpListener, standby: &mut Standby) -> std::convert::Infallible {
        let meter = &self.app.meters().listener;
        let mut delay = ACCEPT_BACKOFF.0;
        loop {
            self.connections.wait_started().await;
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(accepted) = standby.accepted() => accepted,
            };
            let (tcp, peer) = match accepted {
                Ok(accepted) => accepted,
                // The client disconnected before the accept; the listener itself is fine.
                Err(error) if is_client_error(&error) => continue,
                Err(error) => {
                    if is_open_file_limit(&error) {
                        tracing::warn!(%error, "accept failed; backing off; check the open-file limit (ulimit -n)");
                    } else {
                        tracing::warn!(%error, "accept failed; backing off");
                    }
                    self.make_room();
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(ACCEPT_BACKOFF.1);
                    continue;
                }
            };
            delay = ACCEPT_BACKOFF.0;
            match self.register(peer) {
                Some(registration) => {
                    meter.accepted.fetch_add(1, Relaxed);
                    self.serve(tcp, peer, registration);
                }
                None => {
                    meter.refused.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Finds a place for a new connection; closes others if there is none.
    fn register(&self, peer: SocketAddr) -> Option<Registration> {
        let registration = self.connections.register(peer.ip());
        registration.or_else(|| {
            self.make_room();
            self.connections.register(peer.ip())
        })
    }

    fn make_room(&self) {
        let displaced = self.connections.make_room();
        self.app.meters().listener.displaced.fetch_add(displaced as u64, Relaxed);
    }

    fn serve(&self, tcp: TcpStream, peer: SocketAddr, registration: Registration) {
        // Responses are small and complete: Nagle's algorithm would only delay them.
        let _ = tcp.set_nodelay(true);
        let (conn, connections) = (registration.conn.clone(), self.connections.clone());
        let service =
            ConnService { router: self.router.clone(), app: self.app.clone(), connections, conn: conn.clone(), peer };
        let (builder, app) = (self.builder.clone(), self.app.clone());
        self.tasks.spawn(async move {
            app.meters().listener.open.fetch_add(1, Relaxed);
            let _open_count = OpenCountGuard(&app);
            let mut connection =
                pin!(builder.serve_connection(TokioIo::new(TrackedIo::new(tcp, registration)), service));
            let mut known = ConnCommand::Serve;
            poll_fn(|cx| {
                loop {
                    // Connection errors are caused by the client, and there is no one left to report them to.
                    if connection.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(());
                    }
                    match conn.poll_command(cx, known) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(ConnCommand::Abort) => return Poll::Ready(()),
                        Poll::Ready(command) => {
                            known = command;
                            connection.as_mut().graceful_shutdown();
                        }
                    }
                }
            })
            .await;
        });
    }

    /// Lets running requests and connections finish, within `drain_timeout`.
    async fn drain(&self) {
        let deadline = Instant::now() + self.app.settings().drain_timeout;
        self.tasks.close();
        self.connections.broadcast(ConnCommand::Drain);
        let grace_deadline = Instant::now() + INFLIGHT_GRACE.min(self.app.settings().drain_timeout / 4);
        let _ = timeout_at(grace_deadline, self.tasks.wait()).await;
        // The hub refuses requests from now on, so the rest of a partly received request is not awaited.
        self.connections.abort_partial_requests();
        // Runs keep their last committed step and resume in the next process; clients that wait for one get its current
        // state.
        self.app.agents().stop().await;
        let hub = self.app.hub();
        if self.app.settings().close_before_cancel {
            tokio::select! {
                // Refuses calls, and cancels none.
                () = hub.shutdown(Duration::MAX) => {}
                () = self.close_connections(deadline) => {}
            }
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        tokio::join!(hub.shutdown(remaining), self.close_connections(deadline + INFLIGHT_GRACE));
    }

    /// Waits for the connections, and closes those that are left at the deadline.
    async fn close_connections(&self, deadline: Instant) {
        if timeout_at(deadline, self.tasks.wait()).await.is_err() {
            self.connections.broadcast(ConnCommand::Abort);
            self.tasks.wait().await;
        }
    }
}

/// Decrements the count of open connections on drop.
struct OpenCountGuard<'a>(&'a App);

impl Drop for OpenCountGuard<'_> {
    fn drop(&mut self) {
        self.0.meters().listener.open.fetch_sub(1, Relaxed);
    }
}

fn builder(app: &App) -> Builder<TokioExecutor> {
    let limits = app.settings().limits;
    let mut builder = Builder::new(TokioExecutor::new());
    // `Connections` enforces the header timeout: hyper's timer would also count the idle time between two requests.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.headers.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.headers).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .keep_alive_interval(limits.idle_timeout)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

/// Whether the process or the system has too many open files: ENFILE and EMFILE, the same numbers on Linux, BSD and macOS.
/// The standard library has no stable error kind for them.
fn is_open_file_limit(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
