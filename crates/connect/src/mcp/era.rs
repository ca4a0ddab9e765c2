//! The two eras of the MCP protocol.

/// How a connection is set up, and what its messages look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Up to 2025-11-25: `initialize`, then a session in which the server may send requests, too.
    Legacy,
    /// From 2026-07-28: `server/discover`; each request is complete in itself, and a server asks with its result.
    Modern,
}
