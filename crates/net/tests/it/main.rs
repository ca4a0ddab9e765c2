//! Behaviour of outgoing connections, tested against servers in this process.
#![allow(clippy::unwrap_used, reason = "a test may panic on setup errors")]

mod client;
mod pool;
mod proxy;
mod server;
