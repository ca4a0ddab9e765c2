//! What a source says about itself, for routes, commands and explanations.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use toolhub_types::{timestamp::Timestamp, tool::ToolName};

/// The state of a source.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceInfo {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub connection: SourceConnection,
    /// Since when the connection is in this state.
    pub since: Timestamp,
    /// Why the last connection was lost or could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next attempt to connect is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Timestamp>,
    /// What is specific to its kind, such as the protocol version.
    pub details: Map<String, Value>,
    /// What it offers, sorted by name.
    pub tools: Vec<SourceTool>,
}

/// The connection of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceConnection {
    /// It is connected.
    Connected,
    /// The first connection is being made.
    Connecting,
    /// It is not connected; the next attempt is scheduled or running.
    Disconnected,
    /// It is disabled.
    Disabled,
}

/// A tool as its source names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceTool {
    /// The name at the source.
    pub name: String,
    /// The name in the hub, if it is registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<ToolName>,
    /// Whether it can be used.
    pub state: SourceToolState,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether a tool of a source can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceToolState {
    /// It is registered.
    Registered,
    /// Its definition waits for the approval of a person.
    PendingApproval,
    /// It cannot be registered.
    Quarantined,
}

/// A definition that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionChange {
    /// The name at the source.
    pub name: String,
    /// Whether a definition of this name was approved before.
    pub is_new: bool,
    /// How it differs from the approved definition, one line each.
    pub differences: Vec<String>,
}
