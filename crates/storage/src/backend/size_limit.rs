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
    /// Whether a task removes old rows, and had something to remove the last time.
    can_make_room: AtomicBool,
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
            can_make_room: AtomicBool::new(false),
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

    /// Waits until rows must be removed: the size reaches eight tenths of the limit, or a writer waits for room. The caller
    /// removes the oldest rows until the size is at [`target`](Self::target), and reports with [`trimmed`](Self::trimmed).
    pub async fn wait_until_near(&self) {
        self.can_make_room.store(true, Ordering::Relaxed);
        while !self.is_near() && self.requested.load(Ordering::Relaxed) == 0 {
            self.room_needed.notified().await;
        }
    }

    /// Reports that rows were removed. If there is nothing left to remove, writers no longer wait for it.
    pub fn trimmed(&self, can_make_room: bool) {
        self.can_make_room.store(can_make_room, Ordering::Relaxed);
        self.requested.store(0, Ordering::Relaxed);
        self.room_made.notify_waiters();
    }

    /// Waits until this many bytes fit, and counts them until the returned value is dropped. Waits at most five seconds, and not
    /// at all if nothing can be removed.
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

    /// Counts the bytes if they fit, or if waiting is useless.
    fn try_reserve(&self, bytes: u64) -> bool {
        let mut reserved = self.reserved.load(Ordering::Relaxed);
        loop {
            let size = self.bytes().saturating_add(reserved).saturating_add(bytes);
            // A batch that is larger than the room that can be made waits in vain.
            let fits = size <= self.max_admitted() || bytes >= self.limit / 2;
            if !fits && self.can_make_room.load(Ordering::Relaxed) {
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
        limit.wait_until_near().await;
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
            limit.trimmed(false);
        });
        assert_eq!((started.elapsed(), limit.target()), (MAX_WAIT, 700), "nothing more can be removed");
    }
}
