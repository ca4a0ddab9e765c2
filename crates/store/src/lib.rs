//! Backends of Toolhub that survive the process.
//!
//! Use the crate `toolhub`; this one is what it is made of. Each store is a room of its own and knows only the trait
//! `toolhub_storage::backend::Backend`: what rows mean is none of its business. What they share: one process at a time has
//! a store (`lock`), watchers are told what was committed (`watch`), and backups are made on time and kept for a while (`backup`).
#![forbid(unsafe_code)]

mod backup;
pub mod behind;
mod compressed;
mod epoch;
mod failpoint;
pub mod files;
mod lock;
mod managers;
mod queue;
pub mod sqlite;
mod watch;

pub use backup::RestoreError;
pub use behind::Behind;
pub use compressed::Compressed;
pub use files::Files;
pub use managers::{ManagerError, open_store};
pub use sqlite::Sqlite;
