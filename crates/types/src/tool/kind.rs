//! The kinds of tools; each kind has one executor.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// The kind of a tool, which selects its executor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "SmolStr", into = "SmolStr")]
pub enum Kind {
    /// A function without state.
    Stateless,
    /// A function with managed state, or an instance that lives in a thread.
    Stateful,
    /// An HTTP request.
    Rest,
    /// A tool of an MCP server.
    Mcp,
    /// A custom kind, run by the executor registered under this name.
    Other(SmolStr),
}

crate::text_schema! { Kind "the kind of a tool: `stateless`, `stateful`, `rest`, `mcp`, or the name of a custom executor" {} }

impl Kind {
    /// The name used in config, API and logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stateless => "stateless",
            Self::Stateful => "stateful",
            Self::Rest => "rest",
            Self::Mcp => "mcp",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<&str> for Kind {
    fn from(name: &str) -> Self {
        match name {
            "stateless" => Self::Stateless,
            "stateful" => Self::Stateful,
            "rest" => Self::Rest,
            "mcp" => Self::Mcp,
            other => Self::Other(other.into()),
        }
    }
}

impl From<SmolStr> for Kind {
    fn from(name: SmolStr) -> Self {
        Self::from(name.as_str())
    }
}

impl From<Kind> for SmolStr {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Other(name) => name,
            known => SmolStr::new(known.as_str()),
        }
    }
}
