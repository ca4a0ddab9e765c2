//! `SizeLimit`: how much a store holds, how much it may hold, and backpressure when it comes near that.
//!
//! In: the size, from the store; the size of each batch, from its writers. Out: the size for metrics, a wake-up for the task that
//! removes old rows, and a bounded wait of writers until it has made room. The store knows neither which rows are old nor which
//! may go.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// How long a writer waits for room. Then it writes all the same: the store decides whether it still accepts that.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The current and the maximum size of a store, in bytes.
#[derive(Debug)]
pub struct SizeLimit {
    limit: u64,
    bytes: AtomicU64,
    /// Size of the batches that are being committed.
    reserved: AtomicU64,
    /// Size of the largest batch that waits for room.
    requested: AtomicU64,
    /// Number of tasks that remove old rows.
    trimmers: AtomicU64,
    /// The size below which nothing could be removed the last time; 0 if it is not known.
    floor: AtomicU64,
    /// The smallest size since old rows were last looked for.
    lowest: AtomicU64,
    /// Whether the store refused the last write because of its size.
    is_full: AtomicBool,
    /// Notified when rows must be removed.
    room_needed: Notify,
    /// Notified when the size falls.
    room_made: Notify,
}

impl SizeLimit {
    /// A limit of this many bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            bytes: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            trimmers: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            lowest: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            room_needed: Notify::new(),
            room_made: Notify::new(),
        }
    }

    /// The maximum size.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The current size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the size.
    pub fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.notify(before, bytes);
    }

    /// Adds to the size, or subtracts from it.
    pub fn add(&self, difference: i64) {
        let before = self.bytes.fetch_add(difference.cast_unsigned(), Ordering::Relaxed);
        self.notify(before, before.wrapping_add(difference.cast_unsigned()));
    }

    fn notify(&self, before: u64, after: u64) {
        if after < before {
            for minimum in [&self.floor, &self.lowest] {
                minimum.fetch_min(after, Ordering::Relaxed);
            }
            self.room_made.notify_waiters();
        } else if after >= self.high_water() {
            self.room_needed.notify_one();
        }
    }

    /// The size to which old rows are removed once the store is near its limit.
    #[must_use]
    pub fn target(&self) -> u64 {
        let requested = self.max_admitted().saturating_sub(self.requested.load(Ordering::Relaxed));
        requested.min(self.limit / 10 * 7)
    }

    fn high_water(&self) -> u64 {
        self.limit / 10 * 8
    }

    /// The size up to which writers need not wait. The rest is for what a store holds besides the rows it counts.
    fn max_admitted(&self) -> u64 {
        self.limit / 100 * 95
    }

    /// Whether the size has reached eight tenths of the limit.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.bytes() >= self.high_water()
    }

    /// Whether the store refused the last write that would have made it grow, because of its size.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Records whether the store accepts writes that make it grow.
    pub fn set_full(&self, is_full: bool) {
        if self.is_full() != is_full {
            self.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Announces that the caller removes old rows, until the returned value is dropped. Only then do writers wait for room.
    pub fn start_trimming(&self) -> Trimming<'_> {
        self.trimmers.fetch_add(1, Ordering::Relaxed);
        Trimming { limit: self }
    }

    /// Whether rows should be removed: a writer waits for room, or the size is at eight tenths of the limit and has grown since
    /// nothing could be removed.
    fn needs_trim(&self) -> bool {
        let floor = self.floor.load(Ordering::Relaxed);
        let has_grown = floor == 0 || self.bytes() >= floor.saturating_add(self.limit / 100);
        (self.is_near() && has_grown) || self.requested.load(Ordering::Relaxed) > 0
    }

    /// Waits until this many bytes fit, and counts them until the returned value is dropped. Waits at most five seconds, and not
    /// at all if not so much can be removed.
    pub async fn reserve(&self, bytes: u64) -> Reservation<'_> {
        if !self.try_reserve(bytes) {
            self.wait_for_room(bytes).await;
        }
        Reservation { limit: self, bytes }
    }

    async fn wait_for_room(&self, bytes: u64) {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let mut room_made = std::pin::pin!(self.room_made.notified());
            // Registered before the check, so that no notification is missed in between.
            room_made.as_mut().enable();
            if self.try_reserve(bytes) {
                return;
            }
            if self.bytes().saturating_add(bytes) > self.max_admitted() {
                self.requested.fetch_max(bytes, Ordering::Relaxed);
                self.room_needed.notify_one();
            }
            if tokio::time::timeout_at(deadline, room_made).await.is_err() {
                self.reserved.fetch_add(bytes, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Whether rows can be removed until this many bytes fit. At least half of the limit is taken to be needed for other rows.
    fn can_make_room(&self, bytes: u64) -> bool {
        let floor = self.floor.load(Ordering::Relaxed);
        self.trimmers.load(Ordering::Relaxed) > 0
            && bytes < self.limit / 2
            && floor.saturating_add(bytes) <= self.max_admitted()
    }

    /// Counts the bytes if they fit, or if waiting is useless.
    fn try_reserve(&self, bytes: u64) -> bool {
        let mut reserved = self.reserved.load(Ordering::Relaxed);
        loop {
            let size = self.bytes().saturating_add(reserved).saturating_add(bytes);
            if size > self.max_admitted() && self.can_make_room(bytes) {
                return false;
            }
            let (order, total) = (Ordering::Relaxed, reserved.saturating_add(bytes));
            match self.reserved.compare_exchange_weak(reserved, total, order, order) {
                Ok(_) => return true,
                Err(current) => reserved = current,
            }
        }
    }
}

/// A task that removes old rows while this exists.
#[derive(Debug)]
pub struct Trimming<'a> {
    limit: &'a SizeLimit,
}

impl Trimming<'_> {
    /// Waits until rows must be removed, and no longer than `max_wait` if the size is at eight tenths of the limit. The caller
    /// removes the oldest rows until the size is at the [`target`](SizeLimit::target), and reports with
    /// [`finish_pass`](Self::finish_pass).
    pub async fn wait_until_needed(&self, max_wait: Duration) {
        let deadline = Instant::now() + max_wait;
        while !self.limit.needs_trim() {
            let woken = tokio::time::timeout_at(deadline, self.limit.room_needed.notified()).await;
            if woken.is_err() {
                if self.limit.is_near() {
                    break;
                }
                self.limit.room_needed.notified().await;
            }
        }
        self.limit.lowest.store(self.limit.bytes(), Ordering::Relaxed);
    }

    /// Reports that rows were removed. If there were not enough, writers no longer wait for more room than could be made.
    pub fn finish_pass(&self, has_room: bool) {
        let floor = if has_room { 0 } else { self.limit.lowest.load(Ordering::Relaxed) };
        self.limit.floor.store(floor, Ordering::Relaxed);
        self.limit.requested.store(0, Ordering::Relaxed);
        self.limit.room_made.notify_waiters();
    }
}

