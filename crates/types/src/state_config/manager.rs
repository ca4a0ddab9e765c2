//! Settings of a state manager: where state is stored, and for how long.
//!
//! In: a config or its JSON (times are milliseconds). Out: plain values with defaults, and the invalid ones among them. `ttl`,
//! `session_isolation` and the two cleanup settings apply to every manager; the others to the manager they name.

use std::{path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// Settings of a state manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateManagerConfig {
    /// The manager. Default: the hub's store.
    pub manager_type: Option<ManagerType>,
    /// Default TTL of a state written without one. Default: states do not expire.
    #[serde(with = "crate::millis::option")]
    pub ttl: Option<Duration>,
    /// Whether a background task removes expired states from the store. Readers never see an expired state in either case.
    pub auto_cleanup: bool,
    /// The interval of that task; at least a millisecond.
    #[serde(with = "crate::millis")]
    pub cleanup_interval: Duration,
    /// The directory of the files. Persistent manager only.
    pub persistence_path: PathBuf,
    /// The format of the files. Persistent manager only.
    pub persistence_format: PersistenceFormat,
    /// Whether the files are compressed. Persistent manager only.
    pub compression: bool,
    /// The URL of the server. Distributed manager only.
    pub redis_url: Option<String>,
    /// The prefix of all keys. Distributed manager only.
    pub redis_prefix: String,
    /// The database number on the server. Distributed manager only.
    pub redis_db: u32,
    /// Whether every thread has its own contexts. If not, all threads of a tenant share one context per state, tools included; a tool's
    /// changes are then committed just before its call ends.
    pub session_isolation: bool,
    /// Maximum number of contexts per thread and session; one more is refused as `state_limit`. Session manager only.
    pub max_states_per_session: usize,
    /// How long a thread's states and instances outlive the last use of one of its states. Session manager only.
    #[serde(with = "crate::millis")]
    pub session_timeout: Duration,
}

impl StateManagerConfig {
    /// The non-default settings that only a distributed manager supports.
    pub fn redis_only_settings(&self) -> Vec<&'static str> {
        let defaults = Self::default();
        let settings = [
            (self.redis_url.is_some(), "redis_url"),
            (self.redis_prefix != defaults.redis_prefix, "redis_prefix"),
            (self.redis_db != defaults.redis_db, "redis_db"),
        ];
        settings.into_iter().filter(|(is_set, _)| *is_set).map(|(_, field)| field).collect()
    }

    /// The non-default settings that only a persistent manager supports.
    pub fn disk_only_settings(&self) -> Vec<&'static str> {
        let defaults = Self::default();
        let settings = [
            (self.persistence_path != defaults.persistence_path, "persistence_path"),
            (self.persistence_format != defaults.persistence_format, "persistence_format"),
            (self.compression, "compression = true"),
        ];
        settings.into_iter().filter(|(is_set, _)| *is_set).map(|(_, field)| field).collect()
    }

    /// The invalid settings, each with the reason.
    pub fn invalid_settings(&self) -> Vec<(&'static str, &'static str)> {
        let is_session = self.manager_type == Some(ManagerType::Session);
        let checks = [
            (
                self.ttl.is_some_and(|ttl| ttl.as_millis() == 0),
                ("ttl", "a state would expire before it is written; use at least a millisecond"),
            ),
            (
                self.cleanup_interval.as_millis() == 0,
                (
                    "cleanup_interval",
                    "cleanup would run without pause; use at least a millisecond, or `auto_cleanup = false`",
                ),
            ),
            (
                self.manager_type == Some(ManagerType::Distributed) && self.redis_url.is_none(),
                ("redis_url", "a distributed manager needs the URL of its server, such as `redis://localhost:6379`"),
            ),
            (
                is_session && self.session_timeout.as_millis() == 0,
                ("session_timeout", "a session would expire before its first use; use at least a millisecond"),
            ),
            (
                is_session && self.max_states_per_session == 0,
                ("max_states_per_session", "no thread could store any state; use at least 1"),
            ),
            (
                is_session && !self.session_isolation,
                (
                    "session_isolation",
                    "a session belongs to one thread, so it cannot hold states that all threads share; use another \
                     `manager_type`, or leave `session_isolation` on",
                ),
            ),
        ];
        checks.into_iter().filter(|(is_invalid, _)| *is_invalid).map(|(_, problem)| problem).collect()
    }
}

/// The types of state managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerType {
    /// In memory; lost when the process ends.
    Memory,
    /// On disk.
    Persistent,
    /// Expires some time after the last use of the thread.
    Session,
    /// On a server that several nodes share.
    Distributed,
}

/// The file format of the persistent manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum PersistenceFormat {
    /// One JSON file for each context.
    Json,
    /// One SQLite database.
    #[default]
    Sqlite,
}

/// Why a format is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Loading a pickle can execute arbitrary code.
    #[error("`pickle` is not supported, because reading a pickle can run foreign code; use `json` or `sqlite`")]
    Pickle,
    /// The format does not exist.
    #[error("unknown format `{0}`; use `json` or `sqlite`")]
    Unknown(String),
}

impl FromStr for PersistenceFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "json" => Ok(Self::Json),
            "sqlite" => Ok(Self::Sqlite),
            "pickle" => Err(FormatError::Pickle),
            other => Err(FormatError::Unknown(other.chars().take(64).collect())),
        }
    }
}

impl TryFrom<String> for PersistenceFormat {
    type Error = FormatError;
    fn try_from(text: String) -> Result<Self, FormatError> {
        text.parse()
    }
}

impl From<PersistenceFormat> for &'static str {
    fn from(format: PersistenceFormat) -> Self {
        match format {
            PersistenceFormat::Json => "json",
            PersistenceFormat::Sqlite => "sqlite",
        }
    }
}

impl Default for StateManagerConfig {
    fn default() -> Self {
        Self {
            manager_type: None,
            ttl: None,
            auto_cleanup: true,
            cleanup_interval: Duration::from_secs(300),
            persistence_path: "./state_storage".into(),
            persistence_format: PersistenceFormat::default(),
            compression: false,
            redis_url: None,
            redis_prefix: "tool_state".into(),
            redis_db: 0,
            session_isolation: true,
            max_states_per_session: 10,
            session_timeout: Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_config_may_say_a_little_and_the_rest_is_as_by_default() {
        let config: StateManagerConfig = from_value(json!({"ttl": 500, "persistence_format": "json"})).unwrap();
        let ttl = Some(Duration::from_millis(500));
        let expected = StateManagerConfig { ttl, persistence_format: PersistenceFormat::Json, ..Default::default() };
        assert_eq!(config, expected);
        assert_eq!(from_value::<StateManagerConfig>(serde_json::to_value(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn pickle_is_refused_with_the_safe_formats() {
        let refused = from_value::<StateManagerConfig>(json!({"persistence_format": "pickle"})).unwrap_err();
        assert!(refused.to_string().contains("use `json` or `sqlite`"), "{refused}");
        assert!("yaml".parse::<PersistenceFormat>().is_err());
    }
}
