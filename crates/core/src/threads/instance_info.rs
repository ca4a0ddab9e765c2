//! What the API shows of a live instance.

use schemars::JsonSchema;
use serde::Serialize;

use toolhub_types::{timestamp::Timestamp, tool::ToolName};

/// Summary of a live instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InstanceInfo {
    /// The tool whose instance it is.
    pub tool: ToolName,
    /// When it was created.
    #[serde(rename = "madeAt")]
    pub created: Timestamp,
    /// Whether a call uses it or waits for it.
    pub in_use: bool,
}
