//! The connections to one service: how many requests run at once, and which connections wait for the next.
//!
//! In: somebody who wants to send. Out: a connection, held with the right to use it until it is given back. Connections are given
//! out youngest use first; one that is too old, was unused for too long or was closed by the service is not given out again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustls::ClientConfig;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::{
    DialError, Line, Names, Wiring,
    dial::{self, Sender},
    tls,
};
use crate::rest::origin::Origin;

/// The connections to one service.
pub(crate) struct Pool {
    origin: Origin,
    wiring: Wiring,
    gate: Arc<Semaphore>,
    names: Arc<Names>,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    idle: Vec<Idle>,
    /// Whether somebody clears away what is unused.
    cleared: bool,
    /// How TLS is spoken, and since when.
    tls: Option<(Instant, Arc<ClientConfig>)>,
}

struct Idle {
    sender: Sender,
    line: Arc<Line>,
    since: Instant,
}

/// No turn came in time.
#[derive(Debug)]
pub(crate) struct Busy(pub(crate) Duration);

/// The right to send one request. Other requests wait until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held, and given back when dropped")] OwnedSemaphorePermit);

/// A connection that is in use.
pub(crate) struct Leased {
    pub(crate) sender: Sender,
    pub(crate) line: Arc<Line>,
    /// Whether it was used before.
    pub(crate) used: bool,
}

impl Pool {
    pub(super) fn new(origin: Origin, wiring: Wiring, gate: Arc<Semaphore>, names: Arc<Names>) -> Self {
        Self { origin, wiring, gate, names, shelf: Mutex::default() }
    }

    /// Waits for the right to send a request.
    pub(crate) async fn turn(&self) -> Result<Turn, Busy> {
        if let Ok(permit) = self.gate.clone().try_acquire_owned() {
            return Ok(Turn(permit));
        }
        let waited = tokio::time::timeout(self.wiring.pool_timeout, self.gate.clone().acquire_owned()).await;
        match waited {
            Ok(Ok(permit)) => Ok(Turn(permit)),
            _ => Err(Busy(self.wiring.pool_timeout)),
        }
    }

    /// A connection: one that waits, or a new one.
    pub(crate) async fn lease(&self) -> Result<Leased, DialError> {
        while let Some(mut idle) = self.take() {
            // It has done its last work, so it is ready at once, or closed.
            if idle.sender.ready().await.is_ok() {
                return Ok(Leased { sender: idle.sender, line: idle.line, used: true });
            }
        }
        self.dial().await
    }

    /// A new connection.
    pub(crate) async fn dial(&self) -> Result<Leased, DialError> {
        let tls = if self.origin.https { Some(self.tls()?) } else { None };
        let (sender, line) = dial::dial(&self.origin, &self.wiring, &self.names, tls).await?;
        Ok(Leased { sender, line, used: false })
    }

    /// Takes a connection back that has done its work. One whose service has answered before it took the whole request is closed: the rest
    /// would stand before the next one.
    pub(crate) fn give_back(self: &Arc<Self>, leased: Leased) {
        let Leased { sender, line, .. } = leased;
        let is_good = !sender.is_closed() && !line.is_unsent() && line.age() < self.wiring.recycle;
        let Some(keep) = self.wiring.keep.filter(|_| is_good) else { return };
        let mut shelf = self.shelf();
        if shelf.idle.len() >= self.wiring.pool_size {
            return;
        }
        shelf.idle.push(Idle { sender, line, since: Instant::now() });
        if !std::mem::replace(&mut shelf.cleared, true) {
            let pool = Arc::downgrade(self);
            tokio::spawn(async move {
                let mut wait = keep;
                loop {
                    tokio::time::sleep(wait).await;
                    let Some(next) = pool.upgrade().and_then(|pool| pool.clear(keep)) else { return };
                    wait = next;
                }
            });
        }
    }

    /// Closes what was unused for too long; says when to look again, unless nothing is left.
    fn clear(&self, keep: Duration) -> Option<Duration> {
        let mut shelf = self.shelf();
        shelf.idle.retain(|idle| idle.since.elapsed() < keep && !idle.sender.is_closed());
        let next = shelf.idle.iter().map(|idle| keep.saturating_sub(idle.since.elapsed())).min();
        shelf.cleared = next.is_some();
        // A little later, so that it is over by then.
        next.map(|next| next + Duration::from_millis(1))
    }

    fn take(&self) -> Option<Idle> {
        let keep = self.wiring.keep?;
        let mut shelf = self.shelf();
        while let Some(idle) = shelf.idle.pop() {
            if idle.since.elapsed() < keep && idle.line.age() < self.wiring.recycle && !idle.sender.is_closed() {
                return Some(idle);
            }
        }
        None
    }

    /// How TLS is spoken; read anew as often as connections are.
    fn tls(&self) -> Result<Arc<ClientConfig>, DialError> {
        let mut shelf = self.shelf();
        if let Some((_, config)) = shelf.tls.as_ref().filter(|(since, _)| since.elapsed() < self.wiring.recycle) {
            return Ok(config.clone());
        }
        let config = tls::config(self.wiring.ca_file.as_deref()).map_err(DialError::Unreachable)?;
        shelf.tls = Some((Instant::now(), config.clone()));
        Ok(config)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.origin)
    }
}
