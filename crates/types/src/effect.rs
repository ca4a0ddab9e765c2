//! What a call did to the world: the fact that retries and texts for models are decided by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a call did to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    None,
    /// What was asked.
    Done,
    /// Perhaps all of it, perhaps a part, perhaps nothing.
    Unknown,
}
