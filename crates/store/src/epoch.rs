//! Epochs: the upper bits of a version, raised when versions may have been returned that were never persisted.
//!
//! Pure arithmetic. `write_behind`, `sqlite/epoch.rs` and `files/open.rs` decide when to raise an epoch.

use toolhub_storage::clock::Timestamp;

/// An epoch has room for 2^32 writes of one row.
const COUNTER_BITS: u32 = 32;
/// Versions stay below 2^53.
pub(crate) const MAX_EPOCH: u64 = (1 << 21) - 1;
/// 2025-01-01 00:00 UTC in Unix milliseconds.
const START_MILLIS: i64 = 1_735_689_600_000;

/// The lowest version that is assigned in an epoch.
pub(crate) fn version_floor(epoch: u64) -> u64 {
    (epoch.min(MAX_EPOCH) << COUNTER_BITS) + 1
}

/// The epoch in which a version was assigned.
pub(crate) fn of_version(version: u64) -> u64 {
    version >> COUNTER_BITS
}

/// An epoch later than the known one and than any of a lost store: at least the number of hours since 2025.
pub(crate) fn epoch_after(known: u64, now: Timestamp) -> u64 {
    let hours = u64::try_from((now.millis() - START_MILLIS) / 3_600_000).unwrap_or(0);
    known.saturating_add(1).max(hours).min(MAX_EPOCH)
}
