//! Parses URLs of settings that contain no arguments.
//!
//! In: the text of a setting. Out: a URL and its origin, or why it is invalid; and a redacted form for messages. `toolhub-net` decides
//! whether the address may be reached.

use toolhub_net::{Origin, Url};

/// Parses a fixed URL.
///
/// # Errors
/// Why it is invalid, as a text that follows the name of a setting.
pub(crate) fn parse(text: &str) -> Result<(Origin, Url), String> {
    let url =
        Url::parse(text).map_err(|error| format!("is not a valid URL ({error}); write e.g. https://api.example/v1"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme `{}`; only http and https are supported", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user or a password; use `auth` instead".into());
    }
    if url.fragment().is_some() {
        return Err("has a fragment (`#`), which is never sent; remove it, or write %23".into());
    }
    let origin = Origin::from_url(&url).ok_or("has no host")?;
    Ok((origin, url))
}

/// A URL for messages: without userinfo, which may contain a password, and without its query.
pub(crate) fn redact_url(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let begin = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(begin);
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}…{}", &rest[at..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_and_names_a_host_and_nothing_secret() {
        assert!(parse("https://api.example/v1").is_ok());
        for invalid in ["ftp://a", "file:///etc/passwd", "http://u:p@a", "//a", "http://", "http://a/#x", "a/b"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }
}
