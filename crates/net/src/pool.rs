//! Connection pool of one service: a semaphore for concurrent requests, and the idle connections.
//!
//! In: a request to be sent. Out: a permit for it, and a [`Lease`] on a connection. Idle connections are reused most recently used
//! first; one that is too old, was idle for too long or was closed by the service is not reused. Sending is in `send`.
//!
//! hyper-util's pooled client was tried and does not reuse connections reliably: it puts one back in a spawned task some time after the
//! response was read, and meanwhile dials another. 2000 sequential requests opened 204 connections to a service for which this
//! pool opens one (`requests_one_after_the_other_use_one_connection`); a limit such as `pool_size = 1` would not hold. Nor does it have a
//! maximum age for connections.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rustls::ClientConfig;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    dial::{self, Sender},
    dns::Lookups,
    error::DialError,
    io_watch::IoWatch,
    options::PoolOptions,
    origin::Origin,
    tls,
};

/// The connection pool of one service.
pub struct Pool {
    pub(crate) origin: Origin,
    pub(crate) options: PoolOptions,
    permits: Arc<Semaphore>,
    lookups: Arc<Lookups>,
    idle: Mutex<IdleConns>,
}

#[derive(Default)]
struct IdleConns {
    conns: Vec<IdleConn>,
    /// Whether the task that closes expired idle connections is running.
    has_reaper: bool,
    /// The TLS configuration, and when it was loaded.
    tls: Option<(Instant, Arc<ClientConfig>)>,
}

struct IdleConn {
    sender: Sender,
    watch: Arc<IoWatch>,
    since: Instant,
}

/// No permit became available in time: the maximum number of requests is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("connection pool exhausted: no connection became available within {0:?}; raise `connection.pool_size`")]
pub struct PermitTimeout(pub Duration);

/// Permit to send one request; returned to the semaphore when dropped.
#[derive(Debug)]
pub struct Permit(#[expect(dead_code, reason = "held for its drop, which releases the permit")] OwnedSemaphorePermit);

/// Exclusive use of a connection.
pub struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) sender: Sender,
    pub(crate) watch: Arc<IoWatch>,
    /// Whether it was used before.
    pub(crate) reused: bool,
}

impl Pool {
    pub(crate) fn new(origin: Origin, options: PoolOptions, permits: Arc<Semaphore>, lookups: Arc<Lookups>) -> Self {
        Self { origin, options, permits, lookups, idle: Mutex::default() }
    }

    /// Waits for a permit to send a request.
    ///
    /// # Errors
    /// When none becomes available within `permit_timeout`.
    pub async fn permit(&self) -> Result<Permit, PermitTimeout> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(Permit(permit));
        }
        let timeout = self.options.permit_timeout;
        match tokio::time::timeout(timeout, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Permit(permit)),
            _ => Err(PermitTimeout(timeout)),
        }
    }

    /// Returns an idle connection, or opens a new one.
    ///
    /// # Errors
    /// When none is idle and dialing fails.
    pub async fn lease(self: &Arc<Self>) -> Result<Lease, DialError> {
        while let Some(mut conn) = self.take_idle() {
            // Its last response was read to the end, so it is either ready immediately or closed.
            if conn.sender.ready().await.is_ok() {
                return Ok(Lease { pool: self.clone(), sender: conn.sender, watch: conn.watch, reused: true });
            }
        }
        self.dial().await
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// When dialing fails.
    pub async fn dial(self: &Arc<Self>) -> Result<Lease, DialError> {
        let https_proxy = self.options.proxy.as_ref().is_some_and(|proxy| proxy.origin.https);
        let tls = if self.origin.https || https_proxy { Some(self.tls()?) } else { None };
        let (sender, watch) = dial::dial(&self.origin, &self.options, &self.lookups, tls).await?;
        Ok(Lease { pool: self.clone(), sender, watch, reused: false })
    }

    /// Closes all idle connections; returns how many there were.
    pub fn close_idle(&self) -> usize {
        std::mem::take(&mut self.idle().conns).len()
    }

    /// Closes expired idle connections; returns when to run again, or `None` if no idle connection is left.
    fn reap(&self, idle_timeout: Duration) -> Option<Duration> {
        let mut idle = self.idle();
        idle.conns.retain(|conn| conn.since.elapsed() < idle_timeout && !conn.sender.is_closed());
        let next = idle.conns.iter().map(|conn| idle_timeout.saturating_sub(conn.since.elapsed())).min();
        idle.has_reaper = next.is_some();
        // One millisecond later, so that the timeout has certainly passed by then.
        next.map(|next| next + Duration::from_millis(1))
    }

    fn take_idle(&self) -> Option<IdleConn> {
        let idle_timeout = self.options.idle_timeout?;
        let mut idle = self.idle();
        while let Some(conn) = idle.conns.pop() {
            let fresh = conn.since.elapsed() < idle_timeout && conn.watch.age() < self.options.max_age;
            if fresh && !conn.sender.is_closed() {
                return Some(conn);
            }
        }
        None
    }

    /// The TLS configuration; certificates are reloaded after `max_age`, like connections.
    fn tls(&self) -> Result<Arc<ClientConfig>, DialError> {
        let mut idle = self.idle();
        if let Some((_, config)) = idle.tls.as_ref().filter(|(since, _)| since.elapsed() < self.options.max_age) {
            return Ok(config.clone());
        }
        let config = tls::client_config(self.options.ca_file.as_deref())
            .map_err(|reason| DialError::unreachable(format!("{} cannot be reached", self.origin), reason))?;
        idle.tls = Some((Instant::now(), config.clone()));
        Ok(config)
    }

    fn idle(&self) -> MutexGuard<'_, IdleConns> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Returns a connection to the pool after its response was read to the end. If the service responded before it received the whole
    /// request, the connection is closed: the rest of the body would precede the next request.
    pub(crate) fn release(self) {
        let Self { pool, sender, watch, .. } = self;
        let reusable = !sender.is_closed() && !watch.is_unflushed() && watch.age() < pool.options.max_age;
        let Some(idle_timeout) = pool.options.idle_timeout.filter(|_| reusable) else { return };
        let mut idle = pool.idle();
        if idle.conns.len() >= pool.options.max_idle {
            return;
        }
        idle.conns.push(IdleConn { sender, watch, since: Instant::now() });
        let has_reaper = std::mem::replace(&mut idle.has_reaper, true);
        // A runtime that shuts down drops the task at once, and the drop locks the connections.
        drop(idle);
        if !has_reaper {
            tokio::spawn(Reaper(Arc::downgrade(&pool)).run(idle_timeout));
        }
    }
}

/// The task that closes expired idle connections of a pool; ends when none is left.
struct Reaper(Weak<Pool>);

impl Reaper {
    async fn run(mut self, idle_timeout: Duration) {
        let mut wait = idle_timeout;
        loop {
            tokio::time::sleep(wait).await;
            let Some(next) = self.0.upgrade().and_then(|pool| pool.reap(idle_timeout)) else { break };
            wait = next;
        }
        // `reap` has already reset `has_reaper`, and another task may be running by now.
        self.0 = Weak::new();
    }
}

impl Drop for Reaper {
    /// The task panicked, or its runtime shut down: the next released connection starts another.
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.idle().has_reaper = false;
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.origin)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({})", self.pool.origin)
    }
}
