//! Cookie jar of one host.
//!
//! In: `Set-Cookie` headers. Out: the `Cookie` header for the same host, and the jar as JSON. Bounded in number and size of cookies;
//! when the jar is full, the cookie that was set first is evicted. Cookies for other domains are rejected.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use toolhub_core::clock::Timestamp;
use toolhub_net::parse_http_date;

/// Maximum number of cookies per host.
const MAX_COOKIES: usize = 50;
/// Maximum length of a cookie, including its name.
const MAX_COOKIE_BYTES: usize = 4096;

/// The cookies of one host, by name and path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CookieJar(BTreeMap<String, Cookie>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cookie {
    name: String,
    value: String,
    path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    secure: bool,
    /// Expiry; `None` for a session cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    set: Timestamp,
}

impl CookieJar {
    /// Applies a `Set-Cookie` header of the response to a request for `path`. Returns whether the jar changed.
    pub(crate) fn apply_set_cookie(&mut self, header: &str, host: &str, path: &str, now: Timestamp) -> bool {
        let Some(cookie) = Cookie::parse(header, host, path, now) else { return false };
        let key = format!("{};{}", cookie.name, cookie.path);
        if cookie.until.is_some_and(|until| until <= now) {
            return self.0.remove(&key).is_some();
        }
        self.0.insert(key, cookie);
        while self.0.len() > MAX_COOKIES {
            let oldest = self.0.iter().min_by_key(|(_, cookie)| cookie.set).map(|(key, _)| key.clone());
            oldest.map(|key| self.0.remove(&key));
        }
        true
    }

    /// The `Cookie` header of a request for `path`.
    pub(crate) fn header(&self, path: &str, https: bool, now: Timestamp) -> String {
        let matches = |cookie: &&Cookie| {
            (https || !cookie.secure)
                && cookie.until.is_none_or(|until| now < until)
                && path_matches(&cookie.path, path)
        };
        let mut sent: Vec<&Cookie> = self.0.values().filter(matches).collect();
        // Longest path first (RFC 6265).
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect::<Vec<_>>().join("; ")
    }

    /// The longest remaining lifetime of a cookie with an expiry.
    pub(crate) fn max_lifetime(&self, now: Timestamp) -> Duration {
        self.0.values().filter_map(|cookie| cookie.until).map(|until| until.since(now)).max().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values, which must be redacted.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|cookie| cookie.value.as_str())
    }
}

impl Cookie {
    fn parse(header: &str, host: &str, path: &str, now: Timestamp) -> Option<Self> {
        let mut parts = header.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let sendable = |text: &str| text.bytes().all(|byte| (0x21..0x7f).contains(&byte) || byte == b' ');
        if name.is_empty() || name.len() + value.len() > MAX_COOKIE_BYTES || !sendable(name) || !sendable(value) {
            return None;
        }
        let folder = path.rfind('/').filter(|at| *at > 0).map_or("/", |at| &path[..at]);
        let mut cookie =
            Self { name: name.into(), value: value.into(), path: folder.into(), secure: false, until: None, set: now };
        let mut max_age = None;
        for part in parts {
            let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match attribute.trim().to_ascii_lowercase().as_str() {
                "path" if value.starts_with('/') && value.len() <= MAX_COOKIE_BYTES && sendable(value) => {
                    cookie.path = value.into();
                }
                "secure" => cookie.secure = true,
                "domain" if !domain_matches(host, value) => return None,
                "max-age" => max_age = value.parse::<i64>().ok().or(max_age),
                "expires" => cookie.until = parse_date(value).or(cookie.until),
                _ => {}
            }
        }
        if let Some(seconds) = max_age {
            let millis = now.millis().saturating_add(seconds.max(0).saturating_mul(1000));
            cookie.until = Some(Timestamp::from_millis(millis));
        }
        Some(cookie)
    }
}

/// Whether a host is this domain or a subdomain of it.
fn domain_matches(host: &str, domain: &str) -> bool {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    let host = host.to_ascii_lowercase();
    domain.is_empty() || host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Whether a cookie of one path is sent with a request for another.
fn path_matches(cookie: &str, path: &str) -> bool {
    path.strip_prefix(cookie).is_some_and(|rest| rest.is_empty() || cookie.ends_with('/') || rest.starts_with('/'))
}

/// Parses an HTTP date, also with dashes.
fn parse_date(text: &str) -> Option<Timestamp> {
    let since_epoch = parse_http_date(text)?.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[track_caller]
    fn check(set: &[&str], path: &str, https: bool, expected: &str) {
        let mut jar = CookieJar::default();
        for header in set {
            jar.apply_set_cookie(header, "shop.example", "/a/login", NOW);
        }
        let json = serde_json::to_string(&jar).unwrap();
        let jar: CookieJar = serde_json::from_str(&json).unwrap();
        assert_eq!(jar.header(path, https, NOW), expected, "{set:?}");
    }

    #[test]
    fn cookies_go_back_where_they_belong() {
        check(&["a=1"], "/a/x", false, "a=1");
        check(&["a=1"], "/b", false, "");
        check(&["a=1; Path=/"], "/b", false, "a=1");
        check(&["a=1; Path=/b"], "/bad", false, "");
        check(&["a=1; Path=/; Secure"], "/", false, "");
        check(&["a=1; Path=/; Secure; HttpOnly; SameSite=Lax"], "/", true, "a=1");
        check(&["a=1; Path=/", "a=2; Path=/", "b=3; path=/a"], "/a/x", false, "b=3; a=2");
        check(&["a=1; Path=/; Domain=example"], "/", false, "a=1");
        check(&["a=1; Path=/; Domain=.shop.example"], "/", false, "a=1");
        check(&["a=1; Path=/; Domain=hop.example"], "/", false, "");
        check(&["a=1; Path=/; Domain=evil.example"], "/", false, "");
    }

    #[test]
    fn cookies_end_when_the_service_says_so() {
        check(&["a=1; Path=/", "a=; Path=/; Max-Age=0"], "/", false, "");
        check(&["a=1; Path=/", "a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "/", false, "");
        check(&["a=1; Path=/; Expires=Wed, 21-Oct-2099 07:28:00 GMT"], "/", false, "a=1");
        check(&["a=1; Path=/; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "/", false, "a=1");
        let mut jar = CookieJar::default();
        jar.apply_set_cookie("a=1; Path=/; Max-Age=60", "h", "/", NOW);
        assert_eq!(jar.header("/", false, Timestamp::from_millis(NOW.millis() + 60_000)), "");
    }

    #[test]
    fn what_no_cookie_can_be_is_not_taken_and_there_are_only_so_many() {
        let huge = format!("a={}", "x".repeat(MAX_COOKIE_BYTES));
        for invalid in ["", "=1", "a", "a=\u{7}", "a=ü", &huge] {
            check(&[invalid], "/a/x", false, "");
        }
        let mut jar = CookieJar::default();
        for at in 0..200 {
            let now = Timestamp::from_millis(NOW.millis() + at);
            jar.apply_set_cookie(&format!("c{at}=1; Path=/"), "h", "/", now);
        }
        let sent = jar.header("/", false, NOW);
        assert_eq!(
            (sent.split("; ").count(), sent.contains("c199=1"), sent.contains("c0=")),
            (MAX_COOKIES, true, false)
        );
    }
}
