//! Test support for stores and the code above them: a controllable clock and the contract tests of `Backend`.
//!
//! Compiled only with the feature `testing`.

mod clock;
pub mod contract;

pub use clock::TestClock;
