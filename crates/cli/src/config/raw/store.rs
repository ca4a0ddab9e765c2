//! The section `[store]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{DurationOrNever, Size, Time};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where records are kept, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Store {
    /// What keeps the records.
    pub(crate) backend: Backend,
    /// The file of the store, for `sqlite`. Its folder is made where it is missing.
    pub(crate) path: String,
    /// How large the file may become; as large as the disk allows where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_size: Option<Size>,
    /// How long records are kept.
    pub(crate) retention: Retention,
    /// Copies of the store that it makes by itself.
    pub(crate) backup: Backup,
}

/// What keeps the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backend {
    /// One file; what was acknowledged outlives the process.
    #[default]
    Sqlite,
    /// Gone with the process.
    Memory,
}

/// How long records are kept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Retention {
    /// How long ended calls stay in the journal. With backend = "memory" it is "1h" where nothing is said: the journal takes
    /// memory with every call.
    pub(crate) calls: Time,
    /// How long events can be heard later.
    pub(crate) events: Time,
    /// How long it is kept who did what over HTTP, and who was not let. With backend = "memory" it is "1d" where nothing is said.
    pub(crate) audit: Time,
    /// How long a thread is kept that nobody uses; with it goes what tools remember in it. "never" keeps all.
    pub(crate) idle_threads: DurationOrNever,
}

/// Copies of the store that it makes by itself.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Backup {
    /// Whether the store makes backups. For `sqlite`.
    pub(crate) enabled: bool,
    /// The time from one to the next, also over restarts.
    pub(crate) interval: Time,
    /// How old one becomes before it is removed; the latest that is sound stays.
    pub(crate) retention: Time,
    /// Where they are laid; `backups` beside the store's file where nothing is said.
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
    /// How long calls are kept in memory. A month of them would take all of it, and is gone with the process.
    pub(crate) const CALLS_IN_MEMORY: Time = Time(Duration::from_secs(3600));
    /// The same for the audit.
    pub(crate) const AUDIT_IN_MEMORY: Time = Time(DAY);
}

impl Default for Retention {
    fn default() -> Self {
        let (calls, events, audit) = (Time(30 * DAY), Time(7 * DAY), Time(90 * DAY));
        Self { calls, events, audit, idle_threads: DurationOrNever(Some(14 * DAY)) }
    }
}

impl Default for Backup {
    fn default() -> Self {
        Self { enabled: false, interval: Time(DAY / 24), retention: Time(7 * DAY), folder: None }
    }
}
