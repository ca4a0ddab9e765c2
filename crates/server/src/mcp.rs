//! The MCP endpoint: the tools of the hub for MCP clients, over streamable HTTP.
//!
//! In: requests that the route's guard has authenticated. Out: responses of the protocol, in both of its eras. `rmcp` speaks the
//! protocol; what is listed, who may call and what an outcome becomes is decided here and by the hub.

mod approvals;
mod call;
mod configured_toolset;
mod direct_call;
mod endpoint;
mod envelope;
mod input;
mod interactive_calls;
mod legacy;
mod list_watch;
mod lists;
mod message_log;
mod meters;
mod request;
mod request_transport;
mod resource_updates;
mod result;
mod search;
mod server;
mod session;
mod sessions;
mod stored_sessions;
mod tool_list;
mod updates;

pub(crate) use configured_toolset::ConfiguredToolset;
pub(crate) use endpoint::{EndlessStream, McpEndpoint};
pub(crate) use request::{McpAddress, McpRequest};
