//! The section `[store]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{DurationOrNever, PositiveDuration, Size};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where records are stored, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Store {
    /// Storage backend.
    pub(crate) backend: Backend,
    /// Database file, for `sqlite`. Its folder is created if missing.
    pub(crate) path: String,
    /// Maximum size of the database file, or with backend = "memory" of journal, events, artifacts and threads; at least "1MiB". At
    /// 80 % of it the oldest ended calls are removed, with their events and artifacts; at 95 % writes wait for that; a database file
    /// that is full all the same refuses writes. Default: no limit; with backend = "memory" "256MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_size: Option<Size>,
    /// Retention of records.
    pub(crate) retention: Retention,
    /// Automatic backups.
    pub(crate) backup: Backup,
}

/// Storage backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backend {
    /// One database file; acknowledged writes survive the process.
    #[default]
    Sqlite,
    /// In memory; lost when the process ends.
    Memory,
}

/// Retention of records.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Retention {
    /// How long ended calls stay in the journal. Default with backend = "memory": "1h", because the journal grows with every
    /// call.
    pub(crate) calls: PositiveDuration,
    /// How long events can be replayed.
    pub(crate) events: PositiveDuration,
    /// How long the audit log of HTTP requests is kept. Default with backend = "memory": "1d".
    pub(crate) audit: PositiveDuration,
    /// How long an unused thread is kept, with its state. "never" keeps all threads.
    pub(crate) idle_threads: DurationOrNever,
}

/// Automatic backups.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Backup {
    /// Whether automatic backups are made. For `sqlite`.
    pub(crate) enabled: bool,
    /// Interval between backups, kept across restarts.
    pub(crate) interval: PositiveDuration,
    /// How long a backup is kept; the latest intact one is never removed.
    pub(crate) retention: PositiveDuration,
    /// Folder of the backups. Default: `backups` beside the database file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) folder: Option<String>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            backend: Backend::default(),
            path: ".toolhub/toolhub.db".into(),
            max_size: None,
            retention: Retention::default(),
            backup: Backup::default(),
        }
    }
}

impl Retention {
    /// Default retention of calls in memory. A month of calls could exhaust memory, and would be lost with the process anyway.
    pub(crate) const CALLS_IN_MEMORY: PositiveDuration = PositiveDuration(Duration::from_secs(3600));
    /// Default retention of the audit log in memory.
    pub(crate) const AUDIT_IN_MEMORY: PositiveDuration = PositiveDuration(DAY);
}

impl Default for Retention {
    fn default() -> Self {
        let (calls, events, audit) =
            (PositiveDuration(30 * DAY), PositiveDuration(7 * DAY), PositiveDuration(90 * DAY));
        Self { calls, events, audit, idle_threads: DurationOrNever(Some(14 * DAY)) }
    }
}

impl Default for Backup {
    fn default() -> Self {
        Self {
            enabled: false,
            interval: PositiveDuration(DAY / 24),
            retention: PositiveDuration(7 * DAY),
            folder: None,
        }
    }
}
