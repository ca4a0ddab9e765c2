//! Patterns over names: `*` is any run of characters, `?` is one, everything else is itself.
//!
//! In: the text of a pattern, then names. Out: whether a name fits, as a whole, capitals told from small letters.
//! Knows nothing about what is named. There is no escape: no tool name holds `*` or `?`.

use std::{fmt, str::Chars};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A pattern over names, such as `payments__*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Glob(SmolStr);

impl Glob {
    /// A pattern.
    ///
    /// # Errors
    /// When the text is empty: it would fit no name, which nobody means.
    pub fn new(text: impl Into<SmolStr>) -> Result<Self, String> {
        let text = text.into();
        if text.is_empty() {
            return Err("a pattern over names cannot be empty; `*` fits every name".into());
        }
        Ok(Self(text))
    }

    /// Whether the whole name fits.
    ///
    /// Only the last star is ever tried again. What stands before it already fits as early as it can, so an earlier
    /// star that took more would leave less and gain nothing. The work is at most pattern times name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // The pattern behind the last star, and the name from where that part was last tried.
        let mut last_star: Option<(Chars<'_>, Chars<'_>)> = None;
        loop {
            let (mut pattern_on, mut rest_on) = (pattern.clone(), rest.clone());
            match (pattern_on.next(), rest_on.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    last_star = Some((pattern_on.clone(), rest.clone()));
                    pattern = pattern_on;
                }
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    (pattern, rest) = (pattern_on, rest_on);
                }
                _ => {
                    let Some((behind, tried)) = &mut last_star else { return false };
                    if tried.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (behind.clone(), tried.clone());
                }
            }
        }
    }

    /// The pattern as it was written.
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
    fn check(pattern: &str, fits: &[&str], others: &[&str]) {
        let glob = Glob::new(pattern).unwrap();
        for name in fits {
            assert!(glob.matches(name), "{pattern} does not fit {name}");
        }
        for name in others {
            assert!(!glob.matches(name), "{pattern} fits {name}");
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
        // Tried in all combinations this would not end before the sun does.
        let glob = Glob::new("a*".repeat(2_000) + "b").unwrap();
        assert!(!glob.matches(&"a".repeat(4_000)));
    }

    /// The plain meaning of a pattern, for comparison.
    fn naive_matches(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, _) => name.is_empty(),
            (Some(('*', behind)), _) => {
                naive_matches(behind, name) || name.split_first().is_some_and(|(_, rest)| naive_matches(pattern, rest))
            }
            (Some((wanted, behind)), Some((found, rest))) => {
                (*wanted == '?' || wanted == found) && naive_matches(behind, rest)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_means_what_its_plain_definition_says(pattern in "[abü*?]{1,8}", name in "[abü*]{0,10}") {
            let (wanted, found): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Glob::new(pattern).unwrap().matches(&name), naive_matches(&wanted, &found));
        }
    }
}
