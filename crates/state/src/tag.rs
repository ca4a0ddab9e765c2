//! `StateTag`: identifies one write of a state.
//!
//! In: the version of the state's row. Out: a short text that can be compared and parsed back. Unlike the version number, a tag
//! never returns: a state that was deleted and created again has other tags.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub_storage::backend::RowVersion;
use toolhub_types::ids::IdError;

/// Identifies one write of a state, also when the state is deleted and created again. Its text is the version and a random
/// part: `3-9c1f5b0a2d7e4411`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct StateTag {
    version: u64,
    stamp: u64,
}

impl StateTag {
    /// The version that was written.
    #[must_use]
    pub fn version(self) -> u64 {
        self.version
    }
}

impl From<RowVersion> for StateTag {
    fn from(RowVersion { number, stamp }: RowVersion) -> Self {
        Self { version: number, stamp }
    }
}

impl fmt::Display for StateTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.version, self.stamp)
    }
}

impl FromStr for StateTag {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parse = || {
            let (version, stamp) = text.split_once('-')?;
            Some(Self { version: version.parse().ok()?, stamp: u64::from_str_radix(stamp, 16).ok()? })
        };
        // Each tag has exactly one spelling.
        let tag = parse().filter(|tag| tag.to_string() == text);
        tag.ok_or_else(|| {
            IdError::new("tag of a state", "it is the `ETag` that the state was read or written with", text)
        })
    }
}

impl TryFrom<String> for StateTag {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<StateTag> for String {
    fn from(tag: StateTag) -> Self {
        tag.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_from_its_own_text_and_from_nothing_else() {
        let tag = StateTag::from(RowVersion { number: 3, stamp: 0xab });
        assert_eq!((tag.to_string().as_str(), tag.to_string().parse()), ("3-00000000000000ab", Ok(tag)));
        for other in ["", "3", "3-", "3-ab", "03-00000000000000ab", "3-00000000000000AB", "+3-00000000000000ab", "-"] {
            assert!(other.parse::<StateTag>().is_err(), "{other}");
        }
    }
}
