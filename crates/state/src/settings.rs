//! Per-tool settings of state handling, declared by the tool's author.
//!
//! In: calls of the tool builder. Out: plain values that the pipeline stages read.

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
    /// Whether the tool may be rerun with the current state after a conflict.
    pub rerunnable: bool,
    /// Whether the tool takes its state as JSON.
    pub json: bool,
    /// The argument in which a JSON tool receives its state.
    pub parameter: Option<SmolStr>,
}
