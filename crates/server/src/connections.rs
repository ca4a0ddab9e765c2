//! All open connections: who holds them, what they do, and which of them are closed.
//!
//! In: every connection, with the activity it reports. Out: commands to connections: those that exceed a timeout, those
//! that must make room for a new one, and those that hold too much memory. One periodic task checks all connections, so
//! that no request pays for a timer.

mod answer;
mod conn_state;
mod holder;
mod streams;
mod victims;

use std::{
    collections::HashMap,
    hash::RandomState,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) use answer::{Answer, Parts};
pub(crate) use conn_state::{ConnCommand, ConnState, Executing, InFlight};
pub(crate) use holder::{Holder, StreamHolder};

use crate::settings::Limits;

/// How often an idle event stream sends a comment, so that neither side takes it for dead.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
use answer::StreamProgress;
use streams::Streams;
use victims::Candidate;

/// Connections that are closed to make room this often belong to one burst, in milliseconds.
const BURST_MILLIS: u64 = 100;

/// How often connections closed because of their memory are logged at most, in milliseconds.
const LOG_MILLIS: u64 = 10_000;

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    epoch: Instant,
    /// Maximum number of connections.
    limit: usize,
    /// Maximum of the bytes that all connections hold.
    max_held_bytes: usize,
    open: Mutex<Open>,
    streams: Arc<Streams>,
    held_bytes: AtomicUsize,
    /// The number of held bytes at which connections are closed. Higher than the limit while those that were told to close
    /// still hold theirs.
    shed_at: AtomicUsize,
    /// Held while connections that hold too many bytes are being closed.
    shedding: Mutex<Shedding>,
    hash_state: RandomState,
    /// Accepted connections from which the server has not begun to read.
    unstarted: AtomicUsize,
    started: Notify,
}

/// Connections that were closed because of the memory they held.
#[derive(Debug, Default)]
struct Shedding {
    /// How many were not logged yet.
    aborted: usize,
    /// When they were last logged, in milliseconds since the listener started.
    logged_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    conns: HashMap<u64, Arc<ConnState>>,
    /// How many of them were told to close to make room. They no longer count.
    displaced: usize,
    /// When connections were last closed to make room, and how many at most.
    last_room: u64,
    room: usize,
}

