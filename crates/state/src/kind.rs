//! The kinds of state, and their names.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub_types::ids::IdError;

/// The kinds of state a context may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// State of a live connection. In memory on this node only, and lost when it stops.
    Connection,
    /// When the context was created and used.
    Session,
    /// The tool's own data. The only kind with snapshots and a history.
    Business,
    /// Data the tool can recompute. It must have a time to live, and its versions are not counted.
    Cache,
}

impl StateKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Connection, Self::Session, Self::Business, Self::Cache];
    /// The kinds that are kept in the store, in the order of their row ids.
    pub(crate) const STORED: [Self; 3] = [Self::Business, Self::Cache, Self::Session];

    /// The name in ids and responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Session => "session",
            Self::Business => "business",
            Self::Cache => "cache",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for StateKind {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let invalid = || IdError::new("kind of state", "it is `connection`, `session`, `business` or `cache`", text);
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(invalid)
    }
}
