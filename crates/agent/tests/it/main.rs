//! Integration tests of model clients and the scripted model, through the public API of the crate.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod models;
#[cfg(feature = "stub")]
mod script;
#[cfg(feature = "stub")]
mod stub;
