//! Shared by the tests of all crates: temporary folders, soak counts, child processes that are killed, Redis servers, a proxy that
//! counts round trips and fails like a network, and HTTP/2 frames.
//!
//! A dev-dependency only, without dependencies of its own. Every function panics if the operating system reports an error.
#![forbid(unsafe_code)]

mod child;
mod folder;
pub mod http2;
mod old_redis;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod soak;
mod tcp_proxy;

pub use child::kill_after;
pub use folder::TempFolder;
pub use old_redis::OldRedis;
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use redis_server::RedisServer;
pub use soak::{is_soak, soak};
pub use tcp_proxy::{NetworkFault, TcpProxy};
