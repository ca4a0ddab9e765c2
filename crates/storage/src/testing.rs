//! For people who test stores and what stands on them: time that stands still, and what every store promises as checks.
//!
//! Only with the feature `testing`.

mod clock;
pub mod contract;

pub use clock::TestClock;
