//! Backends of Toolhub that survive the process.
//!
//! Use the crate `toolhub`; this one is what it is made of. Each store is a room of its own and knows only the trait
//! `toolhub_storage::backend::Backend`: what rows mean is none of its business. What they share: one process at a time has
//! a store (`lock`), watchers are told what was committed (`watch`), and backups are made on time and kept for a while (`backup`).
#![forbid(unsafe_code)]

mod backup;
mod compression;
mod epoch;
mod failpoint;
pub mod files;
mod lock;
mod queue;
pub mod sqlite;
mod store_factory;
mod watch;
pub mod write_behind;

pub use backup::RestoreError;
pub use compression::Compressed;
pub use files::Files;
pub use sqlite::Sqlite;
pub use store_factory::{OpenStoreError, open_store};
pub use write_behind::WriteBehind;
