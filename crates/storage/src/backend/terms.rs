//! Index terms: short texts by which the rows of a table are found, whatever their ids.
//!
//! In: terms such as `tool=calc`, chosen by the owner of the table. Out: whether a row has them. A store knows no meaning
//! of a term; it promises that a scan with one term reads about as much as it returns.

use std::borrow::Borrow;

use smol_str::SmolStr;

/// Comes before, between and after the terms.
const SEPARATOR: char = '\n';

/// The index terms of one row. No term is empty or contains a line break.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Terms(SmolStr);

impl Terms {
    /// No terms.
    pub const NONE: Self = Self(SmolStr::new_static(""));

    /// These terms.
    #[must_use]
    pub fn new(terms: impl IntoIterator<Item = impl Borrow<str>>) -> Self {
        let mut text = String::new();
        for term in terms {
            let term = term.borrow();
            debug_assert!(!term.is_empty() && !term.contains(SEPARATOR), "{term:?} is not an index term");
            if text.is_empty() {
                text.push(SEPARATOR);
            }
            text.push_str(term);
            text.push(SEPARATOR);
        }
        Self(text.into())
    }

    /// The terms whose text is [`as_str`](Self::as_str).
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// All terms as one text; empty without terms.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is no term.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each term.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(SEPARATOR).filter(|term| !term.is_empty())
    }

    /// Whether the terms of this text include all of `wanted`.
    #[must_use]
    pub fn text_has_all(text: &str, wanted: &[SmolStr]) -> bool {
        wanted.iter().all(|wanted| text.split(SEPARATOR).any(|term| term == wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_terms_it_was_given_and_no_part_of_them() {
        let terms = Terms::new(["tool=calc", "status=error"]);
        assert_eq!(Terms::from_text(terms.as_str()), terms);
        assert_eq!(Vec::from_iter(terms.iter()), ["tool=calc", "status=error"]);
        let has =
            |wanted: &[&str]| Terms::text_has_all(terms.as_str(), &wanted.iter().map(SmolStr::new).collect::<Vec<_>>());
        assert!(has(&[]) && has(&["tool=calc"]) && has(&["status=error", "tool=calc"]));
        assert!(!has(&["tool=cal"]) && !has(&["=calc"]) && !has(&["tool=calc", "status=success"]));
        assert!(Terms::default().is_empty() && Terms::new([""; 0]).is_empty() && !terms.is_empty());
    }
}
