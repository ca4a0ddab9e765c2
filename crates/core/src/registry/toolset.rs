//! Toolsets: selections of tools by name patterns.
//!
//! In: globs over tool names. Out: whether a tool belongs to the toolset. `hub/availability.rs` decides which of them may be used now.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use toolhub_types::policy::Glob;

/// A selection of tools by name. Serialized as a list of patterns, or as null for all tools.
///
/// ```
/// use toolhub_core::Toolset;
///
/// let basic = Toolset::from_patterns(["clock", "fs__*"])?;
/// assert!(basic.contains("fs__read") && !basic.contains("payments__refund"));
/// assert!(Toolset::all().contains("payments__refund"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Toolset(Option<Vec<Glob>>);

impl Toolset {
    /// All tools, including those registered later.
    #[must_use]
    pub fn all() -> Self {
        Self(None)
    }

    /// The tools whose names match one of these patterns, including those registered later; none if the list is empty.
    ///
    /// # Errors
    /// When a pattern is empty.
    pub fn from_patterns<P: Into<SmolStr>>(patterns: impl IntoIterator<Item = P>) -> Result<Self, String> {
        patterns.into_iter().map(Glob::new).collect::<Result<_, _>>().map(|patterns| Self(Some(patterns)))
    }

    /// Whether a tool of this name belongs to the toolset.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(name)))
    }

    /// The patterns; `None` for all tools.
    #[must_use]
    pub fn patterns(&self) -> Option<&[Glob]> {
        self.0.as_deref()
    }
}
