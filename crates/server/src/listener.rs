//! The listener: accepts connections, serves each on a task, and drains them at shutdown.
//!
//! In: a server and the moment it shall stop. Out: connections, each served by a task of its own, within the limits. A client
//! that is slow, sends too much or only sits there is shed; others do not notice.

mod body;
mod conn_service;
mod conn_state;
mod exposure;
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
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::TaskTracker;
use toolhub_core::backend::StoreError;

pub(crate) use conn_service::answer;

use crate::{app::App, keys::KeyError, settings::Auth};
use conn_service::ConnService;
use conn_state::{ConnCommand, Connections};
use exposure::{ExposureError, check_exposure};
use tracked_io::TrackedIo;

/// How long a new connection may wait for a place, when others were asked to go and when none could be.
const PERMIT_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(500));
/// How long requests that are just coming in may reach the hub after the server was asked to stop.
const INFLIGHT_GRACE: Duration = Duration::from_secs(1);
/// How long to wait after an accept that failed for want of something, at first and at most.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Strangers can reach the address, and nobody would ask them for a key.
    #[error(
        "refusing to listen on {0}: everybody who reaches it could call tools. Make a key with `toolhub keys create <name>` and \
         set `auth.mode = \"keys\"`, or listen on 127.0.0.1"
    )]
    WithoutKeys(String),
    /// Strangers can reach the address, and it is not said by which names.
    #[error(
        "refusing to listen on {0}: `server.allowed_hosts` names no host that others could reach it by. Add the name or \
         the address people use for it"
    )]
    WithoutHosts(String),
    /// The keys of the config cannot be used.
    #[error("the keys cannot be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Keys(Vec<KeyError>),
    /// The keys in the store cannot be read.
    #[error("the keys in the store cannot be read: {0}")]
    Store(#[from] StoreError),
}

impl ServeError {
    /// Whether somebody must change the config before the server can start.
    #[must_use]
    pub fn is_config(&self) -> bool {
        matches!(self, Self::WithoutKeys(_) | Self::WithoutHosts(_) | Self::Keys(_))
    }
}

/// A server that has its address and serves when it is told to.
pub struct BoundServer {
    app: App,
    router: Router,
    listener: TcpListener,
    address: SocketAddr,
}

impl std::fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Takes the address of the settings. `router` answers the requests.
pub(crate) async fn bind(app: App, router: Router) -> Result<BoundServer, ServeError> {
    let settings = app.settings();
    if !app.keys().config_errors().is_empty() {
        return Err(ServeError::Keys(app.keys().config_errors().to_vec()));
    }
    // In keys mode the first request would need them anyway; so it is known at the start whether they can be read.
    if matches!(settings.auth, Auth::Keys(_)) {
        app.keys().key_store().await?;
    }
    let host = settings.host.trim_matches(['[', ']']);
    let said =
        if host.contains(':') { format!("[{host}]:{}", settings.port) } else { format!("{host}:{}", settings.port) };
    let taken = |source| ServeError::Listen { address: said.clone(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&said).await.map_err(taken)?.collect();
    for address in &addresses {
        check_exposure(*address, &settings.auth, app.keys(), app.origin_check()).map_err(|exposed| match exposed {
            ExposureError::WithoutKeys => ServeError::WithoutKeys(said.clone()),
            ExposureError::WithoutHosts => ServeError::WithoutHosts(said.clone()),
        })?;
    }
    let listener = TcpListener::bind(&*addresses).await.map_err(taken)?;
    let address = listener.local_addr().map_err(taken)?;
    Ok(BoundServer { app, router, listener, address })
}

impl BoundServer {
    /// The address it has.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready, then lets what runs come to its end: requests are answered, streams are closed, and
    /// the hub is shut down within the time the settings give.
    ///
    /// # Errors
    /// None today; an accept that fails is tried again.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
        let Self { app, router, listener, .. } = self;
        let limits = app.settings().limits;
        let acceptor = Acceptor {
            router,
            builder: Arc::new(builder(&app)),
            connections: Connections::new(),
            permits: Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS))),
            tasks: TaskTracker::new(),
            app,
        };
        let reaper = async {
            let shortest = limits.header_timeout.min(limits.idle_timeout).min(limits.body_timeout);
            let step = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
            loop {
                tokio::time::sleep(step).await;
                let cut = acceptor.connections.abort_overdue(&limits);
                acceptor.app.meters().listener.timed_out.fetch_add(cut as u64, Relaxed);
            }
        };
        let mut stop = pin!(stop);
        let asked = async {
            stop.as_mut().await;
            acceptor.app.stopping().cancel();
            tokio::time::sleep(acceptor.app.settings().shutdown_notice).await;
        };
        let mut reaper = pin!(reaper);
        tokio::select! {
            never = acceptor.accept(&listener) => match never {},
            () = &mut reaper => {}
            () = asked => {}
        }
        drop(listener);
        tokio::select! {
            () = acceptor.drain() => {}
            () = &mut reaper => {}
        }
        Ok(())
    }
}

