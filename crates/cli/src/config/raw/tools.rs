//! The sections `[tools.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub::config::ToolConfig;

/// A tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tool {
    /// Whether the tool exists. A disabled tool is treated as if it were not configured.
    #[serde(default = "default_enabled")]
    pub(crate) enabled: bool,
    /// Everything else, shared with the library and the API.
    #[serde(flatten)]
    pub(crate) config: ToolConfig,
}

fn default_enabled() -> bool {
    true
}
