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
    /// Globs over further names whose values are redacted in logs, `config show`, call records, approvals, events and the state
    /// history; case is ignored. Always redacted are names that contain `authorization`, `apikey`, `accesskey`, `privatekey`,
    /// `token`, `secret`, `password`, `passwd`, `passphrase`, `credential` or `cookie`, also with `_`, `-` or `.` between.
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

impl Default for Telemetry {
    fn default() -> Self {
        Self { log: Log::default(), metrics: true, redact: Vec::new() }
    }
}
