//! What an owner says about business state: how much is kept, and who wins.
//!
//! In: a config or its JSON (times are milliseconds). Out: plain values with defaults. What each one does is said on its
//! field, also where only a store on disk can do it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What holds for what tools remember.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BusinessStateConfig {
    /// How many entries of a context's history are kept. 0 for none.
    pub max_history_size: usize,
    /// How large a state may be, as JSON text. What is larger is refused as `state_too_large`.
    pub max_state_size: usize,
    /// Whether states are compressed. For stores on disk; in memory nothing is.
    pub state_compression: bool,
    /// Whether snapshots of earlier versions are kept. Versions are counted in any case.
    pub versioning: bool,
    /// How many snapshots are kept, the present version among them.
    pub max_versions: usize,
    /// Whether what a tool changed is committed when its call succeeds. When not, only what it saved on purpose is
    /// (`State::save`). The operations of the manager always commit, and a JSON tool that answers with a state has saved it.
    pub auto_save: bool,
    /// How often states are written when they are not written at once. For stores on disk.
    #[serde(with = "crate::millis")]
    pub sync_interval: Duration,
    /// Whether a change is written before it is acknowledged. For stores on disk; in memory it always is.
    pub sync_on_change: bool,
    /// What happens when two write at the same time, unless the tool says otherwise (`on_conflict`). Where nothing is said,
    /// `set` and `update` go on until they have written, and what a tool wrote is rejected.
    pub conflict_resolution: Option<ConflictResolution>,
    /// Whether backups are made. For stores on disk.
    pub backup_enabled: bool,
    /// How often. For stores on disk.
    #[serde(with = "crate::millis")]
    pub backup_interval: Duration,
    /// How long a backup is kept. For stores on disk.
    #[serde(with = "crate::millis")]
    pub backup_retention: Duration,
}

/// What happens when somebody else wrote in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictResolution {
    /// Write all the same, over what is there now.
    LastWriteWins,
    /// Write nothing and say so. A tool has run all the same: its call is a `state_conflict` and keeps the result.
    Reject,
    /// Do it again with what is there now: the closures of a tool that changed its state with `State::update` alone, or the
    /// whole tool if it is `rerunnable`; any other is rejected. For `set` and `update` this is the same as
    /// `last_write_wins`.
    Retry,
    /// Put both changes together, as `ToolState::merge` says; without a type, member by member. What does not go together is
    /// rejected. A patch is laid over what is there now, so for `set` and `update` this is the same as `last_write_wins`.
    Merge,
}

impl BusinessStateConfig {
    /// The settings that only a persistent manager heeds.
    pub fn disk_only_settings(&self) -> Vec<&'static str> {
        let usual = Self::default();
        let asked = [
            (self.state_compression, "state_compression = true"),
            (!self.sync_on_change, "sync_on_change = false"),
            (self.sync_interval != usual.sync_interval, "sync_interval"),
            (self.backup_enabled, "backup_enabled = true"),
            (self.backup_interval != usual.backup_interval, "backup_interval"),
            (self.backup_retention != usual.backup_retention, "backup_retention"),
        ];
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, field)| field).collect()
    }

    /// What makes no sense: the field, and why.
    pub fn invalid_settings(&self) -> Vec<(&'static str, &'static str)> {
        let checks = [
            (
                !self.sync_on_change && self.sync_interval.as_millis() == 0,
                (
                    "sync_interval",
                    "states would be written all the time; use at least a millisecond, or `sync_on_change`",
                ),
            ),
            (
                self.backup_enabled && self.backup_interval.as_millis() == 0,
                ("backup_interval", "the store would do nothing but copy itself; use at least a millisecond"),
            ),
        ];
        checks.into_iter().filter(|(wrong, _)| *wrong).map(|(_, what)| what).collect()
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
