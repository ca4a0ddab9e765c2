//! Which tools somebody is meant to have: all of them, or those whose names fit.
//!
//! In: patterns over names. Out: whether a tool is among them. Which of those may be used now is decided elsewhere.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use toolhub_types::policy::Glob;

/// Which tools somebody is meant to have. Written as a list of patterns, or as nothing where it is all tools.
///
/// ```
/// use toolhub_core::Toolset;
///
/// let basic = Toolset::of(["clock", "fs__*"])?;
/// assert!(basic.has("fs__read") && !basic.has("payments__refund"));
/// assert!(Toolset::all().has("payments__refund"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Toolset(Option<Vec<Glob>>);

impl Toolset {
    /// All tools, also those that come later.
    #[must_use]
    pub fn all() -> Self {
        Self(None)
    }

    /// The tools whose names fit one of these patterns, also those that come later; none where there is no pattern.
    ///
    /// # Errors
    /// When a pattern is empty.
    pub fn from_patterns<P: Into<SmolStr>>(patterns: impl IntoIterator<Item = P>) -> Result<Self, String> {
        patterns.into_iter().map(Glob::new).collect::<Result<_, _>>().map(|patterns| Self(Some(patterns)))
    }

    /// Whether a tool of this name is among them.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(name)))
    }

    /// The patterns; `None` where it is all tools.
    #[must_use]
    pub fn patterns(&self) -> Option<&[Glob]> {
        self.0.as_deref()
    }
}
