//! Hints about what a call does to the world, with MCP's pessimistic defaults.
//!
//! In: what the tool's owner declared. Out: the facts retry, batches and approvals decide on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a tool does to the world. What is not said is assumed to be the worse of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "ToolAnnotations")]
pub struct Annotations {
    /// A name for people; the tool's own name where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool changes nothing outside itself.
    pub read_only: bool,
    /// A change the tool makes may destroy something.
    pub destructive: bool,
    /// Calling it twice with the same arguments does no more than calling it once.
    pub idempotent: bool,
    /// It reaches things outside this system.
    pub open_world: bool,
}

impl Default for Annotations {
    fn default() -> Self {
        Self { title: None, read_only: false, destructive: true, idempotent: false, open_world: true }
    }
}
