//! Names of the export formats of tools.
//!
//! In: a name from a command line or a query. Out: a [`Format`], or an error that lists the known names.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

/// An export format of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `tools` of Anthropic's Messages API.
    Anthropic,
    /// `tools` of OpenAI's Chat Completions API, which most other providers support too.
    OpenAi,
    /// `tools` of OpenAI's Responses API.
    OpenAiResponses,
    /// `functionDeclarations` of the Gemini API.
    Gemini,
    /// `tools` of an MCP `tools/list` result.
    Mcp,
}

/// A name that is not an export format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown export format `{name}`; use one of {}", Format::ALL.map(Format::as_str).join(", "))]
pub struct UnknownFormat {
    /// The given name.
    pub name: String,
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

crate::text_schema! { Format "an export format of tools" { "enum": Format::ALL.map(Format::as_str) } }

impl Format {
    /// All formats, in display order.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses, Self::Gemini, Self::Mcp];

    /// The name used in config, API and command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Mcp => "mcp",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.as_str() == name)
            .ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_own_word() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        assert_eq!(
            "claude".parse::<Format>().unwrap_err().to_string(),
            "unknown export format `claude`; use one of anthropic, openai, openai-responses, gemini, mcp"
        );
    }
}
