//! Why an MCP server cannot be used as it is set up.

use super::MAX_PREFIX;
use crate::{command::CommandError, rest::RestError};

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpServerError {
    /// The name cannot begin the names of tools.
    #[error("`{0}` cannot be the name of an MCP server: use letters, digits, `_` and `-`")]
    Name(String),
    /// The prefix leaves no room for the names of tools.
    #[error("`{0}` is too long to begin the names of tools: set a `prefix` of at most {MAX_PREFIX} characters")]
    Prefix(String),
    /// A tool cannot have this name.
    #[error("`{0}` cannot be the name of a tool: use letters, digits, `_` and `-`")]
    ToolName(String),
    /// A pattern is not valid.
    #[error("`{setting}` of the MCP server `{server}`: {reason}")]
    Pattern {
        /// The server.
        server: String,
        /// The setting.
        setting: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The program cannot be started like this.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The address cannot be reached like this.
    #[error(transparent)]
    Address(#[from] RestError),
}
