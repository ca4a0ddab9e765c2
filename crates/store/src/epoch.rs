//! Epochs: the upper bits of a version, raised where versions may have been given out that no file knows of.
//!
//! Pure numbers. Who raises an epoch, and when, is in `behind`, in `sqlite/epoch.rs` and in `files/open.rs`.

use toolhub_storage::clock::Timestamp;

/// So many writes of one row fit into an epoch: 2 to the power of this.
const COUNTER_BITS: u32 = 32;
/// Versions stay below 2^53.
pub(crate) const MAX_EPOCH: u64 = (1 << 21) - 1;
/// The first moment of 2025, in milliseconds.
const START_MILLIS: i64 = 1_735_689_600_000;

/// The lowest version of a row that is written in an epoch.
pub(crate) fn version_floor(epoch: u64) -> u64 {
    (epoch.min(MAX_EPOCH) << COUNTER_BITS) + 1
}

/// The epoch a version was given out in.
pub(crate) fn of_version(version: u64) -> u64 {
    version >> COUNTER_BITS
}

/// One that is later than those that are known, and than those of a store that is lost: by the hours that have passed.
pub(crate) fn epoch_after(known: u64, now: Timestamp) -> u64 {
    let hours = u64::try_from((now.millis() - START_MILLIS) / 3_600_000).unwrap_or(0);
    known.saturating_add(1).max(hours).min(MAX_EPOCH)
}
