//! The cookies of one host.
//!
//! In: what a service sets, as it sets it. Out: what is sent back to the same host, and the JSON it is kept as. Bounded: a host may have so many
//! cookies of such a size, and the one that was set longest ago goes first. Cookies of other hosts are not taken.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use toolhub_core::clock::Timestamp;
use toolhub_net::parse_http_date;

/// How many cookies a host may have.
const MAX_COOKIES: usize = 50;
/// How long a cookie may be, its name included.
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
    /// When it ends; with the session where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    set: Timestamp,
}

impl CookieJar {
    /// Takes in what a service sets in answer to a request for `path`. Whether anything changed.
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

    /// What is sent with a request for `path`.
    pub(crate) fn header(&self, path: &str, https: bool, now: Timestamp) -> String {
        let fits = |cookie: &&Cookie| {
            (https || !cookie.secure)
                && cookie.until.is_none_or(|until| now < until)
                && path_matches(&cookie.path, path)
        };
        let mut sent: Vec<&Cookie> = self.0.values().filter(fits).collect();
        // The longest path first, as the standard says.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect::<Vec<_>>().join("; ")
    }

    /// How long the last of them lasts, of those that say so.
    pub(crate) fn max_lifetime(&self, now: Timestamp) -> Duration {
        self.0.values().filter_map(|cookie| cookie.until).map(|until| until.since(now)).max().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values, which must not be told.
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
        let mut lasts = None;
        for part in parts {
            let (word, said) = part.split_once('=').unwrap_or((part, ""));
            let said = said.trim();
            match word.trim().to_ascii_lowercase().as_str() {
                "path" if said.starts_with('/') && said.len() <= MAX_COOKIE_BYTES && sendable(said) => {
                    cookie.path = said.into();
                }
                "secure" => cookie.secure = true,
                "domain" if !domain_matches(host, said) => return None,
                "max-age" => lasts = said.parse::<i64>().ok().or(lasts),
                "expires" => cookie.until = parse_date(said).or(cookie.until),
                _ => {}
            }
        }
        if let Some(seconds) = lasts {
            let millis = now.millis().saturating_add(seconds.max(0).saturating_mul(1000));
            cookie.until = Some(Timestamp::from_millis(millis));
        }
        Some(cookie)
    }
}

/// Whether a host is this domain or below it.
fn domain_matches(host: &str, domain: &str) -> bool {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    let host = host.to_ascii_lowercase();
    domain.is_empty() || host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Whether a cookie of one path is sent with a request for another.
fn path_matches(cookie: &str, path: &str) -> bool {
    path.strip_prefix(cookie).is_some_and(|rest| rest.is_empty() || cookie.ends_with('/') || rest.starts_with('/'))
}

/// A date as HTTP writes it, also with dashes.
fn parse_date(text: &str) -> Option<Timestamp> {
    let since = parse_http_date(text)?.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
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
        let written = serde_json::to_string(&jar).unwrap();
        let jar: CookieJar = serde_json::from_str(&written).unwrap();
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
        for wrong in ["", "=1", "a", "a=\u{7}", "a=ü", &huge] {
            check(&[wrong], "/a/x", false, "");
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
