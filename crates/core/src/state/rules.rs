//! What a tool's author says about the state of the tool.
//!
//! In: words of the builder. Out: plain values that the doors look at.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use toolhub_types::{
    ids::StateName,
    state_config::{ConflictResolution, ManagerType},
};

/// When what a tool remembers is thrown away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateCleanup {
    /// Not even with its thread.
    Never,
    /// As soon as the call that made it has ended.
    AfterCall,
    /// With its thread.
    #[default]
    ThreadEnd,
}

/// What holds for the states of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StateRules {
    /// The states it takes out, by name, each once.
    pub(crate) names: Vec<StateName>,
    pub(crate) cleanup: StateCleanup,
    /// Who keeps them; whoever keeps the hub's states where no tool that shares one says anything.
    pub(crate) manager: Option<ManagerType>,
    /// What happens when somebody else wrote in the meantime; as the hub's owner says where nothing is said.
    pub(crate) on_conflict: Option<ConflictResolution>,
    /// It may be run once more with what is there now.
    pub(crate) rerunnable: bool,
    /// It is a JSON tool.
    pub(crate) json: bool,
    /// The argument a JSON tool finds its state in.
    pub(crate) parameter: Option<SmolStr>,
}
