//! Fixed addresses, as owners write them.
//!
//! In: texts of settings. Out: a URL and its origin, or why the text is none; and an address as it may be shown. Where a URL leads is
//! the business of `toolhub-net`.

use toolhub_net::{Origin, Url};

/// Reads a fixed address.
///
/// # Errors
/// Why it is none, in words that follow the name of a setting.
pub(crate) fn parse(text: &str) -> Result<(Origin, Url), String> {
    let url =
        Url::parse(text).map_err(|error| format!("is no address ({error}); write it like https://api.example/v1"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("begins with `{}:`; only http and https are spoken here", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or a password; say them with `auth`".into());
    }
    if url.fragment().is_some() {
        return Err("has a part behind `#`, which is never sent; leave it out, or write %23".into());
    }
    let origin = Origin::from_url(&url).ok_or("names no host")?;
    Ok((origin, url))
}

/// An address as it may be shown: without a user, whose password may stand there, and without its query.
pub(crate) fn redact_url(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let begin = text.find("://").map_or(0, |at| at + 3);
    let (scheme, behind) = text.split_at(begin);
    let end = behind.find('/').unwrap_or(behind.len());
    match behind[..end].rfind('@') {
        Some(at) => format!("{scheme}…{}", &behind[at..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_and_names_a_host_and_nothing_secret() {
        assert!(parse("https://api.example/v1").is_ok());
        for wrong in ["ftp://a", "file:///etc/passwd", "http://u:p@a", "//a", "http://", "http://a/#x", "a/b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
