//! What a running tool reports about how far it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// What a running tool says about how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// In words.
    pub message: String,
    /// From 0 to 1, where the tool knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fraction: Option<f64>,
    /// When it was said.
    pub at: Timestamp,
}
