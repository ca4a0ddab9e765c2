//! Epochs: the upper bits of a version, raised where versions may have been given out that no file knows of.
//!
//! Pure numbers. Who raises an epoch, and when, is in `behind` and in `sqlite/epoch.rs`.

/// So many writes of one row fit into an epoch: 2 to the power of this.
const BITS: u32 = 32;
/// Versions stay below 2^53.
pub(crate) const LAST: u64 = (1 << 21) - 1;

/// The lowest version of a row that is written in an epoch.
pub(crate) fn floor(epoch: u64) -> u64 {
    (epoch.min(LAST) << BITS) + 1
}

/// The epoch a version was given out in.
pub(crate) fn of_version(version: u64) -> u64 {
    version >> BITS
}
