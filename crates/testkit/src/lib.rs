//! Shared by the tests of all crates: temporary folders, soak counts, and child processes that are killed.
//!
//! A dev-dependency only, without dependencies of its own. Every function panics if the operating system reports an error.
#![forbid(unsafe_code)]

mod child;
mod folder;
mod soak;

pub use child::kill_after;
pub use folder::TempFolder;
pub use soak::{is_soak, soak};
