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
pub(crate) enum Order {
    /// Go on.
    Stay = 0,
    /// End what has begun, take nothing new.
    Finish = 1,
    /// End now.
    Cut = 2,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ConnState {
    begun: Instant,
    /// Requests that are being worked on; several with HTTP/2.
    working: AtomicU32,
    /// Whether a request has begun to come, and is not here yet.
    reading: AtomicBool,
    /// Whether it has ever asked for something.
    used: AtomicBool,
    /// Since when it does what it does, in milliseconds since the listener opened.
    since: AtomicU64,
    /// Since when a write waits for the client, and 0 when none does.
    stalled: AtomicU64,
    /// A body was not read to its end, so bytes nobody wants may still be on their way.
    unread: AtomicBool,
    order: AtomicU8,
    waker: AtomicWaker,
}

impl ConnState {
    fn new(begun: Instant) -> Self {
        let conn = Self {
            begun,
            working: AtomicU32::new(0),
            reading: AtomicBool::new(false),
            used: AtomicBool::new(false),
            since: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            unread: AtomicBool::new(false),
            order: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        };
        conn.since.store(conn.now(), SeqCst);
        conn
    }

    /// Bytes have come.
    pub(crate) fn bytes_came(&self) {
        if self.working.load(SeqCst) == 0 && !self.reading.swap(true, SeqCst) {
            self.since.store(self.now(), SeqCst);
        }
    }

    /// A request is here. It is worked on until the answer is dropped.
    pub(crate) fn work(self: &Arc<Self>) -> Working {
        self.working.fetch_add(1, SeqCst);
        self.reading.store(false, SeqCst);
        self.used.store(true, SeqCst);
        Working(self.clone())
    }

    /// A write waits for the client to read.
    pub(crate) fn write_waits(&self) {
        if self.stalled.load(SeqCst) == 0 {
            self.stalled.store(self.now().max(1), SeqCst);
        }
    }

    /// The client reads again.
    pub(crate) fn write_goes_on(&self) {
        if self.stalled.load(SeqCst) != 0 {
            self.stalled.store(0, SeqCst);
        }
    }

    /// A body was left before its end.
    pub(crate) fn leave_unread(&self) {
        self.unread.store(true, SeqCst);
    }

    /// Whether bytes nobody wants may still be on their way.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(SeqCst)
    }

    /// Tells the connection what to do. An order is never taken back.
    pub(crate) fn tell(&self, order: Order) {
        if self.order.fetch_max(order as u8, SeqCst) < order as u8 {
            self.waker.wake();
        }
    }

    /// What the connection was told, once that is more than it knew.
    pub(crate) fn poll_order(&self, context: &mut Context<'_>, known: Order) -> Poll<Order> {
        let order = || match self.order.load(SeqCst) {
            0 => Order::Stay,
            1 => Order::Finish,
            _ => Order::Cut,
        };
        if order() > known {
            return Poll::Ready(order());
        }
        self.waker.register(context.waker());
        if order() > known { Poll::Ready(order()) } else { Poll::Pending }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it takes longer than it may.
    fn is_late(&self, limits: &Limits, now: u64) -> bool {
        let over = |since: u64, most: Duration| u128::from(now.saturating_sub(since)) > most.as_millis();
        let stalled = self.stalled.load(SeqCst);
        if stalled != 0 && over(stalled, limits.body_time) {
            return true;
        }
        if self.working.load(SeqCst) > 0 {
            return false;
        }
        let most = if self.reading.load(SeqCst) { limits.header_time } else { limits.idle_time };
        over(self.since.load(SeqCst), most)
    }

    /// How long nothing came of it, for whoever must choose which to close. One that never asked, or whose request does not
    /// come, counts as if it had been silent four times as long; one that has only just come is the last to go.
    /// `None` where somebody works for it.
    fn silence(&self, now: u64) -> Option<u64> {
        if self.working.load(SeqCst) > 0 || self.order.load(SeqCst) > 0 {
            return None;
        }
        let silent = now.saturating_sub(self.since.load(SeqCst));
        let proven = self.used.load(SeqCst) && !self.reading.load(SeqCst);
        Some(if proven { silent } else { silent.saturating_mul(4) })
    }
}

/// A request that is worked on.
#[derive(Debug)]
pub(crate) struct Working(Arc<ConnState>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.since.store(self.0.now(), SeqCst);
        self.0.working.fetch_sub(1, SeqCst);
    }
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    begun: Instant,
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
        Arc::new(Self { begun: Instant::now(), open: Mutex::default() })
    }

    /// Adds a connection.
    pub(crate) fn open(self: &Arc<Self>) -> Registration {
        let conn = Arc::new(ConnState::new(self.begun));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.0;
        open.0 += 1;
        open.1.insert(number, conn.clone());
        Registration { connections: self.clone(), number, conn }
    }

    /// Cuts those that take too long; answers how many.
    pub(crate) fn cut_late(&self, limits: &Limits) -> usize {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let late: Vec<_> = self.all().into_iter().filter(|conn| conn.is_late(limits, now)).collect();
        late.iter().for_each(|conn| conn.tell(Order::Cut));
        late.len()
    }

    /// Closes some on which nothing is asked, the most silent first; answers how many.
    pub(crate) fn make_room(&self) -> usize {
        let (all, now) = (self.all(), u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut idle: Vec<_> = all.iter().filter_map(|conn| conn.silence(now).map(|silent| (silent, conn))).collect();
        // A few at a time: whoever comes next must not look at all of them again.
        let many = (all.len() / 64).max(1).min(idle.len());
        if many == 0 {
            return 0;
        }
        idle.select_nth_unstable_by_key(many - 1, |(silent, _)| std::cmp::Reverse(*silent));
        for (_, conn) in &idle[..many] {
            conn.tell(if conn.reading.load(SeqCst) { Order::Cut } else { Order::Finish });
        }
        many
    }

    /// Cuts those whose request has begun to come and is not here.
    pub(crate) fn cut_half_asked(&self) {
        let half = |conn: &Arc<ConnState>| conn.reading.load(SeqCst) && conn.working.load(SeqCst) == 0;
        self.all().iter().filter(|conn| half(conn)).for_each(|conn| conn.tell(Order::Cut));
    }

    /// Tells all of them.
    pub(crate) fn tell(&self, order: Order) {
        self.all().iter().for_each(|conn| conn.tell(order));
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
