//! Test support for stores and the code above them: a controllable clock, an observed store, and the contract tests of `Backend`.
//!
//! Compiled only with the feature `testing`.

mod clock;
pub mod contract;
mod observed_store;

pub use clock::TestClock;
pub use observed_store::{ObservedStore, StoreUse};
