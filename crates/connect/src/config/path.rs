//! The path of a value in a config: table keys and list indices.
//!
//! In: one segment after the other. Out: a path that can be compared and printed: `retry.attempts`, `rate_limit[1].per`.

use std::fmt;

/// The path of a value in a config: table keys and list indices. Displays as `a.b[1].c`.
///
/// ```
/// use toolhub_connect::config::KeyPath;
///
/// assert_eq!(KeyPath::of(["rate_limit"]).index(1).key("per").to_string(), "rate_limit[1].per");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(pub Vec<KeySegment>);

/// One segment of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySegment {
    /// A key of a table.
    Key(String),
    /// An index of a list, from 0.
    Index(usize),
}

impl KeyPath {
    /// The path with these keys.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|key| KeySegment::Key(key.into())).collect())
    }

    /// Appends a key.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.join([KeySegment::Key(key.into())])
    }

    /// Appends a list index.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.join([KeySegment::Index(index)])
    }

    /// Appends several segments.
    #[must_use]
    pub fn join(&self, segments: impl IntoIterator<Item = KeySegment>) -> Self {
        Self(self.0.iter().cloned().chain(segments).collect())
    }

    /// The last key; empty if there is none.
    #[must_use]
    pub fn last_key(&self) -> &str {
        let keys = self.0.iter().rev().filter_map(|segment| match segment {
            KeySegment::Key(key) => Some(key.as_str()),
            KeySegment::Index(_) => None,
        });
        keys.into_iter().next().unwrap_or_default()
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                KeySegment::Key(key) => {
                    let dot = if position == 0 { "" } else { "." };
                    let plain =
                        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                    if plain { write!(f, "{dot}{key}")? } else { write!(f, "{dot}{key:?}")? }
                }
                KeySegment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
