//! Glob patterns over names: `*` matches any number of characters, `?` exactly one.
//!
//! In: the text of a pattern, then names. Out: whether the whole name matches; matching is case-sensitive.
//! There is no escape character, because no tool name contains `*` or `?`.

use std::{fmt, str::Chars};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A glob pattern over names, such as `payments__*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Glob(SmolStr);

impl Glob {
    /// Creates a pattern.
    ///
    /// # Errors
    /// When the text is empty: it would match no name, which is never intended.
    pub fn new(text: impl Into<SmolStr>) -> Result<Self, String> {
        let text = text.into();
        if text.is_empty() {
            return Err("a name pattern must not be empty; `*` matches every name".into());
        }
        Ok(Self(text))
    }

    /// Whether the whole name matches.
    ///
    /// Backtracks only to the last star. Everything before it already matched as early as possible, so a longer match of an earlier
    /// star would leave less of the name and gain nothing. The cost is at most O(pattern × name).
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // The pattern after the last star, and the rest of the name where that part was last tried.
        let mut last_star: Option<(Chars<'_>, Chars<'_>)> = None;
        loop {
            let (mut next_pattern, mut next_rest) = (pattern.clone(), rest.clone());
            match (next_pattern.next(), next_rest.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    last_star = Some((next_pattern.clone(), rest.clone()));
                    pattern = next_pattern;
                }
                (Some(expected), Some(found)) if expected == '?' || expected == found => {
                    (pattern, rest) = (next_pattern, next_rest);
                }
                _ => {
                    let Some((after_star, retry_from)) = &mut last_star else { return false };
                    if retry_from.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after_star.clone(), retry_from.clone());
                }
            }
        }
    }

    /// The text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<SmolStr> for Glob {
    type Error = String;
    fn try_from(text: SmolStr) -> Result<Self, String> {
        Self::new(text)
    }
}

impl From<Glob> for SmolStr {
    fn from(glob: Glob) -> Self {
        glob.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let glob = Glob::new(pattern).unwrap();
        for name in matching {
            assert!(glob.matches(name), "{pattern} does not match {name}");
        }
        for name in others {
            assert!(!glob.matches(name), "{pattern} matches {name}");
        }
    }

    #[test]
    fn a_name_fits_as_a_whole_or_not_at_all() {
        check("weather", &["weather"], &["", "Weather", "weather2", "the_weather"]);
        check("payments__*", &["payments__", "payments__refund"], &["payments_refund", "my_payments__refund"]);
        check("*__delete_*", &["fs__delete_file", "a__delete_b__delete_c"], &["fs__delete", "delete_"]);
        check("get_?", &["get_a", "get_ü"], &["get_", "get_ab"]);
        check("*", &["", "anything"], &[]);
        check("a**b", &["ab", "axb"], &["a", "ba"]);
        check("[a].+", &["[a].+"], &["a", "a.x"]);
        check("bot ü*", &["bot ünder"], &["bot u"]);
    }

    #[test]
    fn an_empty_pattern_is_refused() {
        assert!(Glob::new("").unwrap_err().contains("empty"));
        assert!(serde_json::from_value::<Glob>(json!("")).is_err());
    }

    #[test]
    fn a_pattern_is_written_as_its_text() {
        let glob = Glob::new("fs__*").unwrap();
        assert_eq!(serde_json::to_value(&glob).unwrap(), json!("fs__*"));
        assert_eq!(serde_json::from_value::<Glob>(json!("fs__*")).unwrap(), glob);
        assert_eq!(glob.to_string(), "fs__*");
    }

    #[test]
    fn many_stars_over_a_long_name_cost_no_more_than_one_after_the_other() {
        // With unlimited backtracking this would take exponential time.
        let glob = Glob::new("a*".repeat(2_000) + "b").unwrap();
        assert!(!glob.matches(&"a".repeat(4_000)));
    }

    /// Reference implementation with full backtracking.
    fn naive_matches(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, _) => name.is_empty(),
            (Some(('*', after)), _) => {
                naive_matches(after, name) || name.split_first().is_some_and(|(_, rest)| naive_matches(pattern, rest))
            }
            (Some((expected, after)), Some((found, rest))) => {
                (*expected == '?' || expected == found) && naive_matches(after, rest)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_means_what_its_plain_definition_says(pattern in "[abü*?]{1,8}", name in "[abü*]{0,10}") {
            let (expected, found): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Glob::new(pattern).unwrap().matches(&name), naive_matches(&expected, &found));
        }
    }
}
