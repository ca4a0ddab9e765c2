//! Behaviour of the connectors, through their public API.
#![allow(clippy::unwrap_used, reason = "a test stops at the first unexpected error")]

mod command;
mod config;
mod grants;
mod openapi;
mod rest;
