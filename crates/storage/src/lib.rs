//! Storage interface: the `Backend` trait and its rows, the clock, the in-memory backend, and the contract tests that every backend passes.
//!
//! Backends on disk or on other machines depend on this crate alone; the crates above it give the rows their meaning.
#![forbid(unsafe_code)]

pub mod backend;
mod brief_debug;
pub mod clock;
pub mod latency;
pub mod seal;
pub mod sharded;
#[cfg(feature = "testing")]
pub mod testing;
