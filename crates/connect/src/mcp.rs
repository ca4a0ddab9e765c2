//! Tools of MCP servers.
//!
//! In: a program or an address that speaks MCP. Out: the tools it lists, and the results of calls to them. `wire` transports
//! messages, `connection` is one live connection to a server, `error` maps failures to the errors of calls, `catalog` turns lists into
//! definitions of tools, `reply` turns results into replies.

#![allow(dead_code, unused_imports, reason = "used by the supervisor, which is built next")]

mod catalog;
mod connection;
mod era;
mod error;
mod log_ring;
mod reply;
mod wire;
