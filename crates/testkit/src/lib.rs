//! Shared by the tests of all crates: temporary folders, soak counts, child processes that are killed, Redis servers, a proxy that
//! counts round trips, and HTTP/2 frames.
//!
//! A dev-dependency only, without dependencies of its own. Every function panics if the operating system reports an error.
#![forbid(unsafe_code)]

mod child;
mod counting_proxy;
mod folder;
pub mod http2;
mod redis_cluster;
mod redis_server;
mod soak;

pub use child::kill_after;
pub use counting_proxy::CountingProxy;
pub use folder::TempFolder;
pub use redis_cluster::RedisCluster;
pub use redis_server::RedisServer;
pub use soak::{is_soak, soak};