/// Keeps a connection in the list until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    connections: Arc<Connections>,
    number: u64,
    is_started: bool,
    pub(crate) conn: Arc<ConnState>,
}

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            epoch: Instant::now(),
            limit: limits.connections.max(1),
            max_held_bytes: limits.held_bytes,
            open: Mutex::default(),
            streams: Streams::new(limits.connections.max(1)),
            held_bytes: AtomicUsize::new(0),
            shed_at: AtomicUsize::new(limits.held_bytes),
            shedding: Mutex::default(),
            hash_state: RandomState::new(),
            unstarted: AtomicUsize::new(0),
            started: Notify::new(),
        })
    }

    /// Adds a connection, if there is room for it.
    pub(crate) fn register(self: &Arc<Self>, peer: IpAddr) -> Option<Registration> {
        let mut open = self.lock();
        if open.conns.len() - open.displaced >= self.limit {
            return None;
        }
        let conn = Arc::new(ConnState::new(self.epoch, Holder::of_peer(peer), self.hash_state.clone()));
        let number = open.next;
        open.next += 1;
        open.conns.insert(number, conn.clone());
        self.unstarted.fetch_add(1, SeqCst);
        Some(Registration { connections: self.clone(), number, is_started: false, conn })
    }

    /// Waits until the server has begun to read from most connections. A burst of new ones waits in the queue of the system
    /// meanwhile: otherwise those that the server has not read from would be closed to make room for the next.
    pub(crate) async fn wait_started(&self) {
        while self.unstarted.load(SeqCst) > self.limit / 4 {
            self.started.notified().await;
        }
    }

    /// Closes some connections to make room for new ones; returns how many.
    pub(crate) fn make_room(&self) -> usize {
        let (now, mut open) = (self.elapsed_millis(), self.lock());
        let live: Vec<_> = open.conns.values().filter(|conn| !conn.is_closing()).cloned().collect();
        let candidates: Vec<_> = live
            .iter()
            .map(|conn| {
                let (activity, millis) = conn.activity(now);
                Candidate { holder: conn.holder_hash(), activity, millis }
            })
            .collect();
        // In a burst of new connections, close several together, so that not each of them scans all others.
        let is_burst = now.saturating_sub(open.last_room) < BURST_MILLIS;
        open.room = if is_burst { (open.room * 2).min(self.limit / 16).max(1) } else { 1 };
        open.last_room = now;
        let chosen = victims::choose(&candidates, self.limit, open.room);
        // Too many that are slow to close would exceed the limit of open files.
        let at_once = open.displaced > self.limit / 4;
        for index in &chosen {
            live[*index].displace(at_once);
        }
        open.displaced += chosen.len();
        chosen.len()
    }

    /// Begins the answer to a request. An event stream counts for its holder, and ends when its token is cancelled. Returns
    /// whether another stream was ended for it.
    pub(crate) fn begin_answer(
        self: &Arc<Self>,
        in_flight: InFlight,
        stream: Option<(StreamHolder, CancellationToken)>,
    ) -> (Arc<Answer>, bool) {
        let mut ended_another = false;
        let stream = stream.map(|(StreamHolder { holder, unread_timeout }, end)| {
            let (stream, ended) = self.streams.open(holder, end.clone());
            ended_another = ended;
            (stream, StreamProgress { end, unread_timeout })
        });
        (Arc::new(Answer::new(self.clone(), in_flight, stream)), ended_another)
    }

    /// A part of a request body arrived and is held by its handler.
    pub(crate) fn on_received(&self, conn: &ConnState, bytes: usize) {
        conn.on_received(bytes);
        self.add_held(bytes);
    }

    /// A request body is no longer held.
    pub(crate) fn on_released(&self, conn: &ConnState, bytes: usize) {
        conn.on_released(bytes);
        self.sub_held(bytes);
    }

    fn add_held(&self, bytes: usize) {
        if self.held_bytes.fetch_add(bytes, SeqCst) + bytes > self.shed_at.load(SeqCst) {
            self.shed();
        }
    }

    fn sub_held(&self, bytes: usize) {
        if self.held_bytes.fetch_sub(bytes, SeqCst) - bytes <= self.max_held_bytes {
            self.shed_at.store(self.max_held_bytes, SeqCst);
        }
    }

    /// Aborts connections until the others hold no more than three quarters of the limit: those of the holder with the most
    /// bytes first, of these the ones whose clients do not read, of these the largest.
    fn shed(&self) {
        // If the lock is held, another task does this already.
        let Ok(mut shedding) = self.shedding.try_lock() else { return };
        let now = self.elapsed_millis();
        // Not again for each answer until the connections are closed.
        self.shed_at.store(self.held_bytes.load(SeqCst) + self.max_held_bytes / 16, SeqCst);
        let all = self.all();
        let holding = all.iter().filter(|conn| !conn.is_aborted());
        let mut holding: Vec<_> = holding
            .map(|conn| (conn, conn.holder_hash(), conn.held_bytes()))
            .filter(|(.., bytes)| *bytes > 0)
            .collect();
        let mut total: usize = holding.iter().map(|(.., bytes)| bytes).sum();
        if total <= self.max_held_bytes {
            return;
        }
        let mut by_holder: HashMap<u64, usize> = HashMap::new();
        for (_, holder, bytes) in &holding {
            *by_holder.entry(*holder).or_default() += bytes;
        }
        holding.sort_by_cached_key(|(conn, holder, bytes)| {
            std::cmp::Reverse((by_holder.get(holder).copied(), conn.is_unread(now), *bytes))
        });
        for (conn, _, bytes) in holding {
            if total <= self.max_held_bytes / 4 * 3 {
                break;
            }
            conn.send_command(ConnCommand::Abort);
            total -= bytes;
            shedding.aborted += 1;
        }
        if shedding.logged_at.is_none_or(|at| now.saturating_sub(at) >= LOG_MILLIS) {
            let aborted = std::mem::take(&mut shedding.aborted);
            tracing::warn!(
                aborted,
                limit = self.max_held_bytes,
                "closed connections: unread responses and request bodies take too much memory"
            );
            shedding.logged_at = Some(now);
        }
    }

    /// Aborts connections that exceeded a timeout; returns how many.
    pub(crate) fn abort_overdue(&self, limits: &Limits) -> usize {
        let now = self.elapsed_millis();
        let overdue: Vec<_> = self.all().into_iter().filter(|conn| conn.is_overdue(limits, now)).collect();
        overdue.iter().for_each(|conn| conn.send_command(ConnCommand::Abort));
        overdue.iter().filter(|conn| !conn.is_displaced()).count()
    }

    /// Aborts connections that have received only part of a request.
    pub(crate) fn abort_partial_requests(&self) {
        self.all().iter().filter(|conn| conn.is_partial()).for_each(|conn| conn.send_command(ConnCommand::Abort));
    }

    /// Sends a command to all connections.
    pub(crate) fn broadcast(&self, command: ConnCommand) {
        self.all().iter().for_each(|conn| conn.send_command(command));
    }

    fn all(&self) -> Vec<Arc<ConnState>> {
        self.lock().conns.values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Registration {
    /// The server begins to read.
    pub(crate) fn start(&mut self) {
        if !std::mem::replace(&mut self.is_started, true) {
            self.conn.on_start();
            self.connections.unstarted.fetch_sub(1, SeqCst);
            // Stored if the accept loop does not wait at the moment, which checks again then.
            self.connections.started.notify_one();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.start();
        let mut open = self.connections.lock();
        open.conns.remove(&self.number);
        open.displaced -= usize::from(self.conn.is_displaced());
    }
}

#[cfg(test)]
mod tests {
    use toolhub_core::ids::{Caller, Tenant};

    use super::*;

    /// A proxy sends requests of several keys on one HTTP/2 connection.
    #[tokio::test]
    async fn a_stream_counts_for_the_key_of_its_own_request_on_a_shared_connection() {
        let connections = Connections::new(&Limits { connections: 4, ..Limits::default() });
        let conn = connections.register([192, 0, 2, 1].into()).unwrap().conn.clone();
        let key = |name: &str| Holder::Key(Tenant::default(), Caller::new(name).unwrap());
        let other = key("other");
        let begin = |own: &Holder| {
            let in_flight = conn.begin_request();
            conn.on_authenticated(Some(own));
            conn.on_authenticated(Some(&other));
            let end = CancellationToken::new();
            let holder = StreamHolder { holder: own.clone(), unread_timeout: None };
            (connections.begin_answer(in_flight, Some((holder, end.clone()))), end)
        };
        let own = key("own");
        let streams = [begin(&own), begin(&own), begin(&other), begin(&other)];
        assert!(streams.iter().all(|(_, end)| !end.is_cancelled()));
        let fifth = begin(&own);
        assert!(fifth.0.1 && streams[0].1.is_cancelled() && !streams[2].1.is_cancelled());
    }
}
