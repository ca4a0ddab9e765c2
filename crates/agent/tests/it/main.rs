//! What agents and models do, through the doors of the crate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod models;
#[cfg(feature = "stub")]
mod script;
#[cfg(feature = "stub")]
mod stub;
