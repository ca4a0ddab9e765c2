//! The config of a tool as written: one struct per section, one field per key.
//!
//! In: nothing; these types are only deserialized and serialized. The JSON Schema and the documentation of `toolhub.toml` are
//! generated from them, their defaults and their doc comments. `plan.rs` resolves and checks the values.

mod calls;
mod command;
#[cfg(feature = "mcp")]
mod mcp;
mod rest;
mod tool;

pub use calls::{Backoff, Cache, CallSettings, RateLimit, RateLimits, RateScope, Retry};
pub use command::Command;
#[cfg(feature = "mcp")]
pub(in crate::config) use mcp::INAPPLICABLE_CONNECTION_KEYS;
#[cfg(feature = "mcp")]
pub use mcp::{McpInstance, McpProtocol, McpServerConfig, McpToolConfig, McpTransport};
pub use rest::{AuthType, Connection, KeyLocation, Method, Rest, RestAuth, RestResult, ResultFormat};
pub use tool::{
    Annotations, Cleanup, Conflict, DependencyGroups, DependsOn, Kind, ManagerType, ToolConfig, ToolState, UnknownKeys,
};
