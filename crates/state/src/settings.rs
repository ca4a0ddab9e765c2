//! Per-tool settings of state handling, declared by the tool's author.
//!
//! In: calls of the tool builder. Out: plain values that the pipeline stages read.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use toolhub_types::{
    ids::StateName,
    state_config::{ConflictResolution, ManagerType},
};

/// When the state of a tool is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateCleanup {
    /// Never, not even when its thread ends.
    Never,
    /// When the call that created it ends.
    AfterCall,
    /// When its thread ends.
    #[default]
    ThreadEnd,
}

/// The state settings of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateSettings {
    /// The names of the states it checks out, without duplicates.
    pub names: Vec<StateName>,
    /// When they are deleted.
    pub cleanup: StateCleanup,
    /// The manager of these states; the default is the manager of the hub.
    pub manager: Option<ManagerType>,
    /// How a conflict with a concurrent write is resolved; the default is the setting of the hub.
    pub on_conflict: Option<ConflictResolution>,
    /// Whether its changes are committed without an explicit save; the default is the setting of the hub.
    pub auto_save: Option<bool>,
    /// The limits of these states.
    pub limits: StateLimits,
    /// Whether the tool may be rerun with the current state after a conflict.
    pub rerunnable: bool,
    /// Whether the tool takes its state as JSON.
    pub json: bool,
    /// The argument in which a JSON tool receives its state.
    pub parameter: Option<SmolStr>,
}

/// Limits of a state; those that are not set are the hub's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateLimits {
    /// How long the state lives after each write.
    pub ttl: Option<Duration>,
    /// Maximum size of the state as JSON text, in bytes.
    pub max_state_size: Option<usize>,
    /// Maximum number of snapshots, including the current version.
    pub max_versions: Option<usize>,
    /// Maximum number of history entries.
    pub max_history_size: Option<usize>,
}

/// The settings of one state, which all tools that use it share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedStateSettings {
    /// The manager of the state.
    pub manager: Option<ManagerType>,
    /// Its limits.
    pub limits: StateLimits,
}

impl SharedStateSettings {
    /// Adds the settings of one of the tools; or returns the name of a setting that another tool sets differently.
    ///
    /// # Errors
    /// The name of that setting.
    pub fn add(&mut self, tool: &StateSettings) -> Result<(), &'static str> {
        fn combine<T: Copy + PartialEq>(
            all: &mut Option<T>,
            own: Option<T>,
            name: &'static str,
        ) -> Result<(), &'static str> {
            if all.is_some() && own.is_some() && *all != own {
                return Err(name);
            }
            *all = all.or(own);
            Ok(())
        }
        let (all, own) = (&mut self.limits, &tool.limits);
        combine(&mut self.manager, tool.manager, "manager_type")?;
        combine(&mut all.ttl, own.ttl, "ttl")?;
        combine(&mut all.max_state_size, own.max_state_size, "max_state_size")?;
        combine(&mut all.max_versions, own.max_versions, "max_versions")?;
        combine(&mut all.max_history_size, own.max_history_size, "max_history_size")
    }
}
