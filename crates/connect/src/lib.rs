//! Outgoing connectors of Toolhub: tools backed by HTTP requests, OpenAPI documents or programs.
//!
//! Use the crate `toolhub`, which re-exports this one. Each connector is a module: `rest` sends HTTP requests, `openapi` imports
//! documents and turns their operations into `rest` tools, `command` runs programs, `mcp` connects to MCP servers, `webhooks` sends alerts; `config` builds tools from configuration. Each
//! gives the hub an `Executor` in a `ToolBuilder`; the hub has already decided whether and when a call runs when it calls the executor.
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod openapi;
mod percent_encode;
pub mod rest;
mod secret_mask;
mod truncate;
pub mod webhooks;
