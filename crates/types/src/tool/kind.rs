//! The kinds of tools: who runs them.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Who runs a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "SmolStr", into = "SmolStr")]
pub enum Kind {
    /// A function that remembers nothing.
    Stateless,
    /// A function with state kept for it, or an instance that lives in a thread.
    Stateful,
    /// An HTTP request.
    Rest,
    /// A tool of an MCP server.
    Mcp,
    /// A kind added from outside, run by the executor registered under this word.
    Other(SmolStr),
}

crate::text_schema! { Kind "who runs a tool: `stateless`, `stateful`, `rest`, `mcp`, or a word of an executor of your own" {} }

impl Kind {
    /// The word used in config, API and logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stateless => "stateless",
            Self::Stateful => "stateful",
            Self::Rest => "rest",
            Self::Mcp => "mcp",
            Self::Other(word) => word,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<&str> for Kind {
    fn from(word: &str) -> Self {
        match word {
            "stateless" => Self::Stateless,
            "stateful" => Self::Stateful,
            "rest" => Self::Rest,
            "mcp" => Self::Mcp,
            other => Self::Other(other.into()),
        }
    }
}

impl From<SmolStr> for Kind {
    fn from(word: SmolStr) -> Self {
        Self::from(word.as_str())
    }
}

impl From<Kind> for SmolStr {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Other(word) => word,
            known => SmolStr::new(known.as_str()),
        }
    }
}