impl Drop for Trimming<'_> {
    fn drop(&mut self) {
        self.limit.trimmers.fetch_sub(1, Ordering::Relaxed);
        self.limit.room_made.notify_waiters();
    }
}

/// Bytes that are being written to a store. They count until this is dropped; then the store has counted them itself.
#[derive(Debug)]
pub struct Reservation<'a> {
    limit: &'a SizeLimit,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.limit.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        self.limit.room_made.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_until_there_is_room_and_not_for_ever() {
        let limit = SizeLimit::new(1000);
        limit.set(940);
        drop(limit.reserve(20).await);
        let trimming = limit.start_trimming();
        trimming.wait_until_needed(MAX_WAIT).await;
        let started = Instant::now();
        let first = limit.reserve(10).await;
        assert!(started.elapsed().is_zero(), "it fits");
        drop(limit.reserve(10).await);
        assert_eq!(started.elapsed(), MAX_WAIT, "the first takes the room");
        drop(first);
        let (reserved, ()) = tokio::join!(limit.reserve(100), async { limit.set(700) });
        assert_eq!(started.elapsed(), MAX_WAIT);
        assert_eq!(limit.target(), 700);
        drop(reserved);
        limit.set(960);
        let (_reserved, ()) = tokio::join!(limit.reserve(300), async {
            assert_eq!(limit.target(), 650, "so much room is needed");
            trimming.finish_pass(false);
        });
        assert_eq!((started.elapsed(), limit.target()), (MAX_WAIT, 700), "nothing more can be removed");
    }

    #[tokio::test(start_paused = true)]
    async fn writers_do_not_wait_while_nothing_can_be_removed() {
        let limit = SizeLimit::new(1000);
        let trimming = limit.start_trimming();
        limit.set(960);
        trimming.wait_until_needed(MAX_WAIT).await;
        trimming.finish_pass(false);
        let started = Instant::now();
        for _ in 0..10 {
            drop(limit.reserve(20).await);
        }
        assert!(started.elapsed().is_zero());
        trimming.wait_until_needed(2 * MAX_WAIT).await;
        assert_eq!(started.elapsed(), 2 * MAX_WAIT, "what cannot be removed now may be removed later");
        trimming.finish_pass(false);
        limit.set(900);
        limit.set(940);
        trimming.wait_until_needed(Duration::from_secs(3600)).await;
        assert_eq!(started.elapsed(), 2 * MAX_WAIT, "what came since then can perhaps go");
        let (_reserved, ()) = tokio::join!(limit.reserve(50), async { limit.set(900) });
        assert_eq!(started.elapsed(), 2 * MAX_WAIT);
        limit.set(940);
        let waiting = limit.reserve(40);
        drop(trimming);
        drop(waiting.await);
        assert_eq!(started.elapsed(), 2 * MAX_WAIT, "no trimmer is running");
    }
}
