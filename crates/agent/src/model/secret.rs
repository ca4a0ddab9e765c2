//! A key that is sent and never shown.

use std::{fmt, sync::Arc};

use reqwest::header::HeaderValue;

/// The key of a provider. Whoever prints it sees nothing of it.
///
/// ```
/// use toolhub_agent::Secret;
///
/// assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(••••)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// This text, without white space around it.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().into())
    }

    /// As it goes into a header, after this word; none where it has a character that cannot stand there.
    pub(super) fn header(&self, before: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{before}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The text itself, to look for it in what must not hold it.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(••••)")
    }
}
