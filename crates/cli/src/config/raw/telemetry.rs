//! The section `[telemetry]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logs, metrics, and redaction.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Telemetry {
    /// The log, on standard error.
    pub(crate) log: Log,
    /// Whether `/metrics` is served.
    pub(crate) metrics: bool,
    /// Globs over names whose values are redacted in logs, `config show`, call records, approvals, events and the state history; case is
    /// ignored. Names that contain `authorization`, `apikey`, `token`, `secret` or `password` are always redacted in records.
    pub(crate) redact: Vec<String>,
}

/// The log, on standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Log {
    /// Format of log lines.
    pub(crate) format: LogFormat,
    /// Minimum level of log lines.
    pub(crate) level: LogLevel,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// `pretty` on a terminal, `json` elsewhere.
    #[default]
    Auto,
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}

/// Minimum level of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogLevel {
    /// No log.
    Off,
    /// Errors.
    Error,
    /// Also warnings.
    Warn,
    /// Also normal operation.
    #[default]
    Info,
    /// Also details.
    Debug,
    /// Everything.
    Trace,
}

/// Names whose values are secret everywhere.
pub(crate) const SECRET_NAME_GLOBS: [&str; 5] = ["authorization", "api_key", "*token*", "*secret*", "*password*"];

impl Default for Telemetry {
    fn default() -> Self {
        Self { log: Log::default(), metrics: true, redact: SECRET_NAME_GLOBS.map(String::from).into() }
    }
}
