//! Addresses of services: scheme, host and port.
//!
//! In: texts from owners and from redirects. Out: an [`Origin`], or why the text is none. Only http and https are known.

use std::{fmt, net::IpAddr};

use url::{Host, Url};

/// Where requests go: what must never depend on an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) https: bool,
    /// A name or an address; one of version 6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = match url.host()? {
            Host::Domain(name) => name.trim_end_matches('.').to_owned(),
            Host::Ipv4(ip) => ip.to_string(),
            Host::Ipv6(ip) => ip.to_string(),
        };
        (!host.is_empty()).then_some(Self { https, host, port: url.port_or_known_default()? })
    }

    /// The host, where it is an address and no name.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// What stands in the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.https { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether a list of hosts names this one, with or without its port.
    pub(crate) fn is_named_by(&self, hosts: &[String]) -> bool {
        hosts.iter().any(|named| self.is(named))
    }

    fn is(&self, named: &str) -> bool {
        let bare = |text: &str| {
            let text = text.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
            // An address may be spelled in more than one way.
            match text.parse::<IpAddr>() {
                Ok(ip) => Some(ip) == self.ip(),
                Err(_) => text.eq_ignore_ascii_case(&self.host),
            }
        };
        let with_port = named.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
        bare(named) || with_port.is_some_and(|(host, port)| port.parse() == Ok(self.port) && bare(host))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.authority())
    }
}

/// An address as it may be shown: without a user, whose password may stand there, and without its query.
pub(crate) fn without_user(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let begin = text.find("://").map_or(0, |at| at + 3);
    let (scheme, behind) = text.split_at(begin);
    let end = behind.find('/').unwrap_or(behind.len());
    match behind[..end].rfind('@') {
        Some(at) => format!("{scheme}…{}", &behind[at..]),
        None => text.to_owned(),
    }
}

/// Reads a fixed address.
///
/// # Errors
/// Why it is none, in words that follow the name of a setting.
pub(crate) fn address(text: &str) -> Result<(Origin, Url), String> {
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
    let origin = Origin::of(&url).ok_or("names no host")?;
    Ok((origin, url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        address(text).unwrap().0
    }

    #[test]
    fn hosts_are_the_same_however_they_are_spelled() {
        assert_eq!(origin("HTTP://Example.COM.:80/x"), origin("http://example.com"));
        assert_eq!(origin("http://2130706433/").host, "127.0.0.1");
        assert_eq!(origin("http://0x7f.1/").host, "127.0.0.1");
        assert_eq!(origin("http://[::1]:8080").authority(), "[::1]:8080");
        for wrong in ["ftp://a", "file:///etc/passwd", "http://u:p@a", "//a", "http://", "http://a/#x", "a/b"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_names_hosts_with_or_without_a_port() {
        let at = origin("http://[::1]:8080");
        for named in ["::1", "[::1]", "[::1]:8080", "0:0:0:0:0:0:0:1"] {
            assert!(at.is_named_by(&[named.into()]), "{named}");
        }
        for other in ["[::1]:80", "::2", "localhost", "1"] {
            assert!(!at.is_named_by(&[other.into()]), "{other}");
        }
        let at = origin("http://Box.local:90");
        assert!(at.is_named_by(&["BOX.local".into()]) && at.is_named_by(&["box.local:90".into()]));
        assert!(!at.is_named_by(&["box.local:91".into()]) && !at.is_named_by(&["local".into()]));
    }
}
