//! The sections `[tools.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub::config::ToolConfig;

/// One tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tool {
    /// Whether there is such a tool. One that is not enabled is as if it were not written here.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// Everything else, in words that programs use, too.
    #[serde(flatten)]
    pub(crate) config: ToolConfig,
}

fn yes() -> bool {
    true
}
