//! The section `[mcp_endpoint]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::{
    config::PositiveDuration,
    server::{McpApproval, McpMode, McpSettings},
};

/// The address at which MCP clients reach the tools: `/mcp`, `/mcp/TOOLSET` and `/mcp/t/THREAD`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct McpEndpoint {
    /// Whether it is served.
    pub(crate) enabled: bool,
    /// The toolset of `/mcp`. Default: all tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) toolset: Option<String>,
    /// How the tools are shown, unless the address says it: `/mcp?mode=search`.
    pub(crate) mode: McpMode,
    /// What happens to a call that needs approval.
    pub(crate) approval: McpApproval,
    /// After this time a call of a client that declared tasks becomes one, which the client looks up later.
    pub(crate) task_after: PositiveDuration,
    /// How long a session may be unused before it is unloaded from memory, and may make room for a new one. Only protocol versions
    /// before 2026-07-28 have sessions.
    pub(crate) session_idle: PositiveDuration,
    /// Maximum number of sessions, which are kept for a day after their last use.
    #[schemars(range(min = 1))]
    pub(crate) max_sessions: u32,
    /// Maximum number of sessions of one key.
    #[schemars(range(min = 1))]
    pub(crate) max_sessions_per_caller: u32,
}

impl Default for McpEndpoint {
    fn default() -> Self {
        let defaults = McpSettings::default();
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            enabled: defaults.enabled,
            toolset: None,
            mode: defaults.mode,
            approval: defaults.approval,
            task_after: PositiveDuration(defaults.task_after),
            session_idle: PositiveDuration(defaults.session_idle),
            max_sessions: number(defaults.max_sessions),
            max_sessions_per_caller: number(defaults.max_sessions_per_caller),
        }
    }
}
