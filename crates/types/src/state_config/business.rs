//! Settings of business state: history, versions, size limits, write-behind, backups and conflict resolution.
//!
//! In: a config or its JSON (times are milliseconds). Out: plain values with defaults. Each field documents its effect, and whether only
//! stores on disk support it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of business state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BusinessStateConfig {
    /// Maximum number of history entries per context. 0 disables the history.
    pub max_history_size: usize,
    /// Maximum size of a state as JSON text, in bytes. A larger one is refused as `state_too_large`.
    pub max_state_size: usize,
    /// Whether states are compressed. Stores on disk only.
    pub state_compression: bool,
    /// Whether snapshots of earlier versions are kept. Version numbers are assigned in any case.
    pub versioning: bool,
    /// Maximum number of snapshots, including the current version.
    pub max_versions: usize,
    /// Whether the changes of a tool are committed when its call succeeds. If not, only an explicit `State::save` commits.
    /// The operations of the manager always commit, and a JSON tool that returns a state has saved it.
    pub auto_save: bool,
    /// The flush interval of write-behind. Stores on disk only.
    #[serde(with = "crate::millis")]
    pub sync_interval: Duration,
    /// Whether a change is written before it is acknowledged; `false` means write-behind. Stores on disk only; in memory every change
    /// is written first.
    pub sync_on_change: bool,
    /// How a write conflict is resolved, unless the tool overrides it (`on_conflict`). Default: `set` and `update` retry until they have
    /// written, and the commit of a tool is rejected.
    pub conflict_resolution: Option<ConflictResolution>,
    /// Whether backups are made. Stores on disk only.
    pub backup_enabled: bool,
    /// The interval between backups. Stores on disk only.
    #[serde(with = "crate::millis")]
    pub backup_interval: Duration,
    /// How long a backup is retained. Stores on disk only.
    #[serde(with = "crate::millis")]
    pub backup_retention: Duration,
}

/// What happens to a write when the state was changed in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictResolution {
    /// Overwrite the current state.
    LastWriteWins,
    /// Write nothing and report the conflict. A tool has run nevertheless: its call ends as `state_conflict` and keeps the result.
    Reject,
    /// Apply the change again to the current state: the closures of a tool that changed its state only with `State::update`, or the
    /// whole tool if it is `rerunnable`; any other commit is rejected. For `set` and `update` this is the same as
    /// `last_write_wins`.
    Retry,
    /// Merge both changes with `ToolState::merge`; without a type, member by member. Changes that cannot be merged are
    /// rejected. A patch is applied to the current state, so for `set` and `update` this is the same as `last_write_wins`.
    Merge,
}

impl BusinessStateConfig {
    /// The non-default settings that only a persistent manager supports.
    pub fn disk_only_settings(&self) -> Vec<&'static str> {
        let defaults = Self::default();
        let settings = [
            (self.state_compression, "state_compression = true"),
            (!self.sync_on_change, "sync_on_change = false"),
            (self.sync_interval != defaults.sync_interval, "sync_interval"),
            (self.backup_enabled, "backup_enabled = true"),
            (self.backup_interval != defaults.backup_interval, "backup_interval"),
            (self.backup_retention != defaults.backup_retention, "backup_retention"),
        ];
        settings.into_iter().filter(|(is_set, _)| *is_set).map(|(_, field)| field).collect()
    }

    /// The invalid settings, each with the reason.
    pub fn invalid_settings(&self) -> Vec<(&'static str, &'static str)> {
        let checks = [
            (
                !self.sync_on_change && self.sync_interval.as_millis() == 0,
                (
                    "sync_interval",
                    "states would be flushed without pause; use at least a millisecond, or `sync_on_change`",
                ),
            ),
            (
                self.backup_enabled && self.backup_interval.as_millis() == 0,
                ("backup_interval", "backups would run without pause; use at least a millisecond"),
            ),
        ];
        checks.into_iter().filter(|(is_invalid, _)| *is_invalid).map(|(_, problem)| problem).collect()
    }
}

impl Default for BusinessStateConfig {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        Self {
            max_history_size: 1000,
            max_state_size: 1024 * 1024,
            state_compression: false,
            versioning: true,
            max_versions: 10,
            auto_save: true,
            sync_interval: Duration::from_secs(60),
            sync_on_change: true,
            conflict_resolution: None,
            backup_enabled: false,
            backup_interval: HOUR,
            backup_retention: 7 * 24 * HOUR,
        }
    }
}
