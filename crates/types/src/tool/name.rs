//! Tool names, and how the name of an imported tool is derived.
//!
//! In: text. Out: a name that every model provider accepts (letters, digits, `_`, `-`; at most 64 characters), or an error.

use std::{borrow::Borrow, fmt, ops::Deref};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::digest;

const MAX_LENGTH: usize = 64;

/// The name of a tool: `^[A-Za-z0-9_-]{1,64}$`, the strictest rule among model providers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ToolName(SmolStr);

crate::text_schema! { ToolName "the name of a tool" { "pattern": "^[A-Za-z0-9_-]{1,64}$" } }

/// Why a text is not a tool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("{}", self.describe("tool name"))]
    Empty,
    /// More than 64 characters.
    #[error("{}", self.describe("tool name"))]
    TooLong(SmolStr),
    /// A character outside the allowed set.
    #[error("{}", self.describe("tool name"))]
    InvalidCharacter {
        /// The refused name.
        name: SmolStr,
        /// The first character that is not allowed.
        found: char,
    },
}

impl NameError {
    /// The reason, for what else must be a name of this form, such as a "server name".
    #[must_use]
    pub fn describe(&self, what: &str) -> String {
        match self {
            Self::Empty => format!("a {what} cannot be empty"),
            Self::TooLong(name) => format!("the {what} `{name}` is longer than {MAX_LENGTH} characters"),
            Self::InvalidCharacter { name, found } => {
                format!("the {what} `{name}` contains {found:?}; use only letters, digits, `_` and `-`")
            }
        }
    }
}

impl ToolName {
    /// Checks a name.
    ///
    /// # Errors
    /// When it is empty, too long, or has a character that a provider would reject.
    pub fn new(text: impl Into<SmolStr>) -> Result<Self, NameError> {
        let text = text.into();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(found) = text.chars().find(|c| !is_allowed_char(*c)) {
            return Err(NameError::InvalidCharacter { name: text, found });
        }
        if text.len() > MAX_LENGTH {
            return Err(NameError::TooLong(text));
        }
        Ok(Self(text))
    }

    /// The name of an imported tool: `server__tool`, or just `tool` if the source is empty.
    ///
    /// Invalid characters are replaced by `_` and a long name is truncated; then a hash of the original is appended,
    /// so that the same origin always gets the same name. Two origins may still collide; the registry refuses the second.
    #[must_use]
    pub fn imported(source: &str, original: &str) -> Self {
        let joined = if source.is_empty() { original.to_owned() } else { format!("{source}__{original}") };
        if let Ok(name) = Self::new(joined.as_str()) {
            return name;
        }
        let suffix = format!("_{}", &digest::sha256_hex([joined.as_bytes()])[..6]);
        let mut clean: String = joined.chars().map(|c| if is_allowed_char(c) { c } else { '_' }).collect();
        clean.truncate(MAX_LENGTH - suffix.len());
        Self(SmolStr::from(clean + &suffix))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_allowed_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

impl Deref for ToolName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<SmolStr> for ToolName {
    type Error = NameError;
    fn try_from(text: SmolStr) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl From<ToolName> for SmolStr {
    fn from(name: ToolName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, original: &str, expected: &str) {
        let name = ToolName::imported(source, original);
        assert!(ToolName::new(name.as_str()).is_ok(), "{name} is not a legal name");
        assert!(name.starts_with(expected), "{name} does not start with {expected}");
    }

    #[test]
    fn legal_foreign_names_stay_and_others_are_cut_with_a_stable_suffix() {
        check("fs", "read_file", "fs__read_file");
        check("fs", "read/file", "fs__read_file_");
        check("docs", &"very_long_".repeat(9), "docs__very_long_");
        check("weather", "天气", "weather____");
        check("", "read_file", "read_file");
        check("", "", "_");
        assert_eq!(ToolName::imported("fs", "a/b"), ToolName::imported("fs", "a/b"));
        assert_ne!(ToolName::imported("fs", "a/b"), ToolName::imported("fs", "a.b"));
    }

    #[test]
    fn a_refused_name_says_what_is_wrong_with_it() {
        assert_eq!(ToolName::new(""), Err(NameError::Empty));
        assert_eq!(
            ToolName::new("get weather").unwrap_err().to_string(),
            "the tool name `get weather` contains ' '; use only letters, digits, `_` and `-`"
        );
        assert!(matches!(ToolName::new("x".repeat(65)), Err(NameError::TooLong(_))));
        assert!(ToolName::new("x".repeat(64)).is_ok());
    }
}
