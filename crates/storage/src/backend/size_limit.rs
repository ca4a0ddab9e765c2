//! `SizeLimit`: how much a store holds, how much it may hold, and a signal when it comes near that.
//!
//! In: the size, from the store. Out: the same for metrics, and a wake-up for the task that removes old rows. The store knows neither
//! which rows are old nor which may go.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The current and the maximum size of a store, in bytes.
#[derive(Debug)]
pub struct SizeLimit {
    limit: u64,
    bytes: AtomicU64,
    /// Notified when the size reaches the high-water mark.
    near: Notify,
}

impl SizeLimit {
    /// A limit of this many bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, bytes: AtomicU64::new(0), near: Notify::new() }
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
        self.bytes.store(bytes, Ordering::Relaxed);
        if bytes >= self.high_water() {
            self.near.notify_one();
        }
    }

    /// Adds to the size, or subtracts from it.
    pub fn add(&self, difference: i64) {
        let before = self.bytes.fetch_add(difference.cast_unsigned(), Ordering::Relaxed);
        if difference > 0 && before.wrapping_add(difference.cast_unsigned()) >= self.high_water() {
            self.near.notify_one();
        }
    }

    /// The size to which old rows are removed once the store is near its limit.
    #[must_use]
    pub fn low_water(&self) -> u64 {
        self.limit / 10 * 7
    }

    fn high_water(&self) -> u64 {
        self.limit / 10 * 8
    }

    /// Whether the size has reached eight tenths of the limit.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.bytes() >= self.high_water()
    }

    /// Waits until the size reaches eight tenths of the limit.
    pub async fn wait_until_near(&self) {
        while !self.is_near() {
            self.near.notified().await;
        }
    }
}
