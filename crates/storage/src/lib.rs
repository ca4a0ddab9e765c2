//! What a store is: the `Backend` trait and its rows, the clock, a store in memory, and the checks every store passes.
//!
//! Stores on disk or on other machines are built on this crate alone; what rows mean is known above it.
#![forbid(unsafe_code)]

pub mod backend;
mod brief_debug;
pub mod clock;
pub mod latency;
#[cfg(feature = "testing")]
pub mod testing;

pub(crate) use brief_debug::brief_debug;
