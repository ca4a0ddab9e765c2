//! Tools of MCP servers.
//!
//! In: a program or an address that speaks MCP. Out: a source of tools: those that it lists, while it is connected. `supervisor` keeps
//! a server connected, `registration` turns its list into registered tools, `executor` runs their calls. Below them: `catalog` reads
//! lists, `reply` results, `error` failures, `input` answers what a server asks; `connection` is one live connection, `wire` transports its messages.

mod accepted_input;
mod catalog;
mod connect_error;
mod connection;
mod connections;
mod era;
mod error;
mod executor;
mod input;
mod list_kind;
mod lists;
mod log_ring;
mod operation_meters;
mod pins;
mod probe;
mod readers;
mod registration;
mod reply;
mod server;
mod source;
mod supervisor;
mod target;
mod wire;

pub use pins::forget_server;
pub(crate) use server::{MAX_PREFIX, NamedToolSettings};
pub use server::{McpServer, McpServerError, Protocol};
pub use source::McpSource;
