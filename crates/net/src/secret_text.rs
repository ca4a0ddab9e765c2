//! The text of a secret that was read: printed masked, in debug output too.
//!
//! In: a text. Out: the same text on request, or its mask. Where the text comes from is left to `secret.rs`.

use std::{fmt, sync::Arc};

/// The text of a secret, which is never printed.
///
/// ```
/// use toolhub_net::SecretText;
///
/// let text = SecretText::new("sha256:00112233445566778899aabb1234");
/// assert_eq!((format!("{text:?}").as_str(), text.masked().as_str()), ("••••", "••••1234"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretText(Arc<str>);

/// How many trailing characters of a long secret are visible.
const VISIBLE_CHARS: usize = 4;
/// Shorter secrets are masked completely: four characters would be a large part of them.
const MIN_LEN_TO_SHOW_TAIL: usize = 20;

impl SecretText {
    /// Printed in place of a secret.
    pub const MASK: &str = "••••";

    /// Wraps a text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, to send or compare it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The mask, followed by the last characters if the secret is long.
    #[must_use]
    pub fn masked(&self) -> String {
        let length = self.0.chars().count();
        let visible = if length >= MIN_LEN_TO_SHOW_TAIL { VISIBLE_CHARS } else { 0 };
        self.0
            .chars()
            .skip(length - visible)
            .fold(Self::MASK.into(), |masked: String, c| masked + c.encode_utf8(&mut [0; 4]))
    }
}

impl From<SecretText> for Arc<str> {
    fn from(text: SecretText) -> Self {
        text.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_its_end_only_where_that_gives_nothing_away() {
        for (text, expected) in
            [("", "••••"), ("hunter2", "••••"), ("sixteen-letters-x", "••••"), ("0123456789abcdefghij", "••••ghij")]
        {
            assert_eq!(SecretText::new(text).masked(), expected);
        }
    }
}
