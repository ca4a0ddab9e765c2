//! How tools that are HTTP requests behave, against real servers on this machine.

mod answers;
mod auth;
mod canary;
mod connection;
mod failures;
mod kept;
mod names;
mod places;
mod promise;
mod redirects;
mod sessions;
mod settings;
mod standing;
pub(crate) mod support;
mod tls;
