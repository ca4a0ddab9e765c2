//! REST tools, against real servers on this machine.

mod address_guard;
mod auth;
mod connection;
mod connection_reuse;
mod dns;
mod failures;
mod health;
mod parameters;
mod redirects;
mod request_invariants;
mod responses;
mod sessions;
mod settings;
pub(crate) mod support;
mod tls;