/// All that connections share.
struct Acceptor {
    app: App,
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    connections: Arc<Connections>,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Acceptor {
    async fn accept(&self, listener: &TcpListener) -> std::convert::Infallible {
        let meter = &self.app.meters().listener;
        let mut wait = ACCEPT_BACKOFF.0;
        loop {
            let (tcp, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                // The client went away before it was its turn; the next one has nothing to do with that.
                Err(error) if is_client_error(&error) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot take connections in for the moment");
                    self.connections.evict_idle();
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(ACCEPT_BACKOFF.1);
                    continue;
                }
            };
            wait = ACCEPT_BACKOFF.0;
            match self.acquire_permit().await {
                Some(place) => {
                    meter.accepted.fetch_add(1, Relaxed);
                    self.serve(tcp, peer, place);
                }
                None => {
                    meter.refused.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// A place for one more connection. Where all are taken, those who do not use theirs give it up.
    async fn acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.permits.clone().try_acquire_owned() {
            return Some(place);
        }
        let closed = self.connections.evict_idle();
        self.app.meters().listener.evicted.fetch_add(closed as u64, Relaxed);
        let wait = if closed > 0 { PERMIT_TIMEOUTS.0 } else { PERMIT_TIMEOUTS.1 };
        timeout(wait, self.permits.clone().acquire_owned()).await.ok()?.ok()
    }

    fn serve(&self, tcp: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        // Answers are small and complete; waiting for more to send with them only costs time.
        let _ = tcp.set_nodelay(true);
        let registration = self.connections.register();
        let conn = registration.conn.clone();
        let service = ConnService { router: self.router.clone(), app: self.app.clone(), conn: conn.clone(), peer };
        let (builder, app) = (self.builder.clone(), self.app.clone());
        self.tasks.spawn(async move {
            app.meters().listener.open.fetch_add(1, Relaxed);
            let _leaves = OpenCountGuard(&app);
            let mut connection =
                pin!(builder.serve_connection(TokioIo::new(TrackedIo::new(tcp, registration, place)), service));
            let mut known = ConnCommand::Serve;
            poll_fn(|cx| {
                loop {
                    // What a connection fails with is the client's doing, and nobody can be told.
                    if connection.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(());
                    }
                    match conn.poll_command(cx, known) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(ConnCommand::Abort) => return Poll::Ready(()),
                        Poll::Ready(order) => {
                            known = order;
                            connection.as_mut().graceful_shutdown();
                        }
                    }
                }
            })
            .await;
        });
    }

    /// Lets everything come to its end.
    async fn drain(&self) {
        let end = Instant::now() + self.app.settings().drain_timeout;
        self.tasks.close();
        self.connections.broadcast(ConnCommand::Drain);
        let first = Instant::now() + INFLIGHT_GRACE.min(self.app.settings().drain_timeout / 4);
        let _ = timeout_at(first, self.tasks.wait()).await;
        // A request that has not come by now would be refused, and nobody need wait for its rest.
        self.connections.abort_partial_requests();
        // Runs stay as they are written down, and go on in the next process; whoever waits for one is told how far it is.
        self.app.agents().stop().await;
        let left = end.saturating_duration_since(Instant::now());
        let hub = self.app.hub().shutdown(left);
        let connections = async {
            if timeout_at(end + INFLIGHT_GRACE, self.tasks.wait()).await.is_err() {
                self.connections.broadcast(ConnCommand::Abort);
                self.tasks.wait().await;
            }
        };
        tokio::join!(hub, connections);
    }
}

/// Counts a connection as closed, however it ends.
struct OpenCountGuard<'a>(&'a App);

impl Drop for OpenCountGuard<'_> {
    fn drop(&mut self) {
        self.0.meters().listener.open.fetch_sub(1, Relaxed);
    }
}

fn builder(app: &App) -> Builder<TokioExecutor> {
    let limits = app.settings().limits;
    let mut builder = Builder::new(TokioExecutor::new());
    // `Connections` keeps the time of headers: hyper would count the time between two requests as well.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.headers.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.headers).unwrap_or(u32::MAX))
        .max_concurrent_streams(128)
        .keep_alive_interval(limits.idle_timeout)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
