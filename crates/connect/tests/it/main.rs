//! Behaviour of the connectors, through their public API.
#![allow(clippy::unwrap_used, reason = "a test stops at the first unexpected error")]

mod command;
mod config;
mod grants;
#[cfg(feature = "mcp")]
mod mcp;
mod openapi;
mod rest;
