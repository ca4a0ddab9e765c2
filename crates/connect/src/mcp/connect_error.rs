//! Why there is no connection to a server, and whether the other era may help.

use std::{sync::Arc, time::Duration};

use rmcp::model::{ErrorCode, ProtocolVersion};
use toolhub_core::ToolError;

use super::wire::{End, EndCause, JsonRpcFailure};
use crate::command::CommandError;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The program could not be started.
    #[error("{}", start_text(.0))]
    Start(CommandError),
    /// The settings of the address are invalid.
    #[error("{0}")]
    Settings(String),
    /// A request of the handshake failed. `reached`: the server responded, and was not too busy to say anything about the request.
    #[error("{error}")]
    Http { error: Box<ToolError>, reached: bool },
    /// The server speaks only HTTP+SSE.
    #[error(
        "the server speaks only HTTP+SSE, which is not supported; use its streamable HTTP address: try `url = \"{instead}\"`"
    )]
    HttpSse { instead: String },
    /// The server answered the handshake with an error.
    #[error("the server refused the handshake: {} (code {})", .0.message, .0.code)]
    Refused(JsonRpcFailure),
    /// The server speaks no protocol version that this client knows.
    #[error("the server speaks no MCP version that toolhub knows; it offers: {}", .offered.join(", "))]
    Version { offered: Vec<String> },
    /// The answer to the handshake is not as the protocol says.
    #[error("the server answered the handshake with something else than the MCP protocol says")]
    InvalidAnswer,
    /// The server did not complete the handshake in time.
    #[error(
        "the server did not complete the handshake within {0:?}; if it needs longer to start, raise `startup_timeout`"
    )]
    Silent(Duration),
    /// The connection ended before the handshake was complete.
    #[error("{0}")]
    Ended(Arc<End>),
}

impl ConnectError {
    /// Whether a server that was asked in the modern era may be one of the legacy era: it refused without a modern error code,
    /// exited, did not answer, or answered something else.
    pub(crate) fn suggests_legacy(&self) -> bool {
        let modern = [ErrorCode::HEADER_MISMATCH, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY];
        match self {
            Self::Start(_) | Self::Settings(_) | Self::HttpSse { .. } => false,
            Self::Http { reached, .. } => *reached,
            Self::Refused(failure) => !modern.contains(&ErrorCode(failure.code)),
            Self::Version { offered } => offered.iter().any(|version| is_legacy(version)),
            Self::InvalidAnswer | Self::Silent(_) => true,
            Self::Ended(end) => !self.needs_credentials() && !matches!(end.cause, EndCause::Unreachable(_)),
        }
    }

    /// How long the server asks to wait before the next attempt.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Http { error, .. } => error.retry_after,
            _ => None,
        }
    }

    /// The last line that the program wrote to stderr. Only for administrators.
    pub(crate) fn stderr_line(&self) -> Option<&str> {
        match self {
            Self::Ended(end) => end.stderr_line(),
            _ => None,
        }
    }

    /// Whether the server refused the credentials, or their absence.
    pub(crate) fn needs_credentials(&self) -> bool {
        matches!(self, Self::Ended(end) if matches!(end.cause, EndCause::Unauthorized(_)))
    }

    /// Whether a server that was asked in the legacy era may be one of the modern era: it refused, or speaks another version.
    pub(crate) fn suggests_modern(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Version { .. } | Self::InvalidAnswer | Self::Http { reached: true, .. })
    }
}

/// The search path is not for everybody who may see the reason of a tool's status.
fn start_text(error: &CommandError) -> String {
    match error {
        CommandError::NotInPath { program, .. } => {
            format!("program `{program}` not found in PATH; install it, or use its absolute path as `command`")
        }
        other => other.to_string(),
    }
}

fn is_legacy(version: &str) -> bool {
    ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.has_initialize() && known.as_str() == version)
}
