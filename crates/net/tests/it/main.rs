//! Behaviour of outgoing connections, against servers of this process.

mod client;
mod pool;
mod proxy;
mod server;
