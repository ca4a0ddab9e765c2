//! Ways out of Toolhub: tools that are HTTP requests, OpenAPI documents, or programs.
//!
//! Use the crate `toolhub`; this one is what it is made of. Each way is a room of its own: `rest` makes requests, `openapi` reads
//! documents and makes `rest` tools of them, `command` runs programs; `config` makes tools of what is written about them. What they give
//! the hub is an `Executor` in a `ToolBuilder`; whether and when a call may run is decided before it comes here.
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod openapi;
pub mod rest;
