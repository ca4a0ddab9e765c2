//! The side effect of a call, on which retries and texts for models are based.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The side effect of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call had no side effect.
    None,
    /// The call took full effect.
    Done,
    /// Unknown: the call may have taken effect fully, partly or not at all.
    Unknown,
}
