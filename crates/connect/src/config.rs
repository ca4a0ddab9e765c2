//! Builds tools from configuration at run time.
//!
//! In: a [`ToolConfig`], deserialized from JSON, TOML or another serde format; the binary's `toolhub.toml` uses the same keys. Out: a
//! `ToolBuilder`, or all problems, each with its key and what to do. The stages: `raw` holds the keys as written, `plan` resolves
//! and checks them, `factory` builds the tool from the plan. Checks across several tools, such as whether the dependencies of a tool
//! exist, are left to the caller.

mod diagnostics;
mod error;
mod factory;
mod path;
mod plan;
mod raw;
mod schema_check;
mod secret;
pub mod unit;

pub use diagnostics::{ConfigEnv, Diagnostics, Problem, ProcessEnv};
pub use error::ToolConfigError;
pub use factory::{ToolFactory, create_tool};
pub use path::{KeyPath, KeySegment};
#[cfg(feature = "mcp")]
pub use plan::McpServerPlan;
pub use plan::ToolPlan;
pub use raw::{
    Annotations, AuthType, Backoff, Cache, CallSettings, Cleanup, Command, Conflict, Connection, DependencyGroups,
    DependsOn, KeyLocation, Kind, ManagerType, Method, RateLimit, RateLimits, RateScope, Rest, RestAuth, RestResult,
    ResultFormat, Retry, ToolConfig, ToolState, UnknownKeys,
};
#[cfg(feature = "mcp")]
pub use raw::{McpInstance, McpProtocol, McpServerConfig, McpToolConfig, McpTransport};
pub use secret::SecretSource;
pub use toolhub_net::SecretText;
pub use unit::{DurationOrNever, DurationOrZero, PositiveDuration, Size, Unit};
