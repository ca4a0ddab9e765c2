//! Activity of one connection.
//!
//! In: reports from the connection's own parts: bytes read, request begun, executed, answered, write blocked. Out: whether
//! a timeout has passed, what the connection is doing, and the commands it must follow: drain or abort.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::{Holder, answer::Progress, victims::Activity};
use crate::settings::Limits;

/// After this time, in milliseconds, an answer without progress counts as unread, and a connection without a request as
/// idle, when connections must be closed to make room.
const RECENT_MILLIS: u64 = 1_000;
/// How many times longer an answer may stay unread while another request on the connection is executed.
const UNREAD_GRACE: u32 = 10;
/// How long a connection that was told to drain to make room may stay open, in milliseconds.
const DISPLACED_MILLIS: u64 = 1_000;

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
    peer: Holder,
    /// The hash of who holds it, to count by: the peer, or the key of the last request with one.
    holder_hash: AtomicU64,
    hash_state: RandomState,
    /// Whether a request on it was authenticated.
    authenticated: AtomicBool,
    /// Requests in flight; several with HTTP/2.
    in_flight: AtomicU32,
    /// Authenticated ones of them whose handlers are running.
    executing: AtomicU32,
    /// Event streams among them.
    streams: AtomicU32,
    /// Whether the server has begun to read from it.
    has_started: AtomicBool,
    /// Whether a request has been received in part.
    reading: AtomicBool,
    /// Whether it has ever received a complete request.
    has_served: AtomicBool,
    /// When the current state began (idle, reading a request, serving one), in milliseconds since the listener started.
    state_since: AtomicU64,
    /// Since when a write waits for the client, 0 when none does.
    write_blocked_since: AtomicU64,
    /// Bytes of request bodies that handlers are collecting.
    received: AtomicUsize,
    /// Whether a request body was dropped before its end, so that its rest may still arrive.
    unread_body: AtomicBool,
    /// Answers that are not completely written.
    answers: Mutex<Vec<Arc<Progress>>>,
    /// When it was told to close to make room, 0 if it was not.
    displaced_at: AtomicU64,
    command: AtomicU8,
    waker: AtomicWaker,
}

impl ConnState {
    pub(super) fn new(epoch: Instant, peer: Holder, hash_state: RandomState) -> Self {
        let conn = Self {
            epoch,
            holder_hash: AtomicU64::new(hash_state.hash_one(&peer)),
            peer,
            hash_state,
            authenticated: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            executing: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            has_started: AtomicBool::new(false),
            reading: AtomicBool::new(false),
            has_served: AtomicBool::new(false),
            state_since: AtomicU64::new(0),
            write_blocked_since: AtomicU64::new(0),
            received: AtomicUsize::new(0),
            unread_body: AtomicBool::new(false),
            answers: Mutex::default(),
            displaced_at: AtomicU64::new(0),
            command: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        };
        conn.state_since.store(conn.elapsed_millis(), SeqCst);
        conn
    }

    /// Who sends its requests without a key.
    pub(crate) fn peer(&self) -> &Holder {
        &self.peer
    }

    /// The hash of who holds it.
    pub(super) fn holder_hash(&self) -> u64 {
        self.holder_hash.load(SeqCst)
    }

    /// A request on it was authenticated; with a key, the connection belongs to its holder.
    pub(crate) fn on_authenticated(&self, key: Option<&Holder>) {
        self.authenticated.store(true, SeqCst);
        if let Some(key) = key {
            self.holder_hash.store(self.hash_state.hash_one(key), SeqCst);
        }
    }

    /// The server begins to read. While it is busy, this may be long after the accept, and the client is not to blame.
    pub(super) fn on_start(&self) {
        self.state_since.store(self.elapsed_millis(), SeqCst);
        self.has_started.store(true, SeqCst);
    }

