//! The way to a value in a config: keys, and places in lists.
//!
//! In: one step after the other. Out: a way that can be compared and that people can read: `retry.attempts`, `rate_limit[1].per`.

use std::fmt;

/// The way to a value: keys, and places in lists. It prints as people write it.
///
/// ```
/// use toolhub_connect::config::KeyPath;
///
/// assert_eq!(KeyPath::of(["rate_limit"]).place(1).key("per").to_string(), "rate_limit[1].per");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(pub Vec<KeySegment>);

/// One step of a way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySegment {
    /// To a key of a table.
    Key(String),
    /// To a place in a list, counted from 0.
    Index(usize),
}

impl KeyPath {
    /// The way over these keys.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|key| KeySegment::Key(key.into())).collect())
    }

    /// One key further.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.join([KeySegment::Key(key.into())])
    }

    /// Into a list.
    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        self.join([KeySegment::Index(at)])
    }

    /// Several steps further.
    #[must_use]
    pub fn join(&self, steps: impl IntoIterator<Item = KeySegment>) -> Self {
        Self(self.0.iter().cloned().chain(steps).collect())
    }

    /// The last key; empty where there is none.
    #[must_use]
    pub fn last_key(&self) -> &str {
        let keys = self.0.iter().rev().filter_map(|step| match step {
            KeySegment::Key(key) => Some(key.as_str()),
            KeySegment::Index(_) => None,
        });
        keys.into_iter().next().unwrap_or_default()
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                KeySegment::Key(key) => {
                    let dot = if at == 0 { "" } else { "." };
                    let plain =
                        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                    if plain { write!(f, "{dot}{key}")? } else { write!(f, "{dot}{key:?}")? }
                }
                KeySegment::Index(place) => write!(f, "[{place}]")?,
            }
        }
        Ok(())
    }
}
