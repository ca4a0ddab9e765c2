//! Progress reports of running tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// One progress report of a running tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The message of the tool.
    pub message: String,
    /// The completed fraction from 0 to 1, if the tool knows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fraction: Option<f64>,
    /// The time of the report.
    pub at: Timestamp,
}