    /// Bytes were read.
    pub(crate) fn on_bytes_read(&self) {
        if self.in_flight.load(SeqCst) == 0 && !self.reading.swap(true, SeqCst) {
            self.state_since.store(self.elapsed_millis(), SeqCst);
        }
    }

    /// A request was received. It is in flight until the guard is dropped, after its answer was written.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        if self.in_flight.fetch_add(1, SeqCst) == 0 {
            self.state_since.store(self.elapsed_millis(), SeqCst);
        }
        self.reading.store(false, SeqCst);
        self.has_served.store(true, SeqCst);
        InFlight(self.clone())
    }

    /// The handler of an authenticated request runs until the guard is dropped.
    pub(crate) fn begin_execution(self: &Arc<Self>) -> Executing {
        self.executing.fetch_add(1, SeqCst);
        Executing(self.clone())
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

    /// A part of a request body arrived.
    pub(super) fn on_received(&self, bytes: usize) {
        self.received.fetch_add(bytes, SeqCst);
    }

    /// A request body was taken by its handler, or dropped.
    pub(super) fn on_released(&self, bytes: usize) {
        self.received.fetch_sub(bytes, SeqCst);
    }

    /// A request body was dropped before its end.
    pub(crate) fn mark_unread_body(&self) {
        self.unread_body.store(true, SeqCst);
    }

    /// Whether the rest of a dropped body may still arrive, and the client may wait for its answer meanwhile.
    pub(crate) fn needs_linger(&self) -> bool {
        self.unread_body.load(SeqCst) && self.displaced_at.load(SeqCst) == 0
    }

    /// An answer begins.
    pub(super) fn add_answer(&self, answer: Arc<Progress>) {
        self.streams.fetch_add(u32::from(answer.is_stream()), SeqCst);
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }

    /// An answer was written completely, or given up.
    pub(super) fn remove_answer(&self, answer: &Arc<Progress>) {
        self.streams.fetch_sub(u32::from(answer.is_stream()), SeqCst);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = answers.iter().position(|other| Arc::ptr_eq(other, answer)) {
            answers.swap_remove(index);
        }
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

    /// Closes it to make room for another one: at once, or after its streams have ended and its client was told.
    pub(super) fn displace(&self, at_once: bool) {
        self.displaced_at.store(self.elapsed_millis().max(1), SeqCst);
        let streams = self.streams.load(SeqCst);
        // A request with a key may have begun meanwhile: it is answered first.
        let is_executing = self.executing.load(SeqCst) > 0;
        let can_drain = self.in_flight.load(SeqCst) == streams && !self.reading.load(SeqCst);
        if !is_executing && (at_once || !can_drain) {
            return self.send_command(ConnCommand::Abort);
        }
        if streams > 0 {
            self.answers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|answer| answer.end_stream());
        }
        self.send_command(ConnCommand::Drain);
    }

    /// Whether it was told to close to make room.
    pub(super) fn is_displaced(&self) -> bool {
        self.displaced_at.load(SeqCst) != 0
    }

    /// Whether it was told to close.
    pub(super) fn is_closing(&self) -> bool {
        self.command.load(SeqCst) > 0
    }

    /// Whether it was told to close immediately.
    pub(super) fn is_aborted(&self) -> bool {
        self.command.load(SeqCst) >= ConnCommand::Abort as u8
    }

    /// Whether it has received only part of a request.
    pub(super) fn is_partial(&self) -> bool {
        self.reading.load(SeqCst) && self.in_flight.load(SeqCst) == 0
    }

    /// Whether it exceeds one of the timeouts.
    pub(super) fn is_overdue(&self, limits: &Limits, now: u64) -> bool {
        let exceeds = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        let (displaced_at, is_executing) = (self.displaced_at.load(SeqCst), self.executing.load(SeqCst) > 0);
        if displaced_at != 0 && !is_executing && now.saturating_sub(displaced_at) > DISPLACED_MILLIS {
            return true;
        }
        // Other streams of an HTTP/2 connection may belong to other clients, whose calls must not be cut.
        let grace = if is_executing { UNREAD_GRACE } else { 1 };
        if self.is_unread_over(limits.body_timeout, |since, limit| exceeds(since, limit * grace)) {
            return true;
        }
        if self.in_flight.load(SeqCst) > 0 {
            return false;
        }
        let limit = if self.reading.load(SeqCst) { limits.header_timeout } else { limits.idle_timeout };
        exceeds(self.state_since.load(SeqCst), limit)
    }

    /// Whether the client has left an answer unread for longer than it may. While a write waits, all answers are unread.
    fn is_unread_over(&self, timeout: Duration, exceeds: impl Fn(u64, Duration) -> bool) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let shortest = answers.iter().map(|answer| answer.unread_timeout(timeout)).min().unwrap_or(timeout);
        let blocked = self.write_blocked_since.load(SeqCst);
        let is_unread = |answer: &Arc<Progress>| {
            answer.unread_since().is_some_and(|since| exceeds(since, answer.unread_timeout(timeout)))
        };
        (blocked != 0 && exceeds(blocked, shortest)) || answers.iter().any(is_unread)
    }

    /// Since when the client has not read an answer, the longest one.
    fn unread_since(&self) -> Option<u64> {
        let blocked = Some(self.write_blocked_since.load(SeqCst)).filter(|since| *since != 0);
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().filter_map(|answer| answer.unread_since()).chain(blocked).min()
    }

    /// The bytes that it keeps in memory: unread answers, and bodies that are being received.
    pub(super) fn held_bytes(&self) -> usize {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().map(|answer| answer.held_bytes()).sum::<usize>() + self.received.load(SeqCst)
    }

    /// Whether the client has not read an answer for a while.
    pub(super) fn is_unread(&self, now: u64) -> bool {
        self.unread_since().is_some_and(|since| now.saturating_sub(since) >= RECENT_MILLIS)
    }

    /// What it is doing, and for how many milliseconds; `None` while an authenticated request is executed.
    pub(super) fn activity(&self, now: u64) -> (Option<Activity>, u64) {
        let in_flight = self.in_flight.load(SeqCst);
        let millis = now.saturating_sub(self.state_since.load(SeqCst));
        if self.executing.load(SeqCst) > 0 {
            return (None, millis);
        }
        if let Some(since) = self.unread_since().filter(|since| now.saturating_sub(*since) >= RECENT_MILLIS) {
            return (Some(Activity::Unread), now.saturating_sub(since));
        }
        if in_flight == 0 {
            if !self.has_started.load(SeqCst) {
                return (Some(Activity::Unstarted), millis);
            }
            if millis < RECENT_MILLIS {
                return (Some(Activity::Recent), millis);
            }
            // The time counts fourfold for one that has never sent a complete request, or is sending one.
            let is_proven = self.has_served.load(SeqCst) && !self.reading.load(SeqCst);
            return (Some(Activity::Idle), if is_proven { millis } else { millis.saturating_mul(4) });
        }
        let activity = if self.streams.load(SeqCst) == in_flight {
            Activity::Streaming
        } else if self.authenticated.load(SeqCst) {
            Activity::Answering
        } else if millis < RECENT_MILLIS {
            // Its request may be one with a key that is still being checked.
            Activity::Recent
        } else {
            Activity::Anonymous
        };
        (Some(activity), millis)
    }

    /// The time since the listener started, in milliseconds.
    pub(super) fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Guard of a request in flight.
#[derive(Debug)]
pub(crate) struct InFlight(pub(super) Arc<ConnState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state_since.store(self.0.elapsed_millis(), SeqCst);
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

/// Guard of an authenticated request that is executed.
#[derive(Debug)]
pub(crate) struct Executing(Arc<ConnState>);

impl Drop for Executing {
    fn drop(&mut self) {
        self.0.executing.fetch_sub(1, SeqCst);
    }
}
