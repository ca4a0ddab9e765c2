//! Backends of Toolhub that survive the process.
//!
//! Use the crate `toolhub`; this one is what it is made of. Each store is a room of its own and knows only the trait
//! `toolhub_core::backend::Backend`: what rows mean is none of its business.
#![forbid(unsafe_code)]

pub mod behind;
mod epoch;
mod failpoint;
pub mod sqlite;
mod watch;

pub use behind::Behind;
pub use sqlite::Sqlite;
