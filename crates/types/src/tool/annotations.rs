//! Tool annotations: hints about the side effects of a call, with MCP's pessimistic defaults.
//!
//! In: the declarations of the tool's owner. Out: the facts on which retries, batches and approvals are decided.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The side effects of a tool. The default of each field is the more dangerous value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "ToolAnnotations")]
pub struct Annotations {
    /// A display name. Default: the tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool changes nothing outside itself.
    pub read_only: bool,
    /// A change the tool makes may destroy something.
    pub destructive: bool,
    /// Calling it twice with the same arguments does no more than calling it once.
    pub idempotent: bool,
    /// The tool interacts with external systems.
    pub open_world: bool,
}

impl Default for Annotations {
    fn default() -> Self {
        Self { title: None, read_only: false, destructive: true, idempotent: false, open_world: true }
    }
}
