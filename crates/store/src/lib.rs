//! Backends of Toolhub that survive the process.
//!
//! Use the crate `toolhub`; this one is what it is made of. Each store is a room of its own and knows only the trait
//! `toolhub_core::backend::Backend`: what rows mean is none of its business. What they share: one process at a time has
//! a store (`lock`), and watchers are told what was committed (`watch`).
#![forbid(unsafe_code)]

#[cfg(feature = "files")]
pub mod files;
#[cfg(any(feature = "files", feature = "sqlite"))]
mod lock;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "files", feature = "sqlite"))]
mod watch;

#[cfg(feature = "files")]
pub use files::Files;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
