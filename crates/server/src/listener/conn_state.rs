//! Activity of every open connection, and the decision which of them to close.
//!
//! In: reports from the connection's own parts: bytes read, request begun, request ended, write blocked. Out: commands
//! to the connection: drain or abort. One periodic task checks all connections, so that no request pays for a timer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use crate::settings::Limits;

/// What a connection must do. Commands only escalate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum ConnCommand {
    /// Keep serving.
    Serve = 0,
    /// Finish the requests in flight, accept no new ones.
    Drain = 1,
    /// Close immediately.
    Abort = 2,
}

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct ConnState {
    epoch: Instant,
    /// Requests in flight; several with HTTP/2.
    in_flight: AtomicU32,
    /// Whether a request has been received in part.
    reading: AtomicBool,
    /// Whether it has ever received a complete request.
    has_served: AtomicBool,
    /// When the current state began (idle, or reading a request), in milliseconds since the listener started.
    state_since: AtomicU64,
    /// Since when a write waits for the client, 0 when none does.
    write_blocked_since: AtomicU64,
    /// Whether a request body was dropped before its end, so that its rest may still arrive.
    unread_body: AtomicBool,
    command: AtomicU8,
    waker: AtomicWaker,
}

impl ConnState {
    fn new(epoch: Instant) -> Self {
        let conn = Self {
            epoch,
            in_flight: AtomicU32::new(0),
            reading: AtomicBool::new(false),
            has_served: AtomicBool::new(false),
            state_since: AtomicU64::new(0),
            write_blocked_since: AtomicU64::new(0),
            unread_body: AtomicBool::new(false),
            command: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        };
        conn.state_since.store(conn.elapsed_millis(), SeqCst);
        conn
    }

    /// Bytes were read.
    pub(crate) fn on_bytes_read(&self) {
        if self.in_flight.load(SeqCst) == 0 && !self.reading.swap(true, SeqCst) {
            self.state_since.store(self.elapsed_millis(), SeqCst);
        }
    }

    /// A request was received. It is in flight until the guard is dropped with the response body.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, SeqCst);
        self.reading.store(false, SeqCst);
        self.has_served.store(true, SeqCst);
        InFlight(self.clone())
    }

    /// A write is waiting for the client to read.
    pub(crate) fn on_write_blocked(&self) {
        if self.write_blocked_since.load(SeqCst) == 0 {
            self.write_blocked_since.store(self.elapsed_millis().max(1), SeqCst);
        }
    }

    /// The client reads again.
    pub(crate) fn on_write_progress(&self) {
        if self.write_blocked_since.load(SeqCst) != 0 {
            self.write_blocked_since.store(0, SeqCst);
        }
    }

    /// A request body was dropped before its end.
    pub(crate) fn mark_unread_body(&self) {
        self.unread_body.store(true, SeqCst);
    }

    /// Whether the rest of a dropped body may still arrive.
    pub(crate) fn has_unread_body(&self) -> bool {
        self.unread_body.load(SeqCst)
    }

    /// Sends a command to the connection. A lower command never replaces a higher one.
    pub(crate) fn send_command(&self, command: ConnCommand) {
        if self.command.fetch_max(command as u8, SeqCst) < command as u8 {
            self.waker.wake();
        }
    }

    /// Resolves to the current command once it is higher than `known`.
    pub(crate) fn poll_command(&self, context: &mut Context<'_>, known: ConnCommand) -> Poll<ConnCommand> {
        let command = || match self.command.load(SeqCst) {
            0 => ConnCommand::Serve,
            1 => ConnCommand::Drain,
            _ => ConnCommand::Abort,
        };
        if command() > known {
            return Poll::Ready(command());
        }
        self.waker.register(context.waker());
        if command() > known { Poll::Ready(command()) } else { Poll::Pending }
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it exceeds one of the timeouts.
    fn is_overdue(&self, limits: &Limits, now: u64) -> bool {
        let exceeds = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        let blocked_since = self.write_blocked_since.load(SeqCst);
        if blocked_since != 0 && exceeds(blocked_since, limits.body_timeout) {
            return true;
        }
        if self.in_flight.load(SeqCst) > 0 {
            return false;
        }
        let limit = if self.reading.load(SeqCst) { limits.header_timeout } else { limits.idle_timeout };
        exceeds(self.state_since.load(SeqCst), limit)
    }

    /// How long the connection has been idle, in milliseconds, to choose which ones to close. The time counts fourfold
    /// for one that has never sent a complete request or is sending one, so a fresh connection still scores lowest.
    /// `None` while a request is in flight or a command is pending.
    fn eviction_score(&self, now: u64) -> Option<u64> {
        if self.in_flight.load(SeqCst) > 0 || self.command.load(SeqCst) > 0 {
            return None;
        }
        let idle_for = now.saturating_sub(self.state_since.load(SeqCst));
        let is_proven = self.has_served.load(SeqCst) && !self.reading.load(SeqCst);
        Some(if is_proven { idle_for } else { idle_for.saturating_mul(4) })
    }
}

/// Guard of a request in flight.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<ConnState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state_since.store(self.0.elapsed_millis(), SeqCst);
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    epoch: Instant,
    open: Mutex<(u64, HashMap<u64, Arc<ConnState>>)>,
}

/// Keeps a connection in the list until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    connections: Arc<Connections>,
    number: u64,
    pub(crate) conn: Arc<ConnState>,
}

impl Connections {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { epoch: Instant::now(), open: Mutex::default() })
    }

    /// Adds a connection.
    pub(crate) fn register(self: &Arc<Self>) -> Registration {
        let conn = Arc::new(ConnState::new(self.epoch));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.0;
        open.0 += 1;
        open.1.insert(number, conn.clone());
        Registration { connections: self.clone(), number, conn }
    }

    /// Aborts connections that exceeded a timeout; returns how many.
    pub(crate) fn abort_overdue(&self, limits: &Limits) -> usize {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let overdue: Vec<_> = self.all().into_iter().filter(|conn| conn.is_overdue(limits, now)).collect();
        overdue.iter().for_each(|conn| conn.send_command(ConnCommand::Abort));
        overdue.len()
    }

    /// Closes some idle connections, the longest idle first; returns how many.
    pub(crate) fn evict_idle(&self) -> usize {
        let (all, now) = (self.all(), u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut idle: Vec<_> =
            all.iter().filter_map(|conn| conn.eviction_score(now).map(|idle_for| (idle_for, conn))).collect();
        // Evict several together, so that the next new connection need not scan all of them again.
        let count = (all.len() / 64).max(1).min(idle.len());
        if count == 0 {
            return 0;
        }
        idle.select_nth_unstable_by_key(count - 1, |(idle_for, _)| std::cmp::Reverse(*idle_for));
        for (_, conn) in &idle[..count] {
            conn.send_command(if conn.reading.load(SeqCst) { ConnCommand::Abort } else { ConnCommand::Drain });
        }
        count
    }

    /// Aborts connections that have received only part of a request.
    pub(crate) fn abort_partial_requests(&self) {
        let is_partial = |conn: &Arc<ConnState>| conn.reading.load(SeqCst) && conn.in_flight.load(SeqCst) == 0;
        self.all().iter().filter(|conn| is_partial(conn)).for_each(|conn| conn.send_command(ConnCommand::Abort));
    }

    /// Sends a command to all connections.
    pub(crate) fn broadcast(&self, command: ConnCommand) {
        self.all().iter().for_each(|conn| conn.send_command(command));
    }

    fn all(&self) -> Vec<Arc<ConnState>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.values().cloned().collect()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.number);
    }
}
