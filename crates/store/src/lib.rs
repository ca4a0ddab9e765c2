//! Persistent backends of Toolhub: SQLite, files, Redis (feature `redis`), and the write-behind and compression decorators.
//!
//! Internal crate of `toolhub`; depend on that one. Each store is a module of its own and implements
//! `toolhub_storage::backend::Backend` without interpreting the rows. Shared parts: the exclusive lock (`lock`), the change
//! feed for watchers (`change_feed`), threads that restart after a panic (`worker_thread`), the queue of a writer thread (`queue`),
//! and scheduled backups with retention (`backup`). `copy` moves records from one store
//! to another.
#![forbid(unsafe_code)]

mod backup;
mod change_feed;
mod compression;
pub mod copy;
mod epoch;
mod failpoint;
pub mod files;
mod lock;
mod queue;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sqlite;
mod store_factory;
mod worker_thread;
pub mod write_behind;

#[cfg(feature = "redis")]
pub use self::redis::Redis;
pub use backup::RestoreError;
pub use compression::Compressed;
pub use files::Files;
pub use sqlite::Sqlite;
pub use store_factory::{
    OpenStoreError, RestoreStoreError, StateBackups, open_store, open_store_with_backups, restore_store,
};
pub use write_behind::WriteBehind;
