//! What an owner says about where state is kept, and for how long.
//!
//! In: a config or its JSON (times are milliseconds). Out: plain values with defaults, and what is wrong with them. `ttl`,
//! `session_isolation` and the two about cleaning hold everywhere; the others are for the managers they name.

use std::{path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// Where state is kept, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateManagerConfig {
    /// Which manager; the hub's store where nothing is said.
    pub manager_type: Option<ManagerType>,
    /// How long a state lives that is written without a time of its own; for ever where nothing is said.
    #[serde(with = "crate::millis::option")]
    pub ttl: Option<Duration>,
    /// Whether what has expired is removed from the store in the background. Nobody sees it in either case.
    pub auto_cleanup: bool,
    /// How often; at least a millisecond.
    #[serde(with = "crate::millis")]
    pub cleanup_interval: Duration,
    /// Where files are kept. For the persistent manager.
    pub persistence_path: PathBuf,
    /// How files are written. For the persistent manager.
    pub persistence_format: PersistenceFormat,
    /// Whether files are compressed. For the persistent manager.
    pub compression: bool,
    /// Which server. For the distributed manager.
    pub redis_url: Option<String>,
    /// How the names of all keys begin. For the distributed manager.
    pub redis_prefix: String,
    /// Which database of the server. For the distributed manager.
    pub redis_db: u32,
    /// Whether every thread has contexts of its own. When not, all threads of a tenant share one for each state; so do the
    /// tools, and what they wrote is committed just before the end of their call.
    pub session_isolation: bool,
    /// How many contexts a thread may have in a session; one more is refused as `state_limit`. For the session manager.
    pub max_states_per_session: usize,
    /// How long a thread's states and instances outlive the last use of one of its states. For the session manager.
    #[serde(with = "crate::millis")]
    pub session_timeout: Duration,
}

impl StateManagerConfig {
    /// The settings that ask for what nothing here can do yet. Taken silently, they would promise what does not happen.
    pub fn unsupported_settings(&self) -> Vec<&'static str> {
        let usual = Self::default();
        let asked = [
            (self.manager_type == Some(ManagerType::Distributed), "manager_type = distributed"),
            (self.redis_url.is_some(), "redis_url"),
            (self.redis_prefix != usual.redis_prefix, "redis_prefix"),
            (self.redis_db != usual.redis_db, "redis_db"),
        ];
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, field)| field).collect()
    }

    /// The settings that only a persistent manager heeds.
    pub fn disk_only_settings(&self) -> Vec<&'static str> {
        let usual = Self::default();
        let asked = [
            (self.persistence_path != usual.persistence_path, "persistence_path"),
            (self.persistence_format != usual.persistence_format, "persistence_format"),
            (self.compression, "compression = true"),
        ];
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, field)| field).collect()
    }

    /// What makes no sense: the field, and why.
    pub fn invalid_settings(&self) -> Vec<(&'static str, &'static str)> {
        let sessions = self.manager_type == Some(ManagerType::Session);
        let checks = [
            (
                self.ttl.is_some_and(|ttl| ttl.as_millis() == 0),
                ("ttl", "a state would expire before it is written; use at least a millisecond"),
            ),
            (
                self.cleanup_interval.as_millis() == 0,
                (
                    "cleanup_interval",
                    "the hub would do nothing but clean; use at least a millisecond, or `auto_cleanup = false`",
                ),
            ),
            (
                sessions && self.session_timeout.as_millis() == 0,
                ("session_timeout", "a session would be over before it is used; use at least a millisecond"),
            ),
            (
                sessions && self.max_states_per_session == 0,
                ("max_states_per_session", "no thread could keep anything; use at least 1"),
            ),
            (
                sessions && !self.session_isolation,
                (
                    "session_isolation",
                    "a session is of one thread, so states that all threads share belong to none; use another \
                     `manager_type`, or leave `session_isolation` on",
                ),
            ),
        ];
        checks.into_iter().filter(|(wrong, _)| *wrong).map(|(_, what)| what).collect()
    }
}

/// The managers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerType {
    /// Gone with the process.
    Memory,
    /// On disk.
    Persistent,
    /// Gone some time after the thread was used last.
    Session,
    /// On a server that several nodes share.
    Distributed,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum PersistenceFormat {
    /// One JSON file for each context.
    Json,
    /// One SQLite database.
    #[default]
    Sqlite,
}

/// A format that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Reading a pickle runs whatever its writer put in.
    #[error("`pickle` is not supported, because reading a pickle can run foreign code; use `json` or `sqlite`")]
    Pickle,
    /// Nobody knows it.
    #[error("there is no format `{0}`; use `json` or `sqlite`")]
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
        let said: StateManagerConfig = from_value(json!({"ttl": 500, "persistence_format": "json"})).unwrap();
        let ttl = Some(Duration::from_millis(500));
        let expected = StateManagerConfig { ttl, persistence_format: PersistenceFormat::Json, ..Default::default() };
        assert_eq!(said, expected);
        assert_eq!(from_value::<StateManagerConfig>(serde_json::to_value(&said).unwrap()).unwrap(), said);
    }

    #[test]
    fn pickle_is_refused_with_the_safe_formats() {
        let refused = from_value::<StateManagerConfig>(json!({"persistence_format": "pickle"})).unwrap_err();
        assert!(refused.to_string().contains("use `json` or `sqlite`"), "{refused}");
        assert!("yaml".parse::<PersistenceFormat>().is_err());
    }
}
