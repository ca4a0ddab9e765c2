//! Shared by the tests of all crates: temporary folders, soak counts, and child processes that are killed.
//!
//! A dev-dependency only; depends on nothing. Everything here panics when the machine does not play along, as tests do.
#![forbid(unsafe_code)]

mod child;
mod folder;
mod soak;

pub use child::kill_after;
pub use folder::TempFolder;
pub use soak::{is_soak, soak};
