//! Progress reports and log lines of running tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// What a running tool tells its caller.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallUpdate {
    /// How far it is.
    Progress(Progress),
    /// A line of its log.
    Log(LogLine),
}

/// One progress report of a running tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The message of the tool.
    pub message: String,
    /// The completed fraction from 0 to 1, if the tool knows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fraction: Option<f64>,
    /// How much is done, in a unit of the tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub done: Option<f64>,
    /// How much there is to do, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total: Option<f64>,
    /// The time of the report.
    pub at: Timestamp,
}

impl Progress {
    /// A report of a message.
    #[must_use]
    pub fn new(message: String, at: Timestamp) -> Self {
        Self { message, fraction: None, done: None, total: None, at }
    }

    /// With the completed fraction.
    #[must_use]
    pub fn with_fraction(self, fraction: f64) -> Self {
        Self { fraction: Some(fraction.clamp(0.0, 1.0)), ..self }
    }

    /// With an amount. A total that is not above zero is left out; with one, the fraction is known.
    #[must_use]
    pub fn with_amount(self, done: f64, total: Option<f64>) -> Self {
        let total = total.filter(|total| *total > 0.0);
        let fraction = total.map(|total| (done / total).clamp(0.0, 1.0));
        Self { done: Some(done), total, fraction, ..self }
    }
}

/// One line of a running tool's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The level, as the tool names it: `info`, `warning`, `error`.
    pub level: String,
    /// The text.
    pub message: String,
    /// The time of the line.
    pub at: Timestamp,
}
