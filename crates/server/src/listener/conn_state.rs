//! What every open connection is doing, and which of them must go.
//!
//! In: notes from the connection's own parts: bytes came, a request began, it ended, a write waits. Out: orders to the
//! connection: come to an end, or be cut. One task looks at all of them now and then, so that no request pays for a timer.

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

/// What a connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum ConnCommand {
    /// Go on.
    Serve = 0,
    /// End what has begun, take nothing new.
    Drain = 1,
    /// End now.
    Abort = 2,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ConnState {
    epoch: Instant,
    /// Requests that are being worked on; several with HTTP/2.
    in_flight: AtomicU32,
    /// Whether a request has begun to come, and is not here yet.
    reading: AtomicBool,
    /// Whether it has ever asked for something.
    has_served: AtomicBool,
    /// Since when it does what it does, in milliseconds since the listener opened.
    state_since: AtomicU64,
    /// Since when a write waits for the client, and 0 when none does.
    write_blocked_since: AtomicU64,
    /// A body was not read to its end, so bytes nobody wants may still be on their way.
    unread_body: AtomicBool,
    command: AtomicU8,
    waker: AtomicWaker,
}

impl ConnState {
    fn new(begun: Instant) -> Self {
        let conn = Self {
            epoch: begun,
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

    /// Bytes have come.
    pub(crate) fn on_bytes_read(&self) {
        if self.in_flight.load(SeqCst) == 0 && !self.reading.swap(true, SeqCst) {
            self.state_since.store(self.elapsed_millis(), SeqCst);
        }
    }

    /// A request is here. It is worked on until the answer is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, SeqCst);
        self.reading.store(false, SeqCst);
        self.has_served.store(true, SeqCst);
        InFlight(self.clone())
    }

    /// A write waits for the client to read.
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

    /// A body was left before its end.
    pub(crate) fn mark_unread_body(&self) {
        self.unread_body.store(true, SeqCst);
    }

    /// Whether bytes nobody wants may still be on their way.
    pub(crate) fn has_unread_body(&self) -> bool {
        self.unread_body.load(SeqCst)
    }

    /// Tells the connection what to do. An order is never taken back.
    pub(crate) fn send_command(&self, order: ConnCommand) {
        if self.command.fetch_max(order as u8, SeqCst) < order as u8 {
            self.waker.wake();
        }
    }

    /// What the connection was told, once that is more than it knew.
    pub(crate) fn poll_command(&self, context: &mut Context<'_>, known: ConnCommand) -> Poll<ConnCommand> {
        let order = || match self.command.load(SeqCst) {
            0 => ConnCommand::Serve,
            1 => ConnCommand::Drain,
            _ => ConnCommand::Abort,
        };
        if order() > known {
            return Poll::Ready(order());
        }
        self.waker.register(context.waker());
        if order() > known { Poll::Ready(order()) } else { Poll::Pending }
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it takes longer than it may.
    fn is_overdue(&self, limits: &Limits, now: u64) -> bool {
        let over = |since: u64, most: Duration| u128::from(now.saturating_sub(since)) > most.as_millis();
        let stalled = self.write_blocked_since.load(SeqCst);
        if stalled != 0 && over(stalled, limits.body_timeout) {
            return true;
        }
        if self.in_flight.load(SeqCst) > 0 {
            return false;
        }
        let most = if self.reading.load(SeqCst) { limits.header_timeout } else { limits.idle_timeout };
        over(self.state_since.load(SeqCst), most)
    }

    /// How long nothing came of it, for whoever must choose which to close. One that never asked, or whose request does not
    /// come, counts as if it had been silent four times as long; one that has only just come is the last to go.
    /// `None` where somebody works for it.
    fn eviction_score(&self, now: u64) -> Option<u64> {
        if self.in_flight.load(SeqCst) > 0 || self.command.load(SeqCst) > 0 {
            return None;
        }
        let silent = now.saturating_sub(self.state_since.load(SeqCst));
        let proven = self.has_served.load(SeqCst) && !self.reading.load(SeqCst);
        Some(if proven { silent } else { silent.saturating_mul(4) })
    }
}

/// A request that is worked on.
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

/// The place of a connection in the list, until it is dropped.
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

    /// Cuts those that take too long; answers how many.
    pub(crate) fn abort_overdue(&self, limits: &Limits) -> usize {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let late: Vec<_> = self.all().into_iter().filter(|conn| conn.is_overdue(limits, now)).collect();
        late.iter().for_each(|conn| conn.send_command(ConnCommand::Abort));
        late.len()
    }

    /// Closes some on which nothing is asked, the most silent first; answers how many.
    pub(crate) fn evict_idle(&self) -> usize {
        let (all, now) = (self.all(), u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut idle: Vec<_> =
            all.iter().filter_map(|conn| conn.eviction_score(now).map(|silent| (silent, conn))).collect();
        // A few at a time: whoever comes next must not look at all of them again.
        let many = (all.len() / 64).max(1).min(idle.len());
        if many == 0 {
            return 0;
        }
        idle.select_nth_unstable_by_key(many - 1, |(silent, _)| std::cmp::Reverse(*silent));
        for (_, conn) in &idle[..many] {
            conn.send_command(if conn.reading.load(SeqCst) { ConnCommand::Abort } else { ConnCommand::Drain });
        }
        many
    }

    /// Cuts those whose request has begun to come and is not here.
    pub(crate) fn abort_partial_requests(&self) {
        let half = |conn: &Arc<ConnState>| conn.reading.load(SeqCst) && conn.in_flight.load(SeqCst) == 0;
        self.all().iter().filter(|conn| half(conn)).for_each(|conn| conn.send_command(ConnCommand::Abort));
    }

    /// Tells all of them.
    pub(crate) fn broadcast(&self, order: ConnCommand) {
        self.all().iter().for_each(|conn| conn.send_command(order));
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
