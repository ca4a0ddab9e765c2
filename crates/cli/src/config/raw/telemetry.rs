//! The section `[telemetry]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logs, metrics, and what is hidden in them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Telemetry {
    /// The log, on standard error.
    pub(crate) log: Log,
    /// Whether `/metrics` answers.
    pub(crate) metrics: bool,
    /// Whatever has a name that fits one of these globs is hidden in logs and in `config show`; capitals do not count.
    pub(crate) redact: Vec<String>,
}

/// The log, on standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Log {
    /// How a line looks.
    pub(crate) format: LogFormat,
    /// What is worth a line.
    pub(crate) level: Level,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people on a terminal, for programs elsewhere.
    #[default]
    Auto,
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What went wrong.
    Error,
    /// What may go wrong, too.
    Warn,
    /// What happens, too.
    #[default]
    Info,
    /// How it happens, too.
    Debug,
    /// Everything.
    Trace,
}

/// Names that are secret wherever they stand.
pub(crate) const SECRET_NAME_GLOBS: [&str; 5] = ["authorization", "api_key", "*token*", "*secret*", "*password*"];

impl Default for Telemetry {
    fn default() -> Self {
        Self { log: Log::default(), metrics: true, redact: SECRET_NAME_GLOBS.map(String::from).into() }
    }
}
