//! Test support for stores and the code above them: a controllable clock, an observed store, the contract tests of
//! `Backend`, and a checker of what clients of a store saw.
//!
//! Compiled only with the feature `testing`.

mod clock;
pub mod contract;
pub mod history;
mod observed_store;

pub use clock::TestClock;
pub use observed_store::{ObservedStore, StoreUse};
