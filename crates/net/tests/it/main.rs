//! Behaviour of outgoing connections, against servers of this process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod client;
mod pool;
mod proxy;
mod server;
