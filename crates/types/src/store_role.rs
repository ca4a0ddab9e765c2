//! What a store holds, so that a backup of one store is not restored over another.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a store holds. Every backup names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreRole {
    /// All records of a hub: calls, approvals, threads and, by default, states.
    #[default]
    Hub,
    /// The states of a persistent state manager.
    State,
}

impl fmt::Display for StoreRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hub => "the hub's store",
            Self::State => "a state manager's store",
        })
    }
}
